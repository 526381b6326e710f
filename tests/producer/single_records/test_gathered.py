"""Rows in columns, against a plain list of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spark_kafka_sink.errors import KafkaSinkError, RecordError
from spark_kafka_sink.producer.accumulator.produce_result import ProduceResult
from spark_kafka_sink.producer.producer_record import Headers, RecordMetadata
from spark_kafka_sink.producer.single_records.gathered import Gathered
from spark_kafka_sink.producer.single_records.record_future import RecordFuture, RecordThunk
from spark_kafka_sink.records.columns import NO_PARTITION
from tests.producer.told import Told, future

pytestmark = pytest.mark.slow


class Row(NamedTuple):
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp: int
    headers: Headers
    future: RecordFuture


def add(gathered: Gathered, row: Row) -> None:
    """As RecordGatherer.add."""
    gathered.place(row.partition, row.headers)
    gathered.values.append(row.value)
    gathered.keys.append(row.key)
    gathered.timestamps.append(row.timestamp)
    gathered.futures.append(row.future)


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


class GatheredModel(RuleBasedStateMachine):
    """All that RecordGatherer and GatheredRecords do with rows, on a Gathered and on a list."""

    def __init__(self) -> None:
        super().__init__()
        self.gathered, self.rows = Gathered(), list[Row]()

    @rule(rows=st.lists(ROWS | PLAIN_ROWS, max_size=4))
    def rows_are_added(self, rows: list[Row]) -> None:
        for row in rows:
            add(self.gathered, row)
        self.rows += rows

    @rule(rows=st.lists(ROWS | PLAIN_ROWS, max_size=4))
    def rows_are_put_back_in_front(self, rows: list[Row]) -> None:
        earlier = Gathered()
        for row in rows:
            add(earlier, row)
        earlier.extend(self.gathered)
        self.gathered, self.rows = earlier, rows + self.rows

    @rule(data=st.data())
    def a_part_is_taken(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(self.rows)))
        stop = data.draw(st.integers(start, len(self.rows) + 1))
        self.gathered, self.rows = self.gathered.slice(start, min(stop, len(self.rows))), self.rows[start:stop]

    @rule(data=st.data())
    def some_rows_get_into_a_batch_and_some_fail(self, data: st.DataObject) -> None:
        ends = data.draw(st.lists(st.sampled_from(["batch", "fails", "stays"]), min_size=len(self.rows), max_size=len(self.rows)))
        for row, end in zip(self.rows, ends, strict=True):
            if end == "batch":
                ProduceResult("t", 0).attach(RecordThunk([row.future], callbacks=False), 0)
            elif end == "fails":
                row.future.fail(RecordError("no"))
        self.gathered = self.gathered.pending()
        self.rows = [row for row, end in zip(self.rows, ends, strict=True) if end == "stays"]

    @rule(data=st.data())
    def the_partitioner_has_chosen_and_all_find_no_memory(self, data: st.DataObject) -> None:
        count = len(self.rows)
        chosen = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
        self.gathered.choose(np.array(chosen, np.int32))
        self.gathered = self.gathered.pending()
        self.rows = [row._replace(partition=partition) for row, partition in zip(self.rows, chosen, strict=True)]

    @rule(data=st.data(), row=ROWS)
    def an_interrupt_leaves_half_of_a_row(self, data: st.DataObject, row: Row) -> None:
        gathered = self.gathered
        steps: list[Callable[[], None]] = [
            lambda: gathered.place(row.partition, row.headers),
            lambda: gathered.values.append(row.value),
            lambda: gathered.keys.append(row.key),
            lambda: gathered.timestamps.append(row.timestamp),
        ]
        for step in steps[: data.draw(st.integers(0, len(steps)))]:
            step()
        gathered.cut(len(gathered.futures))

    @invariant()
    def the_columns_are_those_of_the_rows(self) -> None:
        rows = self.rows
        assert len(self.gathered) == len(rows)
        assert self.gathered.futures == [row.future for row in rows]
        columns = self.gathered.columns()
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


TestGatheredModel = GatheredModel.TestCase
TestGatheredModel.settings = settings(max_examples=150, stateful_step_count=15, deadline=None, print_blob=True)


def test_rows_that_are_put_back_are_as_old_as_the_first_of_them_and_have_the_size_of_all() -> None:
    earlier, later = Gathered(), Gathered()
    earlier.since_ms, later.since_ms = 100, 200
    for gathered in (earlier, later):
        add(gathered, Row(b"12345", b"12", None, 1, (), future()))
    part = earlier.slice(0, 1)
    size = part.size
    part.extend(later)
    assert (part.since_ms, part.size) == (100, 2 * size)
    empty = Gathered()
    empty.extend(later)
    assert empty.since_ms == 200


def test_a_callback_is_not_forgotten_when_rows_are_put_together() -> None:
    with_one, without = Gathered(), Gathered()
    with_one.callbacks = True
    add(with_one, Row(b"", None, None, 1, (), future()))
    without.extend(with_one)
    assert without.callbacks
    assert with_one.slice(0, 1).callbacks


def test_an_interrupt_in_one_rows_callback_fails_those_behind_it_too() -> None:
    def interrupted(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
        raise KeyboardInterrupt

    told = Told()
    gathered = Gathered()
    for callback in (told.of(0), interrupted, told.of(2), told.of(3)):
        add(gathered, Row(b"", None, None, 1, (), future(callback)))
    with pytest.raises(KeyboardInterrupt):
        gathered.fail(RecordError("no"))
    assert told.records == [0, 2, 3]
    assert all(each.done() for each in gathered.futures)
