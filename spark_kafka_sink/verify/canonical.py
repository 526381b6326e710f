"""Columns as JSON in which equal values have equal texts, made by Spark on both sides of a comparison.

The source's columns come as they are, and the topic's from `conversion.py`. So neither Python nor a serializer of the sink
touches the source. What the schema cannot hold is no difference: finer times, the case of a UUID, arrays and maps that are null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.avro.avro_schema import (
    MISSING,
    Array,
    AvroType,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    Union,
    is_null,
    parse,
)
from spark_kafka_sink.verify.conversion import AVRO, JSON, PROTOBUF
from spark_kafka_sink.verify.schema_ids import TopicSchema, last_file

MILLISECONDS: Final = "milliseconds"
UUID: Final = "uuid"
EMPTY: Final = "empty"
_LIMITS: Final = {
    "timestamp-millis": MILLISECONDS,
    "local-timestamp-millis": MILLISECONDS,
    "time-millis": MILLISECONDS,
    "uuid": UUID,
}
_DEEPEST: Final = 100
"""Maximum number of records or unions inside of each other whose defaults are known. The types of columns are not as deep."""

Path = tuple[str, ...]
"""Names of fields, ELEMENT for the elements of an array and ITEM for the values of a map."""
ELEMENT: Final = "[]"
ITEM: Final = "{}"


def limits(schemas: Iterable[TopicSchema], kind: t.DataType, message: str | None = None) -> dict[Path, str]:
    """Returns what at least one of the schemas cannot hold, by path.

    MILLISECONDS: finer times. UUID: upper case. EMPTY: null, which Protobuf reads as an empty list or map.

    The walk goes only as deep as the column's type: schemas may be recursive, and name one type at exponentially many paths.

    Args:
        schemas: the schemas of a topic.
        kind: the column's type.
        message: the Protobuf message of the records; None: the first of its file.
    """
    found: dict[Path, str] = {}
    for one in schemas:
        if one.schema is not None and one.schema.kind == AVRO:
            _walk_avro(_avro(one), kind, (), found, set())
        elif one.schema is not None and one.schema.kind == PROTOBUF:
            descriptors = last_file(one.files).message_types_by_name
            named_message = next((each for each in descriptors.values() if message in (each.name, each.full_name)), None)
            _walk_message(named_message or next(iter(descriptors.values())), kind, (), found)
    return found


def _walk_message(message: Any, kind: t.DataType, path: Path, found: dict[Path, str]) -> None:
    for column in kind.fields if isinstance(kind, t.StructType) else ():
        field = message.fields_by_name.get(column.name)
        if field is None:
            continue
        here, inner, inside = (*path, column.name), field.message_type, column.dataType
        is_new = hasattr(field, "is_repeated")  # releases of protobuf that have it warn of `label`
        if field.is_repeated if is_new else field.label == field.LABEL_REPEATED:
            found[here] = EMPTY
        if isinstance(inside, t.ArrayType):
            here, inside = (*here, ELEMENT), inside.elementType
        elif isinstance(inside, t.MapType) and inner is not None and inner.GetOptions().map_entry:
            here, inside, inner = (*here, ITEM), inside.valueType, inner.fields_by_name["value"].message_type
        if inner is not None:
            _walk_message(inner, inside, here, found)


def _avro(schema: TopicSchema) -> AvroType | None:
    """Returns a parsed schema; None if it is not valid, because no record of it can be decoded."""
    assert schema.schema is not None
    try:
        return parse(schema.schema.text, {name: one.text for name, one in schema.named})
    except SchemaError:
        return None


def _walk_avro(
    schema: AvroType | None, kind: t.DataType, path: Path, found: dict[Path, str], seen: set[tuple[int, Path]]
) -> None:
    """seen: the types that were looked at, each with its path: records may name each other on exponentially many ways."""
    if (id(schema), path) in seen:
        return
    seen.add((id(schema), path))
    match schema:
        case Union(branches=branches):
            for number, branch in enumerate(one for one in branches if not is_null(one)):
                _walk_avro(branch, kind, path, found, seen)
                # The column may be a struct with a field for each type.
                _walk_field(f"member{number}", branch, kind, path, found, seen)
        case Record(fields=fields):
            for field in fields:
                _walk_field(field.name, field.type, kind, path, found, seen)
        case Array(items=items) if isinstance(kind, t.ArrayType):
            _walk_avro(items, kind.elementType, (*path, ELEMENT), found, seen)
        case Map(values=values) if isinstance(kind, t.MapType):
            _walk_avro(values, kind.valueType, (*path, ITEM), found, seen)
        case Primitive(logical=Logical(name=name)) | Fixed(logical=Logical(name=name)) if name in _LIMITS:
            found[path] = _LIMITS[name]


def _walk_field(
    name: str, schema: AvroType, kind: t.DataType, path: Path, found: dict[Path, str], seen: set[tuple[int, Path]]
) -> None:
    for column in kind.fields if isinstance(kind, t.StructType) else ():
        if column.name == name:
            _walk_avro(schema, column.dataType, (*path, name), found, seen)


def defaults(schema: TopicSchema) -> dict[str, Any]:
    """Returns the defaults of a record's fields, as the schema has them. Those of a nested record are a dict."""
    if schema.schema is None or schema.schema.kind not in (AVRO, JSON):
        return {}
    if schema.schema.kind == AVRO:
        return _defaults_of_record(_avro(schema), _DEEPEST, {})
    try:
        return _defaults_of_object(json.loads(schema.schema.text), _DEEPEST)
    except (ValueError, RecursionError):  # it is nested more deeply than any value
        return {}


def _defaults_of_record(kind: AvroType | None, levels: int, known: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """known: those of the records that were looked at, each of them once: schemas name one at exponentially many paths."""
    if isinstance(kind, Union) and levels:
        return next(filter(None, (_defaults_of_record(one, levels - 1, known) for one in kind.branches)), {})
    if not isinstance(kind, Record) or not levels:
        return {}
    if id(kind) in known:
        return known[id(kind)]
    known[id(kind)] = {}  # inside of itself
    found: dict[str, Any] = {}
    for field in kind.fields:
        if field.default is not MISSING and field.default is not None:
            found[field.name] = field.default
        elif inner := _defaults_of_record(field.type, levels - 1, known):
            found[field.name] = inner
    known[id(kind)] = found
    return found


def _defaults_of_object(kind: Any, levels: int) -> dict[str, Any]:
    properties = kind.get("properties") if isinstance(kind, Mapping) and levels else None
    found = {}
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(inner, Mapping) and "default" in inner:
            found[name] = inner["default"]
        elif deeper := _defaults_of_object(inner, levels - 1):
            found[name] = deeper
    return found


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
        # With the offset of its zone, so that the two hours of a clock that goes back differ.
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
