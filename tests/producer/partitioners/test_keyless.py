"""Round robin goes from partition to partition, over rows, calls and threads; random goes anywhere; sticky stays until told."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.partitioners.keyless import (
    RoundRobinPartitioner,
    UniformStickyPartitioner,
)
from spark_kafka_sink.records.columns import RecordColumns
from tests.producer.clusters import cluster_of
from tests.producer.partitioners.asking import TOPIC, ask, available


def test_it_goes_on_where_the_last_call_ended() -> None:
    by = RoundRobinPartitioner()
    assert [ask(by, n, available(3)) for n in (2, 0, 3, 1)] == [[0, 1], [], [2, 0, 1], [2]]


def test_each_topic_has_its_own_turn() -> None:
    by, cluster = RoundRobinPartitioner(), cluster_of({TOPIC: 3, "payments": 3})
    ask(by, 2, cluster)
    assert by.partition("payments", RecordColumns(2), np.zeros(2, np.int64), cluster).tolist() == [0, 1]
    assert ask(by, 2, cluster) == [2, 0]


def test_partitions_without_a_leader_are_passed_over_unless_none_has_one() -> None:
    assert ask(RoundRobinPartitioner(), 4, available(4, 0, 2)) == [1, 3, 1, 3]
    assert ask(RoundRobinPartitioner(), 4, available(3, 0, 1, 2)) == [0, 1, 2, 0]


def test_the_counter_goes_on_from_0_after_31_bits_as_javas_does() -> None:
    by = RoundRobinPartitioner()
    by._counters[TOPIC] = 2**31 - 2
    assert ask(by, 4, available(1000)) == [(2**31 - 2) % 1000, (2**31 - 1) % 1000, 0, 1]
    assert ask(by, 1, available(1000)) == [2]


@pytest.mark.timeout(60)
def test_threads_together_go_round_evenly() -> None:
    by = RoundRobinPartitioner()
    with ThreadPoolExecutor(8) as threads:
        chosen = [p for part in threads.map(lambda n: ask(by, n, available(7)), [1, 5, 13] * 700) for p in part]
    counts = Counter(chosen)
    assert len(counts) == 7
    assert max(counts.values()) - min(counts.values()) <= 1


def uniform() -> UniformStickyPartitioner:
    return UniformStickyPartitioner(random.Random(1))


def current(sticky: UniformStickyPartitioner, cluster: Cluster) -> int:
    return ask(sticky, 1, cluster)[0]


def test_the_partition_stays_from_call_to_call() -> None:
    sticky = uniform()
    assert len({current(sticky, available(50)) for _ in range(20)}) == 1


def test_a_new_batch_moves_on_to_another_partition() -> None:
    sticky = uniform()
    for _ in range(100):
        before = current(sticky, available(2))
        assert sticky.on_new_batch(TOPIC, available(2), before) is True
        assert current(sticky, available(2)) == 1 - before


def test_of_many_only_those_with_a_leader_are_taken_and_all_of_them() -> None:
    sticky, cluster = uniform(), available(5, 1, 4)
    chosen = []
    for _ in range(300):
        chosen.append(current(sticky, cluster))
        sticky.on_new_batch(TOPIC, cluster, chosen[-1])
    counts = Counter(chosen)
    assert sorted(counts) == [0, 2, 3]
    assert all(70 < count < 130 for count in counts.values())


@pytest.mark.parametrize("leaderless", [(), (0,)])
def test_a_partition_that_is_gone_is_left(leaderless: tuple[int, ...]) -> None:
    sticky = uniform()
    assert current(sticky, available(9, *range(8))) == 8
    assert current(sticky, available(1, *leaderless)) == 0


def test_keys_are_not_looked_at() -> None:
    by = uniform()
    assert len(set(ask(by, pa.array([b"a", b"b", None, b""]), available(50)))) == 1
