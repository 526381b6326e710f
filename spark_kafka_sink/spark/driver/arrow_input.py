"""Rows for `publish` that come from other libraries than Spark, as streams of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.spark.schema import SinkSchema

_ROWS: Final = 10_000
"""Rows of a batch, as spark.sql.execution.arrow.maxRecordsPerBatch has them: a column of Polars is one piece of any length."""

_WIDER: Final = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}


class SupportsArrowStream(Protocol):
    """Data that Arrow's PyCapsule interface reads: of pyarrow, Polars, pandas, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowInput:
    """A stream of Arrow batches, with the types that Spark's batches have. It can be read once, by one thread.

    Attributes:
        schema: The columns, with Spark's types. NullType stands for a type that Spark lacks.
    """

    def __init__(self, data: SupportsArrowStream) -> None:
        self._reader = pa.RecordBatchReader.from_stream(data)
        self._kinds = [_kind(field.type) for field in self._reader.schema]
        self._missing: dict[int, SchemaError] = {}
        fields = [self._field(place, field) for place, field in enumerate(self._reader.schema)]
        self.schema = t.StructType(fields)

    def _field(self, place: int, field: pa.Field[Any]) -> t.StructField:
        try:
            kind = from_arrow_type(self._kinds[place], prefer_timestamp_ntz=True)
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
        """Yields the rows, with only the columns at `columns.places()`, in that order."""
        places = columns.places()
        kinds = [self._kinds[place] for place in places]
        names = [self._reader.schema.names[place] for place in places]
        for batch in self._reader:
            for first in range(0, batch.num_rows, _ROWS):
                part = batch.slice(first, _ROWS)
                arrays = [_cast(part.column(place), kind) for place, kind in zip(places, kinds, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names)


def _cast(array: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    if isinstance(array, pa.DictionaryArray):  # Polars' categories are string views, which Arrow does not decode by itself
        return _cast(array.dictionary, kind).take(array.indices)
    return array.cast(kind, safe=False)  # only units of time lose something: Spark's are microseconds


def _kind(kind: pa.DataType) -> pa.DataType:
    """Returns the type that Spark's batches have for such values, or the same if there is none."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
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
