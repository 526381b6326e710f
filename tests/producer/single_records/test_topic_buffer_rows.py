"""Rows in columns, against a plain list of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spark_kafka_sink.errors import RecordError
from spark_kafka_sink.producer.accumulator.producer_batch import ProduceResult
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.single_records.record_future import RecordFuture, RecordThunk
from spark_kafka_sink.producer.single_records.topic_buffer import BufferedRows
from spark_kafka_sink.records.columns import NO_PARTITION
from tests.examples import examples
from tests.producer.told import future

pytestmark = pytest.mark.slow


class Row(NamedTuple):
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp: int
    headers: Headers
    future: RecordFuture


def add(buffered: BufferedRows, row: Row) -> None:
    """As TopicBuffer.add."""
    buffered.place(row.partition, row.headers)
    buffered.values.append(row.value)
    buffered.keys.append(row.key)
    buffered.timestamps.append(row.timestamp)
    buffered.futures.append(row.future)


BYTES = st.none() | st.binary(max_size=3)
HEADERS = st.lists(st.tuples(st.text(max_size=2), BYTES), max_size=2)
ROWS = st.builds(
    Row,
    BYTES,
    BYTES,
    st.none() | st.integers(0, 5),
    st.integers(0, 2**62),
    st.just(()) | HEADERS,
    st.builds(future),
)
PLAIN_ROWS = st.builds(lambda value: Row(value, None, None, 1, (), future()), BYTES)


class BufferedRowsModel(RuleBasedStateMachine):
    """All that TopicBuffer and RecordBuffer do with rows, on a BufferedRows and on a list."""

    def __init__(self) -> None:
        super().__init__()
        self.buffered, self.rows = BufferedRows(), list[Row]()

    @rule(rows=st.lists(ROWS | PLAIN_ROWS, max_size=4))
    def rows_are_added(self, rows: list[Row]) -> None:
        for row in rows:
            add(self.buffered, row)
        self.rows += rows

    @rule(rows=st.lists(ROWS | PLAIN_ROWS, max_size=4))
    def rows_are_put_back_in_front(self, rows: list[Row]) -> None:
        earlier = BufferedRows()
        for row in rows:
            add(earlier, row)
        earlier.extend(self.buffered)
        self.buffered, self.rows = earlier, rows + self.rows

    @rule(data=st.data())
    def a_part_is_taken(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(self.rows)))
        stop = data.draw(st.integers(start, len(self.rows) + 1))
        self.buffered, self.rows = self.buffered.slice(start, min(stop, len(self.rows))), self.rows[start:stop]

    @rule(data=st.data())
    def some_rows_get_into_a_batch_and_some_fail(self, data: st.DataObject) -> None:
        ends = data.draw(st.lists(st.sampled_from(["batch", "fails", "stays"]), min_size=len(self.rows), max_size=len(self.rows)))
        for row, end in zip(self.rows, ends, strict=True):
            if end == "batch":
                ProduceResult("t", 0).attach(RecordThunk([row.future], callbacks=False), 0)
            elif end == "fails":
                row.future.fail(RecordError("no"))
        self.buffered = self.buffered.pending()
        self.rows = [row for row, end in zip(self.rows, ends, strict=True) if end == "stays"]

    @rule(data=st.data())
    def the_partitioner_has_chosen_and_all_find_no_memory(self, data: st.DataObject) -> None:
        count = len(self.rows)
        chosen = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
        self.buffered.keep_partitions(np.array(chosen, np.int32))
        self.buffered = self.buffered.pending()
        self.rows = [row._replace(partition=partition) for row, partition in zip(self.rows, chosen, strict=True)]

    @rule(data=st.data(), row=ROWS)
    def an_interrupt_leaves_half_of_a_row(self, data: st.DataObject, row: Row) -> None:
        buffered = self.buffered
        steps: list[Callable[[], None]] = [
            lambda: buffered.place(row.partition, row.headers),
            lambda: buffered.values.append(row.value),
            lambda: buffered.keys.append(row.key),
            lambda: buffered.timestamps.append(row.timestamp),
        ]
        for step in steps[: data.draw(st.integers(0, len(steps)))]:
            step()
        buffered.cut(len(buffered.futures))

    @invariant()
    def the_columns_are_those_of_the_rows(self) -> None:
        rows = self.rows
        assert len(self.buffered) == len(rows)
        assert self.buffered.futures == [row.future for row in rows]
        columns = self.buffered.columns()
        count = len(rows)
        assert columns.num_records == count
        assert columns.value is not None
        assert columns.value.to_pylist() == [row.value for row in rows]
        assert ([None] * count if columns.key is None else columns.key.to_pylist()) == [row.key for row in rows]
        assert columns.timestamp is not None
        assert columns.timestamp.tolist() == [row.timestamp for row in rows]
        partitions = np.full(count, NO_PARTITION) if columns.partition is None else columns.partition
        assert partitions.tolist() == [NO_PARTITION if row.partition is None else row.partition for row in rows]
        found = [()] * count if columns.headers is None else columns.headers.to_pylist()
        assert [[(h["key"], h["value"]) for h in headers] for headers in found] == [list(row.headers) for row in rows]


TestBufferedRowsModel = BufferedRowsModel.TestCase
TestBufferedRowsModel.settings = settings(max_examples=examples(150), stateful_step_count=15, deadline=None, print_blob=True)


def test_rows_that_are_put_back_are_as_old_as_the_first_of_them_and_have_the_size_of_all() -> None:
    earlier, later = BufferedRows(), BufferedRows()
    earlier.since_ms, later.since_ms = 100, 200
    for buffered in (earlier, later):
        add(buffered, Row(b"12345", b"12", None, 1, (), future()))
    part = earlier.slice(0, 1)
    size = part.size
    part.extend(later)
    assert (part.since_ms, part.size) == (100, 2 * size)
    empty = BufferedRows()
    empty.extend(later)
    assert empty.since_ms == 200


def test_a_callback_is_not_forgotten_when_rows_are_put_together() -> None:
    with_one, without = BufferedRows(), BufferedRows()
    with_one.callbacks = True
    add(with_one, Row(b"", None, None, 1, (), future()))
    without.extend(with_one)
    assert without.callbacks
    assert with_one.slice(0, 1).callbacks
