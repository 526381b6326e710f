"""`df.foreachPartition(partition_writer(options))`, for code with Row iterators. Rows are slower than columns.

This is the only place where Python handles single rows. It converts them to Arrow RecordBatches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import Row
from pyspark.sql.types import _infer_type

from spark_kafka_sink.errors import KafkaSinkError, OptionError, RecordError, SchemaError, SerializationError
from spark_kafka_sink.installation import SameVersion
from spark_kafka_sink.options.guarantee_options import GUARANTEE
from spark_kafka_sink.options.record_options import NAMED_COLUMNS, TOMBSTONE_COLUMN, TRACE_HEADER, RecordOptions, TraceHeader
from spark_kafka_sink.options.report_options import REPORT_TOPIC
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.producer.base.bad_rows import forget_frames
from spark_kafka_sink.producer.serializers.json_serializer import JsonSerializer
from spark_kafka_sink.producer.serializers.serialization import serialized_value
from spark_kafka_sink.producer.serializers.serializer import Serializer
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, array_of_numbers
from spark_kafka_sink.records.columns import FixedHeaders, RecordColumns
from spark_kafka_sink.spark.bad_row_limits import check_limits
from spark_kafka_sink.spark.column_types import RECORD_COLUMNS, cast_to_use
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.plan.first_contact import check_dead_letters, create_missing_topic
from spark_kafka_sink.spark.plugin_checks import checked_options, serializers_by_column
from spark_kafka_sink.spark.python_workers import active_context, check_workers_python, row_name
from spark_kafka_sink.spark.schema import FoundColumns, SinkSchema, columns_of_record
from spark_kafka_sink.spark.task.letter_text import part_of_value
from spark_kafka_sink.spark.task.refused_rows import RefusedRows, SplitBatch
from spark_kafka_sink.spark.task.row_values import (
    COLUMNS_OF_ROWS,
    CONVERSION_ERRORS,
    Values,
    are,
    array_of_values,
    given_numbers,
    problems_of,
    text_of,
    valid_part,
)
from spark_kafka_sink.spark.task.task import SchemaAndBatch, run_task

if TYPE_CHECKING:
    from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics

# Spark's own number of rows per Arrow batch, and few enough bytes that rows and columns fit in memory side by side.
CHUNK_ROWS = 10_000
CHUNK_BYTES = 8 * 1024 * 1024

_JSON = JsonSerializer()


@dataclass(frozen=True, slots=True)
class PartitionWriter(SameVersion):
    """Delivers the Rows of a partition. Spark pickles it and sends it to tasks."""

    options: SinkOptions
    feed: Feed

    def __call__(self, rows: Iterable[Row]) -> None:
        producer = self.options.producer
        serializers = serializers_by_column(producer)
        # Rows are serialized when they become columns, so the producer must not serialize them again.
        options = replace(self.options, producer=replace(producer, key_serializer=None, value_serializer=None))
        try:
            batches = batches_of_rows(rows, options.topic, serializers, options.record, splits_bad_rows=options.errors.tolerates)
            report, _ = run_task(batches, options, self.feed, serialized_before=frozenset(serializers))
            check_limits(options.errors, [report], is_visible=True)  # of this task alone: the driver gets no reports
        finally:
            for serializer in serializers.values():
                serializer.close()


def partition_writer(options: Mapping[str, object], metrics: DeliveryMetrics | None = None) -> PartitionWriter:
    """Returns a function for `foreachPartition` of a DataFrame. It handles Rows, which is slower than columns.

    The function needs no registration, so it works in any thread and session. Tasks raise SchemaError, RecordError and
    DeliveryError, which Spark wraps in its own error.

    Args:
        options: as for `format("kafka_sink")`.
        metrics: a result of `register`, whose `live` then counts the delivered records.

    Raises:
        OptionError: an option is not valid, or `delivery.guarantee` is exactly-once.
    """
    checked = checked_options(options)
    if checked.exactly_once is not None:
        raise _refused(GUARANTEE, "there is no commit on the driver", what="exactly-once")
    if checked.schemas is not None:
        raise _refused(f"{min(checked.formats)}.format", "rows do not show the types of a schema")
    if checked.record.trace.header is not TraceHeader.NONE:
        or_else = ", or put the header into the column headers"
        raise _refused(TRACE_HEADER, "it has neither batches nor spans", or_else=or_else)
    if checked.report_topic is not None:
        raise _refused(REPORT_TOPIC, "nothing commits a batch or a job")
    check_workers_python(active_context())
    create_missing_topic(checked)
    check_dead_letters(checked)
    return PartitionWriter(checked, metrics.feed if metrics else Feed())


def _refused(option: str, why: str, *, what: str = "it", or_else: str = "") -> OptionError:
    return OptionError(
        f"option {option}: partition_writer does not support {what}, because {why};"
        f" use publish(df, ...), foreach_batch or format('kafka_sink'){or_else}",
        option=option,
    )


def batches_of_rows(
    rows: Iterable[Row],
    topic_option: str | None,
    serializers: Mapping[str, Serializer] = MappingProxyType({}),
    record: RecordOptions = NAMED_COLUMNS,
    *,
    splits_bad_rows: bool = False,
) -> Iterator[SchemaAndBatch]:
    """Yields Arrow batches of at most CHUNK_ROWS rows and about CHUNK_BYTES of text and bytes.

    A Row holds Python values: str, bytes or bytearray; int; datetime, or int of ms since the epoch; a list of (key, value) for
    headers. A datetime without a time zone is local time, as Spark creates it from a timestamp column.

    Args:
        serializers: those of key and value that options set. The batches hold their bytes.
        splits_bad_rows: whether a row that cannot be sent is split off its batch. Otherwise it is an error.

    Raises:
        SchemaError: a row has no field names, a column is missing, or a value has another type.
        SerializationError: a serializer does not accept a value, or UTF-8 cannot hold a text; and bad rows are not split off.
        RecordError: a partition, timestamp, topic or header is not valid, as `problems_of` says; and bad rows are not split off.
    """
    first_row = 0
    for fields, chunk in _chunks(rows):
        found = columns_of_record(fields, topic_option, f"; the rows have {', '.join(fields)}", record)
        columns = _columns(chunk, fields, found, serializers)
        refused: dict[int, KafkaSinkError] | None = {} if splits_bad_rows else None
        context = _Context(topic_option, columns, record.headers, first_row, refused)
        names = [name for name in COLUMNS_OF_ROWS if name in columns]
        arrays = []
        for name in names:
            serializer = serializers.get(name, _JSON if name in found.listed else None)
            arrays.append(_array(name, context) if serializer is None else _serialized(name, serializer, context))
        first_row += len(chunk)
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        yield (
            SinkSchema(**{name: place for place, name in enumerate(names)}),
            _without(batch, refused, context) if refused else batch,
        )


def _columns(
    chunk: Sequence[Row], fields: Sequence[str], found: FoundColumns, serializers: Mapping[str, Serializer]
) -> dict[str, Values]:
    """Returns the values of each column of a record. Columns that an option lists are a Row; a serializer gets one as it is."""
    columns: dict[str, Values] = {name: [row[place] for row in chunk] for name, place in found.named.items()}
    for part, places in found.listed.items():
        if len(places) == 1 and part in serializers:
            columns[part] = [row[places[0]] for row in chunk]
        else:
            listed = Row(*(fields[place] for place in places))
            columns[part] = [listed(*(row[place] for place in places)) for row in chunk]
    if found.tombstone is not None:
        flags = [row[found.tombstone] for row in chunk]
        if not are(flags, bool):
            kinds = ", ".join(sorted({type(flag).__name__ for flag in flags if flag is not None}))
            name = fields[found.tombstone]
            raise SchemaError(f"option {TOMBSTONE_COLUMN}: column {name} holds {kinds}, must be boolean", column=name)
        columns["value"] = [None if deleted else value for value, deleted in zip(columns["value"], flags, strict=True)]
    return columns


def _chunks(rows: Iterable[Row]) -> Iterator[tuple[Sequence[str], list[Row]]]:
    """Yields chunks of rows with the same fields, in order."""
    fields: Sequence[str] = ()
    chunk: list[Row] = []
    size = 0
    for row in rows:
        its_fields: Sequence[str] | None = getattr(row, "__fields__", None)
        if its_fields is None:
            raise SchemaError(
                f"a row is a {type(row).__name__} without field names; use rows of a DataFrame, or Row(key=..., value=...)"
            )
        if chunk and (its_fields != fields or len(chunk) == CHUNK_ROWS or size >= CHUNK_BYTES):
            yield fields, chunk
            chunk, size = [], 0
        fields = its_fields
        chunk.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes | bytearray))
    if chunk:
        yield fields, chunk


@dataclass(frozen=True, slots=True)
class _Context:
    """Arguments of serializers for a chunk of rows.

    columns: the values of each column. first_row: its first row in the task. refused: gets the rows with a value that cannot be
    sent, with their errors; None: they raise.
    """

    topic_option: str | None
    columns: Mapping[str, Values]
    fixed_headers: FixedHeaders
    first_row: int
    refused: dict[int, KafkaSinkError] | None


def _array(name: str, context: _Context) -> pa.Array:
    values = context.columns[name]
    try:
        return array_of_values(name, values)
    except CONVERSION_ERRORS as error:
        cause = str(error)  # its frames hold the chunk
    problems = problems_of(name, values)
    for row, problem in problems.items():
        if context.refused is None:
            row_in_task = context.first_row + row
            raise _bad_value(name, f"{problem}, in {row_name(row_in_task)}", row=row_in_task) from None
        context.refused.setdefault(row, _bad_value(name, problem))
    try:
        if problems:
            return array_of_values(
                name, [valid_part(name, value) if row in problems else value for row, value in enumerate(values)]
            )
    except CONVERSION_ERRORS as error:
        cause = str(error)
    kinds = sorted({type(value).__name__ for value in values if value is not None})
    column = RECORD_COLUMNS[name]
    cast = _cast_to_use(name, next(value for value in values if value is not None))
    hint = "" if cast is None else f"; use {cast}"
    raise SchemaError(f"column {name}: holds {', '.join(kinds)}, must be {column.of_rows} ({cause}){hint}", column=name) from None


def _cast_to_use(name: str, value: object) -> str | None:
    """Returns the SQL that turns the DataFrame's column into a valid one, if a value tells its type. That of headers does not."""
    try:
        return None if name == "headers" else cast_to_use(name, _infer_type(value))
    except PySparkTypeError:
        return None


def _bad_value(name: str, problem: str, **facts: int) -> KafkaSinkError:
    if name in ("key", "value"):
        return SerializationError(f"column {name}: {problem}", part=name, **facts)
    return RecordError(f"column {name}: {problem}", column=name, **facts)


def _serialized(name: str, serializer: Serializer, context: _Context) -> pa.Array:
    values = context.columns[name]
    topics = [context.topic_option] * len(values) if context.topic_option is not None else context.columns["topic"]
    headers = context.columns.get("headers") or [None] * len(values)
    found = []
    for row, (value, topic, own) in enumerate(zip(values, topics, headers, strict=True)):
        seen = (*(own or ()), *context.fixed_headers) if context.fixed_headers and isinstance(own, list | tuple | None) else own
        try:
            found.append(serialized_value(serializer, name, topic or "", value, seen or ()))
        except SerializationError as error:
            if context.refused is None:
                raise SerializationError(f"{row_name(context.first_row + row)}: {error.message}", **error.facts) from error
            forget_frames(error)  # they hold the chunk
            context.refused.setdefault(row, error)
            found.append(None)
    return array_of_values(name, found)


def _without(batch: pa.RecordBatch, errors: Mapping[int, KafkaSinkError], context: _Context) -> SplitBatch:
    """Returns the batch without the rows that cannot be sent. These have the values of their Rows, as text if need be."""
    is_bad = np.zeros(batch.num_rows, np.bool_)
    is_bad[list(errors)] = True
    rows = np.flatnonzero(is_bad).tolist()
    columns = context.columns
    parts = {name: [part_of_value(columns[name][row]) for row in rows] for name in ("key", "value") if name in columns}
    numbers = {
        name: given_numbers(name, [columns[name][row] for row in rows]) for name in ("timestamp", "partition") if name in columns
    }
    refused = RefusedRows(
        RecordColumns(
            num_records=len(rows),
            value=array_of_bytes([data for data, _ in parts["value"]]),
            key=array_of_bytes([data for data, _ in parts["key"]]) if "key" in parts else None,
            headers=batch.column("headers").filter(array_of_numbers(is_bad)) if "headers" in columns else None,
            timestamp=numbers.get("timestamp"),
            partition=numbers.get("partition"),
            fixed_headers=context.fixed_headers,
        ),
        [context.topic_option] * len(rows)
        if context.topic_option is not None
        else [text_of(columns["topic"][row]) for row in rows],
        [errors[row] for row in rows],
        rows,
        formats={name: [form for _, form in found] for name, found in parts.items()},
    )
    return SplitBatch(batch.filter(array_of_numbers(~is_bad)), np.flatnonzero(~is_bad), refused)
