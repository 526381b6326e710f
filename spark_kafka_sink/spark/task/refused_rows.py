"""Rows of a task that are not delivered, with what their dead letters need. They come from the task's own checks, which split
them off their Arrow batch, from the producer, and from brokers. The good path never comes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.errors import KafkaSinkError, RecordError, SerializationError
from spark_kafka_sink.options.option import topic_problem
from spark_kafka_sink.options.record_options import NOT_VALID, TRACEPARENT
from spark_kafka_sink.producer.base.bad_rows import BadRow, BadRows, RowNumbers, good_pieces
from spark_kafka_sink.producer.serializers.arrays import BadRowError
from spark_kafka_sink.producer.serializers.json_serializer import json_texts
from spark_kafka_sink.records.arrow_arrays import array_of_numbers, filled_numbers, numbers, validity
from spark_kafka_sink.records.columns import NO_PARTITION, FixedHeaders, RecordColumns
from spark_kafka_sink.records.timestamps import time_problem
from spark_kafka_sink.spark.python_workers import row_name
from spark_kafka_sink.spark.schema import ColumnGroup, SinkSchema
from spark_kafka_sink.spark.task.columns import (
    NEGATIVE,
    NO_TOPIC,
    bad_times,
    column_at,
    key_of,
    milliseconds,
    negative_rows,
    topic_texts,
    value_of,
)
from spark_kafka_sink.spark.trace_header import bad_traceparents, traced, without_bad

_ROW: Final = re.compile(r"\brow (\d{1,18})\b(?: of \d+\b)?")  # one pattern: a new one takes 100 us to compile


@dataclass(frozen=True, slots=True, eq=False)
class RefusedRows:
    """Rows that were not delivered.

    Attributes:
        columns: the rows, as the task had them. Timestamps and partitions may be invalid.
        topics: the topic of each row; None: null.
        errors: the reason of each row.
        rows: the number of each row in the task, from 0; None: unknown.
        partition: the partition of the broker that rejected them, or -1.
        formats: by `key` and `value`, how the bytes of each row were made, if they are not the row's own.
        is_sent: whether a broker rejected them, so that the columns are as they were sent.
    """

    columns: RecordColumns
    topics: Sequence[str | None]
    errors: Sequence[KafkaSinkError]
    rows: Sequence[int] | None
    partition: int = NO_PARTITION
    formats: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_sent: bool = False

    @classmethod
    def of(cls, bad: BadRows, rows_in_task: RowNumbers | None = None) -> RefusedRows:
        """Returns rows that the producer passes on.

        rows_in_task: returns the task's rows of rows of the append. None: a broker rejected the rows, which have these numbers
            already.
        """
        count, rows = bad.columns.num_records, bad.rows
        if rows is not None and rows_in_task is not None:
            rows = rows_in_task(rows)
        known = None if rows is None else rows.tolist()
        return cls(bad.columns, [bad.topic] * count, [bad.error] * count, known, bad.partition, is_sent=rows_in_task is None)

    def message(self, row: int) -> str:
        """Returns the error's text of one of these rows. It names the row of the task, and not that of an append."""
        error = self.errors[row]
        named = error.facts.get("row")
        if self.rows is None or not isinstance(named, int):
            return error.message
        found = row_name(self.rows[row])
        return _ROW.sub(lambda match: found if int(match[1]) == named else match[0], error.message, count=1)

    def in_task(self, first_row: int) -> RefusedRows:
        """Returns the same rows, of which `rows` are positions in a batch. first_row: the number of its first row in the task."""
        return replace(self, rows=None if self.rows is None else [first_row + row for row in self.rows])


# Split off an Arrow batch, after a check of the whole batch has found a bad row


P = TypeVar("P", int | ColumnGroup, int | ColumnGroup | None)


class SplitBatch(NamedTuple):
    """The good rows of a batch and the others. rows: the position of each good row in the batch."""

    batch: pa.RecordBatch
    rows: NDArray[np.intp]
    refused: RefusedRows


def split_batch(
    batch: pa.RecordBatch,
    schema: SinkSchema,
    topic: str | None,
    *,
    first_row: int = 0,
    fixed_headers: FixedHeaders = (),
    rows: NDArray[np.intp] | None = None,
    timestamp_unit: str | None = None,
    known: Mapping[int, KafkaSinkError] = MappingProxyType({}),
) -> SplitBatch:
    """Splits off the rows that `columns.records_by_topic` would refuse.

    A row gets the error of its first check, so its reason depends on the row alone, and not on how rows are split into batches.

    Args:
        topic: the option `topic`; None: the topic column counts.
        first_row: the number of the batch's first row in the task.
        fixed_headers: headers that every record has.
        rows: the position of each row among those that Spark passed, if some were taken out before.
        timestamp_unit: as in RecordOptions.
        known: errors of rows that have failed an earlier check.
    """
    raw = replace(schema, value=_as_struct(schema.value), key=_as_struct(schema.key))
    errors = dict(known)
    for row, error in _errors(batch, schema, raw, topic, timestamp_unit):
        errors.setdefault(row, error)
    is_bad = np.zeros(batch.num_rows, np.bool_)
    is_bad[list(errors)] = True
    bad, good = np.flatnonzero(is_bad), np.flatnonzero(~is_bad)
    part = batch.filter(array_of_numbers(is_bad))
    places = bad if rows is None else rows[bad]
    refused = RefusedRows(
        RecordColumns(
            num_records=len(bad),
            value=value_of(part, raw),
            key=key_of(part, raw),
            headers=traced(column_at(part, schema.headers), without_bad(column_at(part, schema.traceparent)), fixed_headers),
            timestamp=_timestamps(part, schema, timestamp_unit),
            partition=_partitions(part, schema),
            fixed_headers=fixed_headers,
        ),
        [topic] * len(bad) if topic is not None else _topics(part, schema),
        [errors[int(row)] for row in bad],
        [first_row + int(place) for place in places],
    )
    return SplitBatch(batch.filter(array_of_numbers(~is_bad)), good if rows is None else rows[good], refused)


def _as_struct(place: P) -> P:
    return replace(place, as_json=False) if isinstance(place, ColumnGroup) else place


def _errors(
    batch: pa.RecordBatch, schema: SinkSchema, raw: SinkSchema, topic: str | None, timestamp_unit: str | None
) -> Iterator[tuple[int, KafkaSinkError]]:
    """Yields each bad row with its error, check by check, in the order of `records_by_topic`."""
    for part, place, of in (("value", schema.value, value_of), ("key", schema.key, key_of)):
        if isinstance(place, ColumnGroup) and place.as_json:
            yield from _json_errors(part, of(batch, raw))
    timestamps = _timestamps(batch, schema, timestamp_unit)
    if timestamps is not None:
        for row in bad_times(timestamps, batch.column(schema.timestamp), timestamp_unit):
            yield row, _error("timestamp", time_problem(int(timestamps[row])))
    partitions = _partitions(batch, schema)
    if partitions is not None:
        for row in negative_rows(partitions, batch.column(schema.partition)):
            yield row, _error("partition", f"{partitions[row]} is {NEGATIVE}")
    for row in bad_traceparents(column_at(batch, schema.traceparent)).tolist():
        yield row, _error(TRACEPARENT, f"the value {NOT_VALID}")
    if topic is None:
        yield from _topic_errors(batch, schema)


def _json_errors(part: str, column: pa.Array | None) -> Iterator[tuple[int, KafkaSinkError]]:
    if column is None:
        return

    def attempt(start: int, stop: int) -> None:
        try:
            json_texts(column.slice(start, stop - start))
        except BadRowError as bad:
            raise SerializationError(f"option {part}.columns: {bad}", part=part, row=bad.row) from None

    for found in good_pieces(len(column), attempt):
        if isinstance(found, BadRow):
            yield found.row, found.error


def _topic_errors(batch: pa.RecordBatch, schema: SinkSchema) -> Iterator[tuple[int, KafkaSinkError]]:
    column = column_at(batch, schema.topic)
    if column is None:
        yield from ((row, _error("topic", NO_TOPIC)) for row in range(batch.num_rows))
        return
    present = validity(column)
    yield from ((row, _error("topic", NO_TOPIC)) for row in np.flatnonzero(~present).tolist())
    encoded = column.dictionary_encode()
    codes = numbers(encoded.indices, np.int32)
    for code, name in enumerate(topic_texts(encoded.dictionary)):
        assert name is not None
        if (problem := topic_problem(name)) is not None:
            yield from ((row, _error("topic", problem)) for row in np.flatnonzero((codes == code) & present).tolist())


def _topics(batch: pa.RecordBatch, schema: SinkSchema) -> list[str | None]:
    column = column_at(batch, schema.topic)
    return [None] * batch.num_rows if column is None else topic_texts(column)


def _timestamps(batch: pa.RecordBatch, schema: SinkSchema, unit: str | None) -> NDArray[np.int64] | None:
    """Returns ms since the epoch as they are, with NO_TIMESTAMP for null."""
    column = column_at(batch, schema.timestamp)
    return None if column is None else milliseconds(column, unit)


def _partitions(batch: pa.RecordBatch, schema: SinkSchema) -> NDArray[np.int32] | None:
    column = column_at(batch, schema.partition)
    return None if column is None else filled_numbers(column, np.int32, NO_PARTITION)


def _error(column: str, problem: str) -> RecordError:
    return RecordError(f"column {column}: {problem}", column=column)
