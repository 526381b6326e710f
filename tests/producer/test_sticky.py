"""Rows without a key go to one partition until it has a batch, then to another that has a leader."""

from __future__ import annotations

import random
from collections import Counter
from itertools import groupby

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.sticky import StickyPartitioner
from tests.producer.clusters import cluster_of

# A busy machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

BATCH = 1000


def sticky(batch_size: int = BATCH) -> StickyPartitioner:
    return StickyPartitioner(batch_size, random.Random(1))


def rows(count: int, size: int = 100) -> NDArray[np.int64]:
    return np.full(count, size, np.int64)


def runs(partitions: NDArray[np.int32]) -> list[tuple[int, int]]:
    """(partition, how many rows) of each run."""
    return [(partition, len(list(run))) for partition, run in groupby(partitions.tolist())]


def available(partitions: int, *without_leader: int) -> Cluster:
    return cluster_of({"orders": partitions}, leaderless=[("orders", p) for p in without_leader])


def test_a_run_is_as_many_rows_as_a_batch_holds() -> None:
    partitions = sticky().partition("orders", rows(35), available(8))
    assert partitions.dtype == np.int32
    assert [count for _, count in runs(partitions)] == [10, 10, 10, 5]


def test_a_run_goes_on_in_the_next_call() -> None:
    partitioner = sticky()
    together = np.concatenate([partitioner.partition("orders", rows(n), available(8)) for n in (3, 0, 4, 4)])
    assert [count for _, count in runs(together)] == [10, 1]


def test_the_next_partition_is_another() -> None:
    chosen = [p for p, _ in runs(sticky().partition("orders", rows(2000), available(2)))]
    assert len(chosen) == 200


def test_partitions_are_chosen_uniformly() -> None:
    chosen = Counter(p for p, _ in runs(sticky().partition("orders", rows(80_000), available(8))))
    assert sorted(chosen) == list(range(8))
    assert all(850 < count < 1150 for count in chosen.values())


def test_partitions_without_a_leader_are_passed_over() -> None:
    partitions = sticky().partition("orders", rows(1000), available(4, 0, 2))
    assert set(partitions.tolist()) == {1, 3}


def test_one_partition_with_a_leader_gets_all() -> None:
    assert set(sticky().partition("orders", rows(1000), available(4, 0, 1, 3)).tolist()) == {2}


def test_where_no_partition_has_a_leader_all_are_used() -> None:
    assert set(sticky().partition("orders", rows(1000), available(3, 0, 1, 2)).tolist()) == {0, 1, 2}


def test_a_partition_that_lost_its_leader_is_left() -> None:
    partitioner = sticky()
    first = int(partitioner.partition("orders", rows(1), available(4))[0])
    assert int(partitioner.partition("orders", rows(1), available(4, first))[0]) != first


def test_a_partition_is_kept_while_none_has_a_leader() -> None:
    partitioner = sticky()
    first = partitioner.partition("orders", rows(1), available(4))[0]
    assert partitioner.partition("orders", rows(1), available(4, 0, 1, 2, 3))[0] == first


@pytest.mark.parametrize("without_leader", [(), (0,)])
def test_a_partition_that_is_gone_is_left(without_leader: tuple[int, ...]) -> None:
    partitioner = sticky()
    partitioner.partition("orders", rows(1), available(9, *range(8)))
    assert partitioner.partition("orders", rows(1), available(1, *without_leader)).tolist() == [0]


def test_each_topic_has_its_own_partition_and_bytes() -> None:
    partitioner = sticky()
    cluster = cluster_of({"orders": 8, "payments": 8})
    partitioner.partition("orders", rows(9), cluster)
    assert [n for _, n in runs(partitioner.partition("payments", rows(11), cluster))] == [10, 1]
    assert [n for _, n in runs(partitioner.partition("orders", rows(2), cluster))] == [1, 1]


def test_a_row_larger_than_a_batch_goes_alone() -> None:
    sizes = np.array([100, 5000, 5000, 100], np.int64)
    assert [n for _, n in runs(sticky().partition("orders", sizes, available(8)))] == [1, 1, 1, 1]


def test_a_batch_size_of_zero_makes_each_row_a_run() -> None:
    assert [n for _, n in runs(sticky(0).partition("orders", rows(20), available(8)))] == [1] * 20


@unhurried
@given(st.lists(st.lists(st.integers(1, 1500), max_size=60), max_size=4), st.integers(2, 9))
def test_every_run_fills_a_batch_as_far_as_rows_go(calls: list[list[int]], count: int) -> None:
    partitioner = sticky()
    cluster = available(count)
    sizes = [size for call in calls for size in call]
    chosen = [p for call in calls for p in partitioner.partition("orders", np.array(call, np.int64), cluster).tolist()]
    assert len(chosen) == len(sizes)
    at = 0
    for _, count_of_rows in runs(np.array(chosen, np.int32)):
        run = sizes[at : at + count_of_rows]
        at += count_of_rows
        assert sum(run) <= BATCH or count_of_rows == 1
        assert at == len(sizes) or sum(run) + sizes[at] > BATCH
