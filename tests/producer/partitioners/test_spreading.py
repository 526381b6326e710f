"""Round robin goes from partition to partition, over rows, calls and threads; random goes anywhere."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from spark_kafka_sink.producer.partitioners.spreading import RandomPartitioner, RoundRobinPartitioner
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


def test_random_partitions_are_uniform_row_by_row() -> None:
    chosen = ask(RandomPartitioner(1), 80_000, available(8))
    counts = Counter(chosen)
    assert sorted(counts) == list(range(8))
    assert all(9_000 < count < 11_000 for count in counts.values())
    same_again = sum(a == b for a, b in pairwise(chosen))
    assert 9_000 < same_again < 11_000
