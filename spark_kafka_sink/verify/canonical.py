"""Columns as JSON in which equal values have equal texts, made by Spark on both sides of a comparison.

The source's columns come as they are, and the topic's from `conversion.py`. So neither Python nor a serializer of the sink
touches the source.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_kafka_sink.verify.schema_limits import ELEMENT, ITEM, MILLISECONDS, UUID, Path

WHOLE = "v"
"""The one field of the JSON's object, because to_json needs a struct."""


def canonical_json(column: Column, kind: t.DataType, limits: Mapping[Path, str]) -> Column:
    """Returns the JSON of a column of this type; null for null. limits: what schemas cannot hold."""
    text = F.to_json(F.struct(_canonical(column, kind, (), limits).alias(WHOLE)), {"ignoreNullFields": "false"})
    return F.when(column.isNotNull(), text)


def comparable(kind: t.DataType) -> t.DataType:
    """Returns a type that Spark accepts from Python and that JSON can hold, with null everywhere."""
    if isinstance(kind, t.StructType):
        return t.StructType([t.StructField(field.name, comparable(field.dataType)) for field in kind.fields])
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(comparable(kind.elementType))
    if isinstance(kind, t.MapType):
        return t.MapType(comparable(kind.keyType), comparable(kind.valueType))
    return t.StringType() if isinstance(kind, t.NullType | t.StringType) else kind


def _canonical(column: Column, kind: t.DataType, path: Path, limits: Mapping[Path, str]) -> Column:
    if isinstance(kind, t.StructType):
        fields = [_canonical(column.getField(one.name), one.dataType, (*path, one.name), limits).alias(one.name) for one in kind]
        return F.when(column.isNotNull(), F.struct(*fields)) if fields else column
    if isinstance(kind, t.ArrayType):
        element = kind.elementType
        elements = F.transform(column, lambda one: _canonical(one, element, (*path, ELEMENT), limits))
        return F.coalesce(elements, F.array()) if path in limits else elements
    if isinstance(kind, t.MapType):
        entries = _entries(column, kind, path, limits)
        return F.coalesce(entries, F.array()) if path in limits else entries
    return _scalar(column, kind, limits.get(path))


def _entries(column: Column, kind: t.MapType, path: Path, limits: Mapping[Path, str]) -> Column:
    """Returns a map's entries in the order of their keys."""

    def entry(one: Column) -> Column:
        key = _canonical(one.getField("key"), kind.keyType, path, {})
        return F.struct(key.alias("key"), _canonical(one.getField("value"), kind.valueType, (*path, ITEM), limits).alias("value"))

    return F.array_sort(F.transform(F.map_entries(column), entry))


def _scalar(column: Column, kind: t.DataType, limit: str | None) -> Column:
    if isinstance(kind, t.TimestampType):
        # With the offset of its zone, so that the hour that a clock goes back for is told apart.
        whole = F.date_trunc("MILLISECOND", column) if limit == MILLISECONDS else column
        return F.date_format(whole, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    if isinstance(kind, t.TimestampNTZType):
        return _text(column, limit, "2026-11-24 00:00:00.000")
    if isinstance(kind, t.StringType):
        return F.lower(column) if limit == UUID else column
    if isinstance(kind, t.BinaryType):
        return F.hex(column)
    if isinstance(kind, t.NullType):
        return F.lit(None).cast("string")
    if isinstance(kind, t.BooleanType | t.ByteType | t.ShortType | t.IntegerType | t.LongType | t.FloatType | t.DoubleType):
        return column
    return _text(column, limit, "00:00:00.000")  # decimals with their scale, dates, times, intervals


def _text(column: Column, limit: str | None, milliseconds: str) -> Column:
    """Returns a column as text. `milliseconds` is a text of the length to which times are cut."""
    text = column.cast("string")
    if limit != MILLISECONDS:
        return text
    return F.rpad(F.concat(text, F.when(text.contains("."), "").otherwise(".")), len(milliseconds), "0")
