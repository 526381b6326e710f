"""The longer a partition's queue, the rarer it is chosen."""

from __future__ import annotations

from collections import Counter

import pytest

from spark_kafka_sink.producer.partitioners.load_stats import load_stats


# BuiltInPartitionerTest.adaptivePartitionsTest of Kafka, and the example in its BuiltInPartitioner.
@pytest.mark.parametrize(
    ("sizes", "weights"), [([5, 0, 3, 0, 1], [1, 6, 3, 6, 5]), ([0, 3, 1], [4, 1, 3]), ([0, 0, 9], [10, 10, 1])]
)
def test_a_partitions_weight_is_the_longest_queue_less_its_own_plus_one(sizes: list[int], weights: list[int]) -> None:
    stats = load_stats(range(len(sizes)), sizes, len(sizes))
    assert stats is not None
    total = sum(weights)
    chosen = Counter(stats.partition((number + 0.5) / total) for number in range(total))
    assert [chosen[partition] for partition in range(len(sizes))] == weights


def test_the_ends_of_the_range_are_the_first_and_the_last_partition() -> None:
    stats = load_stats([4, 7], [0, 1], 9)
    assert stats is not None
    assert (stats.partition(0.0), stats.partition(1 - 2**-53)) == (4, 7)


@pytest.mark.parametrize(("partitions", "sizes", "count"), [([], [], 3), ([0], [9], 1), ([0, 1, 2], [4, 4, 4], 3)])
def test_where_nothing_tells_partitions_apart_there_are_no_weights(partitions: list[int], sizes: list[int], count: int) -> None:
    assert load_stats(partitions, sizes, count) is None


def test_equal_queues_of_some_partitions_leave_the_others_out() -> None:
    stats = load_stats([0, 2], [3, 3], 3)
    assert stats is not None
    assert {stats.partition(at / 10) for at in range(10)} == {0, 2}
