"""Rows without a key go to one partition until it has a batch, then to another that has a leader."""

from __future__ import annotations

import random
from collections import Counter
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.partitioners.keyless import LOAD_STATS_S, BuiltInPartitioner, load_stats
from spark_kafka_sink.records.columns import RecordColumns
from tests.examples import examples
from tests.producer.clusters import cluster_of
from tests.producer.partitioners.asking import TOPIC, available, rows
from tests.producer.partitioners.open_batches import OpenBatches

# A busy machine is no failure.
unhurried = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])

BATCH = 1000


class Spread(BuiltInPartitioner):
    """Asked about sizes alone: keys are not for it to look at."""

    def of(self, sizes: NDArray[np.int64], cluster: Cluster, topic: str = TOPIC) -> NDArray[np.int32]:
        return self.partition(topic, RecordColumns(len(sizes)), sizes, cluster)


def spread(batch_size: int = BATCH) -> Spread:
    return Spread(batch_size, random.Random(1))


def runs(partitions: NDArray[np.int32]) -> list[tuple[int, int]]:
    """(partition, how many rows) of each run."""
    return [(partition, len(list(run))) for partition, run in groupby(partitions.tolist())]


def test_the_next_partition_is_another() -> None:
    chosen = [p for p, _ in runs(spread().of(rows(2000), available(2)))]
    assert len(chosen) == 200


def test_partitions_are_chosen_uniformly() -> None:
    chosen = Counter(p for p, _ in runs(spread().of(rows(80_000), available(8))))
    assert sorted(chosen) == list(range(8))
    assert all(850 < count < 1150 for count in chosen.values())


def test_partitions_without_a_leader_are_passed_over() -> None:
    partitions = spread().of(rows(1000), available(4, 0, 2))
    assert set(partitions.tolist()) == {1, 3}


def test_where_no_partition_has_a_leader_all_are_used() -> None:
    assert set(spread().of(rows(1000), available(3, 0, 1, 2)).tolist()) == {0, 1, 2}


def test_a_partition_that_lost_its_leader_is_left() -> None:
    partitioner = spread()
    first = int(partitioner.of(rows(1), available(4))[0])
    assert int(partitioner.of(rows(1), available(4, first))[0]) != first


def test_a_partition_is_kept_while_none_has_a_leader() -> None:
    partitioner = spread()
    first = partitioner.of(rows(1), available(4))[0]
    assert partitioner.of(rows(1), available(4, 0, 1, 2, 3))[0] == first


@pytest.mark.parametrize("without_leader", [(), (0,)])
def test_a_partition_that_is_gone_is_left(without_leader: tuple[int, ...]) -> None:
    partitioner = spread()
    partitioner.of(rows(1), available(9, *range(8)))
    assert partitioner.of(rows(1), available(1, *without_leader)).tolist() == [0]


def test_each_topic_has_its_own_partition_and_bytes() -> None:
    partitioner = spread()
    cluster = cluster_of({"orders": 8, "payments": 8})
    partitioner.of(rows(9), cluster)
    assert [n for _, n in runs(partitioner.of(rows(11), cluster, "payments"))] == [10, 1]
    assert [n for _, n in runs(partitioner.of(rows(2), cluster))] == [1, 1]


def test_a_batch_size_of_zero_makes_each_row_a_run() -> None:
    assert [n for _, n in runs(spread(0).of(rows(20), available(8)))] == [1] * 20


@unhurried
@given(st.lists(st.lists(st.integers(1, 1500), max_size=60), max_size=4), st.integers(2, 9))
def test_every_run_fills_a_batch_as_far_as_rows_go(calls: list[list[int]], count: int) -> None:
    partitioner = spread()
    cluster = available(count)
    sizes = [size for call in calls for size in call]
    chosen = [p for call in calls for p in partitioner.of(np.array(call, np.int64), cluster).tolist()]
    assert len(chosen) == len(sizes)
    at = 0
    for _, count_of_rows in runs(np.array(chosen, np.int32)):
        run = sizes[at : at + count_of_rows]
        at += count_of_rows
        assert sum(run) <= BATCH or count_of_rows == 1
        assert at == len(sizes) or sum(run) + sizes[at] > BATCH


# By what waits already


def adaptive(waiting: dict[int, int] | None, *, enabled: bool = True) -> tuple[Spread, OpenBatches]:
    batches = OpenBatches(waiting=waiting)
    return Spread(BATCH, random.Random(1), queues=batches, adaptive=enabled), batches


def shares(partitioner: Spread, cluster: Cluster, batches: int = 4000) -> dict[int, float]:
    counts = Counter(p for p in partitioner.of(rows(batches, BATCH), cluster).tolist())
    return {partition: round(count / batches, 1) for partition, count in sorted(counts.items())}


def test_a_partition_is_the_rarer_the_more_batches_wait_for_it() -> None:
    partitioner, _ = adaptive({0: 0, 1: 8, 2: 5})
    assert shares(partitioner, available(3)) == {0: 0.6, 1: 0.1, 2: 0.3}


@pytest.mark.parametrize("waiting", [None, {}, {0: 3, 1: 3, 2: 3}])
def test_without_a_difference_partitions_are_chosen_uniformly(waiting: dict[int, int] | None) -> None:
    partitioner, _ = adaptive(waiting)
    assert shares(partitioner, available(3)) == {0: 0.3, 1: 0.3, 2: 0.3}


def test_queues_are_not_asked_for_where_the_choice_is_not_adaptive() -> None:
    partitioner, batches = adaptive({0: 0, 1: 800}, enabled=False)
    assert shares(partitioner, available(2)) == {0: 0.5, 1: 0.5}
    assert batches.asked == 0


def test_queues_are_looked_at_now_and_then_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    # Its own clock: brokers of other tests in this process would wait by another one for ever.
    monkeypatch.setattr("spark_kafka_sink.producer.partitioners.keyless.time", SimpleNamespace(monotonic=lambda: now))
    partitioner, batches = adaptive({0: 0, 1: 10**6})
    partitioner.of(rows(500, BATCH), available(2))
    assert batches.asked == 1
    batches.waiting = {0: 10**6, 1: 0}
    now += LOAD_STATS_S
    assert set(partitioner.of(rows(20, BATCH), available(2))[1:].tolist()) == {1}
    assert batches.asked == 2


@pytest.mark.parametrize("cluster", [available(3, 0), available(3, 0, 1, 2)])
def test_the_clusters_leaders_count_more_than_queues_of_a_while_ago(cluster: Cluster) -> None:
    partitioner, _ = adaptive({0: 0, 1: 9999, 2: 9999, 7: 0})
    chosen = set(partitioner.of(rows(200, BATCH), cluster).tolist())
    assert chosen == set(cluster.available_partitions(TOPIC).tolist() or range(3))


# A batch that was sent before it was full


def after_a_flush(open_size: int | None, sent: int = 4) -> tuple[Spread, int]:
    """So many rows went to a partition, whose open batch now has so many bytes."""
    batches = OpenBatches()
    partitioner = Spread(BATCH, random.Random(1), queues=batches)
    partition = int(partitioner.of(rows(sent), available(8))[0])
    if open_size is not None:
        batches.open[partition] = open_size
    return partitioner, partition


def test_the_batch_after_one_that_was_sent_early_is_filled_too() -> None:
    partitioner, partition = after_a_flush(None)
    assert runs(partitioner.of(rows(25), available(8)))[0] == (partition, 10)


def test_a_partition_gets_no_more_than_two_batches() -> None:
    batches = OpenBatches()
    partitioner = Spread(BATCH, random.Random(1), queues=batches)
    (partition,) = {*partitioner.of(rows(9), available(8)).tolist(), *partitioner.of(rows(9), available(8)).tolist()}
    batches.open[partition] = 100
    assert runs(partitioner.of(rows(25), available(8)))[0] == (partition, 2)


def test_a_batch_that_was_sent_early_twice_ends_the_run() -> None:
    partitioner, partition = after_a_flush(100, sent=9)
    assert runs(partitioner.of(rows(25), available(8)))[0] == (partition, 9)
    partitioner, partition = after_a_flush(None, sent=9)
    assert set(partitioner.of(rows(9), available(8)).tolist()) == {partition}
    assert runs(partitioner.of(rows(25), available(8)))[0][0] != partition


def test_a_full_batch_ends_the_run() -> None:
    partitioner, partition = after_a_flush(None, sent=10)
    assert runs(partitioner.of(rows(1), available(8)))[0][0] != partition


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
