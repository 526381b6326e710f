"""Kafka 3's sticky partition: kept until a new batch is begun in it; with none, one and many partitions that have a leader."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from spark_kafka_sink.producer.partitioners.sticky import StickyPartitionCache, UniformStickyPartitioner
from tests.producer.partitioners.asking import TOPIC, ask, available


def cache() -> StickyPartitionCache:
    return StickyPartitionCache(random.Random(1))


def test_the_partition_stays_from_call_to_call() -> None:
    sticky = cache()
    assert len({sticky.partition(TOPIC, available(50)) for _ in range(20)}) == 1


def test_a_new_batch_moves_on_to_another_partition() -> None:
    sticky = cache()
    for _ in range(100):
        before = sticky.partition(TOPIC, available(2))
        assert sticky.next_partition(TOPIC, available(2), before) is True
        assert sticky.partition(TOPIC, available(2)) == 1 - before


def test_a_new_batch_of_another_partition_changes_nothing() -> None:
    sticky = cache()
    current = sticky.partition(TOPIC, available(3))
    assert sticky.next_partition(TOPIC, available(3), (current + 1) % 3) is False
    assert sticky.partition(TOPIC, available(3)) == current


def test_without_any_leader_any_partition_is_taken() -> None:
    chosen = Counter(StickyPartitionCache(random.Random(seed)).partition(TOPIC, available(3, 0, 1, 2)) for seed in range(200))
    assert sorted(chosen) == [0, 1, 2]


def test_the_only_partition_with_a_leader_is_kept() -> None:
    sticky = cache()
    cluster = available(3, 0, 2)
    assert sticky.partition(TOPIC, cluster) == 1
    assert sticky.next_partition(TOPIC, cluster, 1) is False
    assert sticky.partition(TOPIC, cluster) == 1


def test_of_many_only_those_with_a_leader_are_taken_and_all_of_them() -> None:
    sticky, cluster = cache(), available(5, 1, 4)
    chosen = []
    for _ in range(300):
        chosen.append(sticky.partition(TOPIC, cluster))
        sticky.next_partition(TOPIC, cluster, chosen[-1])
    counts = Counter(chosen)
    assert sorted(counts) == [0, 2, 3]
    assert all(70 < count < 130 for count in counts.values())


@pytest.mark.parametrize("leaderless", [(), (0,)])
def test_a_partition_that_is_gone_is_left(leaderless: tuple[int, ...]) -> None:
    sticky = cache()
    assert sticky.partition(TOPIC, available(9, *range(8))) == 8
    assert sticky.partition(TOPIC, available(1, *leaderless)) == 0


def test_keys_are_not_looked_at() -> None:
    by = UniformStickyPartitioner(random.Random(1))
    assert len(set(ask(by, pa.array([b"a", b"b", None, b""]), available(50)))) == 1
