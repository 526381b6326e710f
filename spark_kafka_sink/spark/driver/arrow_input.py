"""Rows for `publish` that come from other libraries than Spark, as streams of Arrow batches."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type

from spark_kafka_sink.errors import KafkaSinkError, RecordError, SchemaError, SerializationError, UsageError
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.spark.driver.metrics import DRIVER, DeliveryMetrics
from spark_kafka_sink.spark.driver.views.progress_bar import CallProgress
from spark_kafka_sink.spark.feed import CountsHere, Feed
from spark_kafka_sink.spark.plugin_checks import looked_at
from spark_kafka_sink.spark.python_workers import row_name
from spark_kafka_sink.spark.schema import SinkSchema, sink_schema

if TYPE_CHECKING:
    from spark_kafka_sink.spark.driver.publish import ArrowTask
    from spark_kafka_sink.spark.task.refused_rows import SplitBatch

_ROWS: Final = 10_000
"""Rows of a batch, as spark.sql.execution.arrow.maxRecordsPerBatch has them: a column of Polars is one piece of any length."""

_WIDER: Final = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}


class SupportsArrowStream(Protocol):
    """Data that Arrow's PyCapsule interface reads: of pyarrow, Polars, pandas, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


# Which have been read from. A stream can be read once, and a second call would find only what is left of it.
_begun: Final = weakref.WeakSet[pa.RecordBatchReader]()


class ArrowInput:
    """A stream of Arrow batches, with the types that Spark's batches have. It can be read once, by one thread.

    Attributes that are not here are those of `SparkInput`.

    Attributes:
        schema: The columns, with Spark's types. NullType stands for a type that Spark lacks.
    """

    who: Final = "this process"
    tasks_may_run: Final = False
    asks_kafka: Final = True

    def __init__(self, data: SupportsArrowStream) -> None:
        """Raises UsageError for a reader that was read from, and SchemaError for data that is no table."""
        polars = getattr(data, "schema", None)
        if isinstance(polars, Mapping) and any(str(kind) == "Object" for kind in polars.values()):
            raise SchemaError("a column has Polars' type Object, whose values are addresses in memory; cast it, or drop it")
        try:
            # Through Arrow's C interface, an error or interrupt of a reader's own Python code would lose its type.
            reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            text = f"the data cannot be read as a table of Arrow: {error}; cast or drop columns of such types, or use a DataFrame"
            raise SchemaError(text) from None
        if reader in _begun:
            raise UsageError("the reader was read from before, so rows are missing in it; make a new one for each publish()")
        self._reader = reader
        self._kinds = [
            pa.int32() if field.name.lower() == "partition" and pa.types.is_integer(field.type) else _kind(field.type)
            for field in reader.schema
        ]
        self._decodable = [_decodable(field.type) for field in reader.schema]
        self._missing: dict[int, SchemaError] = {}
        fields = [self._field(place, field) for place, field in enumerate(reader.schema)]
        self.schema = t.StructType(fields)

    def _field(self, place: int, field: pa.Field[Any]) -> t.StructField:
        try:
            kind = from_arrow_type(self._kinds[place], prefer_timestamp_ntz=True)
            if isinstance(kind, t.DecimalType) and kind.precision > 38:
                raise ValueError
        except Exception:  # PySpark's own, whose text names a type and no column
            text = f"column {field.name}: is {field.type}, which Spark has no type for; cast it, such as to a string"
            self._missing[place] = SchemaError(text, column=field.name)
            kind = t.NullType()
        return t.StructField(field.name, kind)

    def columns(self, options: SinkOptions) -> SinkSchema:
        """Returns the record's columns. Raises SchemaError if one that is written has a type that Spark lacks."""
        with looked_at(options.producer) as serializers:
            columns = sink_schema(self.schema, options.topic, serializers, record=options.record, formats=options.formats)
        for place in columns.places():
            if place in self._missing:
                raise self._missing[place]
        return columns

    def followed(self, metrics: DeliveryMetrics | None, progress: bool | None) -> AbstractContextManager[CallProgress]:
        """Returns a block whose rows are counted when the task ends, also if it fails. It draws no bar."""
        feed = Feed(driver=DRIVER) if metrics is None else metrics.feed
        return nullcontext(CallProgress(replace(feed, finished=CountsHere()), None))

    def cancelled_if_interrupted(self) -> AbstractContextManager[None]:
        """Returns a block that does nothing: the interrupt ends the task."""
        return nullcontext()

    def run(self, task: ArrowTask, columns: SinkSchema) -> Sequence[tuple[Any, ...]]:
        """Runs the task over all rows, in this thread. Returns what it returned, as from Spark partition 0."""
        result = next(task.run(self.batches(columns, task.options))).drop_columns("spark_partition")
        return [(0, *(column[0].as_py() for column in result.columns))]

    def batches(self, columns: SinkSchema, options: SinkOptions) -> Iterator[pa.RecordBatch | SplitBatch]:
        """Yields the rows, with only the columns at `columns.places()`, in that order.

        A row with a value that Spark's type cannot hold is split off if the options tolerate bad rows. Otherwise it raises
        RecordError, or SerializationError if the value is a part of a key or value.
        """
        places = columns.places()
        names = [self._reader.schema.names[place] for place in places]
        _begun.add(self._reader)
        rows = 0
        for batch in self._reader:
            # A dictionary is cast here, because each part of the rows has all of it.
            arrays = [_cast(batch.column(place), self._decodable[place]) for place in places]
            for first in range(0, batch.num_rows, _ROWS):
                bad: dict[int, _BadValue] = {}
                fitting = [
                    self._fitting(array[first : first + _ROWS], place, 0, bad)
                    for array, place in zip(arrays, places, strict=True)
                ]
                part = pa.RecordBatch.from_arrays(fitting, names)
                if bad and not options.errors.tolerates:
                    row = min(bad)
                    raise bad[row].error(columns, rows + row)
                rows += part.num_rows
                if not bad:
                    yield part
                    continue
                from spark_kafka_sink.spark.task.refused_rows import split_batch

                yield split_batch(
                    part,
                    columns.selected(),
                    options.topic,
                    fixed_headers=options.record.headers,
                    timestamp_unit=options.record.timestamp_unit,
                    known={row: each.error(columns) for row, each in bad.items()},
                )

    def _fitting(self, array: pa.Array[Any], place: int, first_row: int, bad: dict[int, _BadValue]) -> pa.Array[Any]:
        """Returns the values in Spark's type. One that does not fit is null, and goes into `bad` under its row."""
        kind = self._kinds[place]
        try:
            return _cast(array, kind)
        except pa.ArrowInvalid as error:
            if len(array) == 1:
                name = self._reader.schema.names[place]
                bad.setdefault(first_row, _BadValue(place, f"column {name}: a value is out of range of {kind} ({error})"))
                return pa.nulls(1, kind)
        half = len(array) // 2
        first, last = (
            self._fitting(array[:half], place, first_row, bad),
            self._fitting(array[half:], place, first_row + half, bad),
        )
        return pa.concat_arrays([first, last])


class _BadValue(NamedTuple):
    """A value that Spark's type cannot hold, in the column at `place`. text: says so."""

    place: int
    text: str

    def error(self, columns: SinkSchema, row: int | None = None) -> KafkaSinkError:
        """Returns the error of its row. row: the number of the row, if the error shall name it."""
        text, facts = (self.text, {}) if row is None else (f"{self.text}, in {row_name(row)}", {"row": row})
        for name in ("timestamp", "partition"):
            if self.place == getattr(columns, name):
                return RecordError(text, column=name, **facts)
        part = "value" if self.place in SinkSchema(columns.value).places() else "key"
        return SerializationError(text, part=part, **facts)


def _cast(array: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    if array.type == kind:
        return array
    if pa.types.is_nested(kind):  # Arrow casts the elements of all rows, also of those that a slice leaves out
        array = pa.concat_arrays([array, array[:0]])
    # Spark's times are microseconds. Anything else that would be lost is an error.
    return array.cast(options=pc.CastOptions(kind, allow_time_truncate=True))


def _decodable(kind: pa.DataType) -> pa.DataType:
    """Returns the type with plain strings in dictionaries. Arrow cannot decode those of string views, as Polars' categories."""
    if pa.types.is_dictionary(kind):
        plain = _kind(kind.value_type)
        is_text = pa.types.is_string(plain) or pa.types.is_binary(plain)
        return pa.dictionary(kind.index_type, plain, kind.ordered) if is_text else kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_decodable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_decodable(kind.key_type), _decodable(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_decodable(kind.value_type), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_decodable(kind.value_type))
    return pa.list_(_decodable(kind.value_type)) if pa.types.is_list(kind) else kind


def _kind(kind: pa.DataType) -> pa.DataType:
    """Returns the type that Spark's batches have for such values, or the same if there is none."""
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _kind(each.type), each.nullable) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_kind(kind.key_type), _kind(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_kind(kind.value_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_float16(kind):
        return pa.float32()
    return _WIDER.get(kind, kind)
