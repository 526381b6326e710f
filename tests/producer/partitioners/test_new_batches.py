"""A partitioner with on_new_batch is told of each batch that its rows have to begin, and may send them elsewhere."""

from __future__ import annotations

import random
from itertools import groupby

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.partitioners.interface import Partitioner, deal
from spark_kafka_sink.producer.partitioners.partitioner_table import partitioner_of
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns
from tests.examples import examples
from tests.producer.partitioners.asking import ask, available, config
from tests.producer.partitioners.open_batches import OpenBatches

# A busy machine is no failure.
unhurried = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])

BATCH = 1000
SIZE = 100


class Turning:
    """One partition after the other, at each new batch; or staying, which it says."""

    def __init__(self, *, stays: bool = False) -> None:
        self.current = 0
        self.told: list[int] = []
        self.stays = stays

    def partition(self, topic: str, columns: RecordColumns, sizes: NDArray[np.int64], cluster: Cluster) -> NDArray[np.int32]:
        return np.full(columns.num_records, self.current, np.int32)

    def on_new_batch(self, topic: str, cluster: Cluster, prev_partition: int) -> bool | None:
        self.told.append(prev_partition)
        if self.stays:
            return False
        self.current = (self.current + 1) % (cluster.partition_count(topic) or 1)
        return None


def using(by: object, batches: OpenBatches) -> Partitioner:
    return partitioner_of(config(partitioner_class=by, batch_size=BATCH), batches, random.Random(1))


def runs(partitions: list[int]) -> list[tuple[int, int]]:
    return [(partition, len(list(run))) for partition, run in groupby(partitions)]


def test_nothing_is_told_while_rows_fit_into_what_is_open() -> None:
    by = Turning()
    assert ask(using(by, OpenBatches({0: 500})), 5, available(4), SIZE) == [0] * 5
    assert by.told == []


def test_a_partitioner_that_stays_is_told_of_each_batch_and_asked_once() -> None:
    by = Turning(stays=True)
    assert ask(using(by, OpenBatches({0: 800})), 25, available(4), SIZE) == [0] * 25
    assert by.told == [0, 0, 0]


def test_rows_that_name_their_partition_fill_batches_but_are_not_told_of() -> None:
    by = Turning()
    partition = np.array([0] * 12 + [NO_PARTITION] * 2, np.int32)
    columns = RecordColumns(14, partition=partition)
    assert ask(using(by, OpenBatches({})), columns, available(4), SIZE) == [0] * 14
    assert by.told == []
    full = RecordColumns(11, partition=np.array([0] * 10 + [NO_PARTITION], np.int32))
    assert ask(using(by, OpenBatches({})), full, available(4), SIZE) == [0] * 10 + [1]
    assert by.told == [0]


@pytest.mark.parametrize("name", ["sticky", "org.apache.kafka.clients.producer.internals.DefaultPartitioner"])
def test_sticky_fills_batch_after_batch(name: str) -> None:
    batches = OpenBatches({})
    by = using(name, batches)
    chosen = []
    for rows in (3, 1, 9, 30, 7):
        part = ask(by, rows, available(5), SIZE)
        batches.append(part, SIZE, BATCH)
        chosen += part
    lengths = [length for _, length in runs(chosen)]
    assert lengths == [10, 10, 10, 10, 10]


def test_the_hook_is_not_missed_where_there_is_none() -> None:
    assert type(using("consistent", OpenBatches({}))) is not type(using("sticky", OpenBatches({})))


@unhurried
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 1500)), max_size=40),
    st.dictionaries(st.integers(0, 3), st.integers(1, 1200), max_size=4),
)
def test_batches_are_foreseen_as_row_by_row(rows: list[tuple[int, int]], filled: dict[int, int]) -> None:
    expected, after = [], dict(filled)
    for row, (partition, size) in enumerate(rows):
        if partition not in after or after[partition] + size > BATCH:
            expected.append(row)
            after[partition] = 0
        after[partition] += size
    partitions, sizes = np.array([p for p, _ in rows], np.int32), np.array([s for _, s in rows], np.int64)
    assert deal(partitions, sizes, filled, BATCH, 4) == (expected, after)
