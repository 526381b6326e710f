"""Rows for `publish` that come from other libraries than Spark, as streams of Arrow batches."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type

from spark_kafka_sink.errors import RecordError, SchemaError, UsageError
from spark_kafka_sink.spark.schema import SinkSchema

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

    Attributes:
        schema: The columns, with Spark's types. NullType stands for a type that Spark lacks.
    """

    def __init__(self, data: SupportsArrowStream) -> None:
        """Raises UsageError for a reader that was read from, and SchemaError for data that is no table."""
        if any(str(kind) == "Object" for kind in _types_of_polars(data)):
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

    def check(self, columns: SinkSchema) -> None:
        """Raises SchemaError if a column that is written has a type that Spark lacks."""
        for place in columns.places():
            if place in self._missing:
                raise self._missing[place]

    def batches(self, columns: SinkSchema) -> Iterator[pa.RecordBatch]:
        """Yields the rows, with only the columns at `columns.places()`, in that order. Raises RecordError for a value too far."""
        places = columns.places()
        names = [self._reader.schema.names[place] for place in places]
        _begun.add(self._reader)
        for batch in self._reader:
            for first in range(0, batch.num_rows, _ROWS):
                part = batch.slice(first, _ROWS)
                yield pa.RecordBatch.from_arrays([self._cast(part, place) for place in places], names)

    def _cast(self, part: pa.RecordBatch, place: int) -> pa.Array[Any]:
        array, field = part.column(place), self._reader.schema[place]
        try:
            # Of Polars' categories, which are string views, Arrow decodes only those that it has cast to strings before.
            for kind in (_kind(field.type, decodes=False), self._kinds[place]):
                # Spark's times are microseconds. Anything else that would be lost is an error.
                array = array.cast(options=pc.CastOptions(kind, allow_time_truncate=True))
        except pa.ArrowInvalid as error:
            name = field.name
            raise RecordError(f"column {name}: a value is out of range of {self._kinds[place]} ({error})", column=name) from None
        return array


def _types_of_polars(data: object) -> Iterable[object]:
    schema = getattr(data, "schema", None)
    return schema.values() if isinstance(schema, Mapping) else ()


def _kind(kind: pa.DataType, *, decodes: bool = True) -> pa.DataType:
    """Returns the type that Spark's batches have for such values, or the same if there is none.

    decodes: whether a dictionary becomes its values.
    """
    of = partial(_kind, decodes=decodes)
    if pa.types.is_dictionary(kind):
        return of(kind.value_type) if decodes else pa.dictionary(kind.index_type, of(kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, of(each.type), each.nullable) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(of(kind.key_type), of(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(of(kind.value_type))
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
