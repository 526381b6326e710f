"""Converts the Arrow RecordBatches that Spark passes to a task into RecordColumns per topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import RecordError, SerializationError
from spark_kafka_sink.options.option import topic_problem
from spark_kafka_sink.producer.serializers.arrays import BadRowError
from spark_kafka_sink.producer.serializers.json_serializer import json_texts
from spark_kafka_sink.records.arrow_arrays import array_of_numbers, filled_numbers, numbers, validity
from spark_kafka_sink.records.columns import NO_PARTITION, NO_TIMESTAMP, FixedHeaders, RecordColumns
from spark_kafka_sink.records.timestamps import in_ms, in_other_unit, time_problem
from spark_kafka_sink.spark.python_workers import row_name
from spark_kafka_sink.spark.schema import ColumnGroup, SinkSchema
from spark_kafka_sink.spark.trace_header import check_traceparents, traced

NEGATIVE = "negative"
NO_TOPIC = "is null, and the option topic is not set (set the option topic or filter the rows)"

_FALSE = array_of_numbers(np.zeros(1, np.bool_))[0]


class BatchRows(NamedTuple):
    """Which rows of the task the records of an Arrow batch are. The fields are those of `TopicRecords`."""

    rows: NDArray[np.intp] | None
    first_row: int

    def row_in_task(self, row: int) -> int:
        """Returns the number of a record's row in the task, from 0."""
        return self.first_row + (row if self.rows is None else int(self.rows[row]))


@dataclass(frozen=True, slots=True)
class TopicRecords:
    """One topic's records of an Arrow batch.

    rows: the position of each record in the batch; None: the whole batch, in order. first_row: the batch's first row in the task.
    is_most_of_batch: whether the records are at least half of the batch's bytes, so that keeping them keeps little else.
    """

    topic: str
    columns: RecordColumns
    rows: NDArray[np.intp] | None = None
    first_row: int = 0
    is_most_of_batch: bool = False

    @property
    def batch_rows(self) -> BatchRows:
        return BatchRows(self.rows, self.first_row)


def records_by_topic(
    batch: pa.RecordBatch,
    schema: SinkSchema,
    topic: str | None = None,
    *,
    first_row: int = 0,
    fixed_headers: FixedHeaders = (),
    rows: NDArray[np.intp] | None = None,
    timestamp_unit: str | None = None,
) -> Iterator[TopicRecords]:
    """Yields the batch's records topic by topic, in order within each topic. `topic` overrides the batch's topic column.

    Args:
        first_row: the number of the batch's first row in the task, for error messages; the task's rows are counted from 0.
        fixed_headers: headers that every record gets after its own.
        rows: the position of each row in Spark's batch, if bad rows were taken out of that. None: this is Spark's batch.
        timestamp_unit: as in RecordOptions.

    Raises before it yields:
        RecordError: a topic is null or not valid, a traceparent is not valid, or a partition or timestamp is negative, or a
            timestamp in another unit. The producer checks headers.
        SerializationError: a row of the columns in a `ColumnGroup` cannot be written as JSON.
    """
    if batch.num_rows == 0:
        return
    columns = RecordColumns(
        num_records=batch.num_rows,
        value=value_of(batch, schema, first_row),
        key=key_of(batch, schema, first_row),
        headers=headers_of(batch, schema, fixed_headers, first_row),
        timestamp=_timestamps(column_at(batch, schema.timestamp), timestamp_unit, first_row),
        partition=_partitions(column_at(batch, schema.partition), first_row),
        fixed_headers=fixed_headers,
    )
    is_most = 2 * columns.nbytes >= batch.nbytes
    if topic is None:
        yield from _split(columns, column_at(batch, schema.topic), first_row, rows, is_most=is_most)
    else:
        yield TopicRecords(topic, columns, rows, first_row, is_most)


def column_at(batch: pa.RecordBatch, index: int | None) -> pa.Array | None:
    """Returns the column at `index`, or None if it does not exist or is void (null in every row)."""
    if index is None or pa.types.is_null(batch.column(index).type):
        return None
    return batch.column(index)


def key_of(batch: pa.RecordBatch, schema: SinkSchema, first_row: int = 0) -> pa.Array | None:
    """Returns the keys. Raises SerializationError for a row of JSON, as `records_by_topic`."""
    return _part(batch, schema.key, "key", first_row)


def value_of(batch: pa.RecordBatch, schema: SinkSchema, first_row: int = 0) -> pa.Array | None:
    """Returns the values, with tombstones. Raises as `key_of`."""
    deleted = column_at(batch, schema.tombstone)
    if deleted is None:
        return _part(batch, schema.value, "value", first_row)
    # This comes before JSON, because a deleted row may hold values that JSON cannot. Null counts as false, as in SQL's IF.
    return _part(batch, schema.value, "value", first_row, deleted.fill_null(_FALSE) if deleted.null_count else deleted)


def headers_of(batch: pa.RecordBatch, schema: SinkSchema, fixed_headers: FixedHeaders, first_row: int = 0) -> pa.Array | None:
    """Returns the headers of each row, with its traceparent. Raises RecordError for one that is not valid."""
    headers = column_at(batch, schema.headers)
    if schema.traceparent is None and (headers is None or not fixed_headers):
        return headers
    traceparents = column_at(batch, schema.traceparent)
    check_traceparents(traceparents, first_row)
    return traced(headers, traceparents, fixed_headers)


def _part(
    batch: pa.RecordBatch, place: int | ColumnGroup | None, part: str, first_row: int, to_null: pa.Array | None = None
) -> pa.Array | None:
    """Returns the key or value column. to_null: true for rows that become null."""
    if isinstance(place, ColumnGroup):
        return _group(batch, place, part, first_row, to_null)
    column = column_at(batch, place)
    return column if column is None or to_null is None else pc.if_else(to_null, pa.nulls(1, column.type)[0], column)


def _group(batch: pa.RecordBatch, group: ColumnGroup, part: str, first_row: int, to_null: pa.Array | None) -> pa.Array:
    column = pa.StructArray.from_arrays([batch.column(place) for place in group.places], names=group.names, mask=to_null)
    if not group.as_json:
        return column
    try:
        return json_texts(column)
    except BadRowError as bad:
        row = first_row + bad.row
        raise SerializationError(f"option {part}.columns: {bad}, in {row_name(row)}", part=part, row=row) from None


def _partitions(column: pa.Array | None, first_row: int) -> NDArray[np.int32] | None:
    """Returns the column's numbers, with NO_PARTITION for nulls."""
    if column is None:
        return None
    values: NDArray[np.int32] = filled_numbers(column, np.int32, NO_PARTITION)
    if (row := next(iter(negative_rows(values, column)), None)) is not None:
        raise _bad_row("partition", f"{values[row]} is {NEGATIVE}", first_row + row)
    return values


def _timestamps(column: pa.Array | None, unit: str | None, first_row: int) -> NDArray[np.int64] | None:
    if column is None:
        return None
    times = milliseconds(column, unit)
    if len(bad := bad_times(times, column, unit)):
        raise _bad_row("timestamp", time_problem(int(times[bad[0]])), first_row + int(bad[0]))
    return times


def milliseconds(column: pa.Array, unit: str | None) -> NDArray[np.int64]:
    """Returns ms since the epoch, rounded down, with NO_TIMESTAMP for nulls. unit: of a bigint; a timestamp is in us."""
    values: NDArray[np.int64] = filled_numbers(column, np.int64, NO_TIMESTAMP)
    return in_ms(values, "us" if pa.types.is_timestamp(column.type) else unit or "ms")


def bad_times(times: NDArray[np.int64], column: pa.Array, unit: str | None) -> Sequence[int]:
    """Returns the rows of a column whose time, in ms, is before 1970, or in another unit than ms if no unit is given."""
    negative = negative_rows(times, column)
    if unit is not None or pa.types.is_timestamp(column.type):
        return negative
    other = in_other_unit(times)
    return negative if other is None else sorted({*negative, *np.flatnonzero(other).tolist()})


def negative_rows(values: NDArray[Any], column: pa.Array) -> Sequence[int]:
    """Returns the rows that hold a negative number, and not null."""
    if values.min(initial=0) >= 0:
        return ()
    rows: list[int] = np.flatnonzero((values < 0) & validity(column)).tolist()
    return rows


def _split(
    columns: RecordColumns, topics: pa.Array | None, first_row: int, rows: NDArray[np.intp] | None, *, is_most: bool
) -> Iterator[TopicRecords]:
    if topics is None or topics.null_count:
        row = 0 if topics is None else topics.is_null().index(True).as_py()
        raise _bad_row("topic", NO_TOPIC, first_row + row)
    encoded = topics.dictionary_encode()
    names = _topic_names(encoded, first_row)
    if len(names) == 1:
        yield TopicRecords(names[0], columns, rows, first_row, is_most)
        return
    # Small integers: numpy sorts them by radix.
    codes = numbers(encoded.indices, np.int32).astype(np.min_scalar_type(len(names)))
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names))).tolist()
    sorted_columns = _take(columns, order)
    for name, start, end in zip(names, [0, *ends], ends, strict=False):
        places = order[start:end] if rows is None else rows[order[start:end]]
        yield TopicRecords(name, sorted_columns.slice(start, end - start), places, first_row)


def _topic_names(encoded: pa.DictionaryArray, first_row: int) -> list[str]:
    """Returns each topic once. An error names the first row with an invalid topic."""
    names: list[str] = topic_texts(encoded.dictionary)  # type: ignore[assignment]  # no null is in a dictionary
    for code, name in enumerate(names):
        if (problem := topic_problem(name)) is not None:
            raise _bad_row("topic", problem, first_row + int(np.argmax(numbers(encoded.indices, np.int32) == code)))
    return names


def topic_texts(topics: pa.Array) -> list[str | None]:
    """Returns a column of topics as text. Spark's CAST(binary AS STRING) accepts bytes that are not UTF-8."""
    names = topics.cast(pa.large_binary()).to_pylist()
    return [None if name is None else name.decode(errors="backslashreplace") for name in names]


def _take(columns: RecordColumns, order: NDArray[np.intp]) -> RecordColumns:
    indices = array_of_numbers(order)
    return RecordColumns(
        num_records=columns.num_records,
        value=None if columns.value is None else columns.value.take(indices),
        key=None if columns.key is None else columns.key.take(indices),
        headers=None if columns.headers is None else columns.headers.take(indices),
        timestamp=None if columns.timestamp is None else columns.timestamp[order],
        partition=None if columns.partition is None else columns.partition[order],
        fixed_headers=columns.fixed_headers,
    )


def _bad_row(column: str, problem: str, row: int) -> RecordError:
    return RecordError(f"column {column}: {problem}, in {row_name(row)}", column=column, row=row)
