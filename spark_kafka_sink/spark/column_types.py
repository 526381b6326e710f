"""The types that the columns of a Kafka record may have, and the cast to use for others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.producer.serializers.json_serializer import RENAME, JsonSerializer
from spark_kafka_sink.producer.serializers.lists import ListSerializer
from spark_kafka_sink.producer.serializers.primitives import (
    BooleanSerializer,
    ByteArraySerializer,
    ByteBufferSerializer,
    BytesSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntegerSerializer,
    LongSerializer,
    ShortSerializer,
)
from spark_kafka_sink.producer.serializers.serializer import Serializer
from spark_kafka_sink.producer.serializers.text import StringSerializer, UUIDSerializer

HEADERS_DDL = "array<struct<key:string,value:binary>>"


class RecordColumn(NamedTuple):
    """The types that a column of a Kafka record accepts.

    types: Spark types that need no cast. expected: the same in words. of_rows: Python types of a Row's values, in words.
    sql_type: the type to cast other columns to.
    """

    types: tuple[type[t.DataType], ...]
    expected: str
    of_rows: str
    sql_type: str


_BYTES = RecordColumn((t.StringType, t.BinaryType, t.NullType), "string or binary", "str or bytes", "string")

# A void column has only nulls: null keys, tombstones, no headers, partitions from the partitioner, the time of the append. A void
# topic fails at its first row.
RECORD_COLUMNS: Mapping[str, RecordColumn] = {
    "value": _BYTES,
    "key": _BYTES,
    "topic": RecordColumn((t.StringType, t.NullType), "string", "str", "string"),
    "partition": RecordColumn((t.IntegerType, t.NullType), "int", "int of 32 bits", "int"),
    "timestamp": RecordColumn(
        (t.TimestampType, t.LongType, t.NullType),
        "timestamp, or bigint of milliseconds since the epoch",
        "datetime, or int of milliseconds since the epoch",
        "timestamp",
    ),
    "headers": RecordColumn((t.NullType,), HEADERS_DDL, "lists of (key: str, value: bytes)", HEADERS_DDL),
}

_NESTED = (t.StructType, t.ArrayType, t.MapType, t.VariantType)
_TIMES = (t.StringType, t.DateType, t.TimestampNTZType, t.VariantType)
_NUMBERS = (t.StringType, t.NumericType, t.BooleanType, t.VariantType)


def check_column(found: t.DataType, name: str, serializer: Serializer | None) -> None:
    """Raises SchemaError if the record's column `name` cannot have the type `found`, with the cast to use."""
    if serializer is not None:
        check_serialized(name, found, serializer, name)
        return
    column = RECORD_COLUMNS[name]
    if not (isinstance(found, column.types) or (name == "headers" and _is_headers(found))):
        cast = cast_to_use(name, found)
        hint = "" if cast is None else f"; use {cast}"
        raise SchemaError(f"column {name}: is {found.simpleString()}, must be {column.expected}{hint}", column=name)


def _is_headers(found: t.DataType) -> bool:
    if not (isinstance(found, t.ArrayType) and isinstance(found.elementType, t.StructType)):
        return False
    fields = [(field.name, type(field.dataType)) for field in found.elementType.fields]
    return fields == [("key", t.StringType), ("value", t.BinaryType)]


def cast_to_use(name: str, found: t.DataType) -> str | None:
    """Returns the SQL that turns a column of type `found` into a valid column `name`; None if only the user can know it."""
    match name:
        case "key" | "value":
            return as_text(name, found)
        case "headers":
            return _headers_to_use(found)
        case "timestamp" if isinstance(found, t.IntegralType):  # milliseconds of today take more than 32 bits
            return "timestamp_seconds(timestamp)"
        case "timestamp" if isinstance(found, t.FractionalType):
            return "timestamp_seconds(timestamp) for seconds, or cast(timestamp as bigint) for milliseconds"
        case "timestamp" if not isinstance(found, _TIMES):
            return None
        case "partition" if not isinstance(found, _NUMBERS):
            return None
    return f"cast({name} as {RECORD_COLUMNS[name].sql_type})"


def _headers_to_use(found: t.DataType) -> str:
    if isinstance(found, t.MapType):
        return f"transform(map_entries(headers), h -> {_header('string(h.key)', 'h.value', found.valueType)})"
    if not isinstance(found, t.ArrayType):
        return f"array({_header(_NAME, 'headers', found)})"
    element = found.elementType
    if isinstance(element, t.NullType):
        return f"cast(headers as {HEADERS_DDL})"
    if not (isinstance(element, t.StructType) and len(element.fields) == 2):
        return f"transform(headers, h -> {_header(_NAME, 'h', element)})"
    # By name, because a cast of structs goes by position. Otherwise a binary field is the value, or else the second one.
    key, value = element.fields
    if key.name.lower() == "value" or (value.name.lower() != "value" and isinstance(key.dataType, t.BinaryType)):
        key, value = value, key
    return f"transform(headers, h -> {_header(f'string(h.{quoted(key.name)})', f'h.{quoted(value.name)}', value.dataType)})"


_NAME = "'name'"


def _header(key: str, value: str, kind: t.DataType) -> str:
    """Returns the SQL of a header. kind: the type of the SQL `value`."""
    text = f"to_json({value})" if isinstance(kind, _NESTED) else value if isinstance(kind, t.StringType) else f"string({value})"
    return f"named_struct('key', {key}, 'value', {value if isinstance(kind, t.BinaryType) else f'binary({text})'})"


def quoted(name: str) -> str:
    """Returns a column's name for use in SQL."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name.replace('`', '``')}`"


def as_text(name: str, found: t.DataType) -> str:
    """Returns the SQL that turns a column into a string."""
    return f"to_json({name})" if isinstance(found, _NESTED) else f"cast({name} as string)"


# Keys and values with a serializer

# The type to cast a column to.
_SQL_TYPES: Mapping[type[Serializer], str] = {
    **dict.fromkeys((ByteArraySerializer, BytesSerializer, ByteBufferSerializer), "binary"),
    BooleanSerializer: "boolean",
    DoubleSerializer: "double",
    FloatSerializer: "float",
    IntegerSerializer: "int",
    LongSerializer: "bigint",
    ShortSerializer: "smallint",
    StringSerializer: "string",
    UUIDSerializer: "string",
}

_TO_NUMBERS = (t.NumericType, t.StringType, t.BooleanType)


def check_serialized(name: str, found: t.DataType, serializer: Serializer, part: str) -> None:
    """Raises SchemaError if the serializer of column `name` does not accept its type, with the cast to use if there is one.

    part: what the column is written as, key or value.
    """
    if isinstance(found, t.NullType):
        return
    kind = arrow_type(found)
    if kind is None:
        problem = f"no serializer accepts {found.simpleString()}"
    else:
        try:
            serializer.accepts(kind)
            return
        except SerializationError as error:
            problem = error.message
    cast = None if problem.endswith(RENAME) else _cast_for(serializer, name, found, part)
    hint = "" if cast is None else f"; use {cast}"
    text = f"column {name}: is {found.simpleString()}, which {type(serializer).__name__} does not accept ({problem}){hint}"
    raise SchemaError(text, column=name)


def _cast_for(serializer: Serializer, name: str, found: t.DataType, part: str) -> str | None:
    if isinstance(serializer, JsonSerializer):
        # The serializer would quote text that is JSON already.
        return f"to_json({name}) without kafka.{part}.serializer" if isinstance(found, _NESTED) else f"cast({name} as string)"
    if isinstance(serializer, ListSerializer):
        return _list_to_use(name, found, serializer)
    sql_type = _SQL_TYPES.get(type(serializer))
    return None if sql_type is None else _scalar_to_use(name, found, sql_type)


def _scalar_to_use(name: str, found: t.DataType, sql_type: str) -> str | None:
    if sql_type == "string":
        return as_text(name, found)
    if sql_type == "binary":
        return f"cast({name if isinstance(found, t.StringType) else as_text(name, found)} as binary)"
    if sql_type == "bigint" and isinstance(found, t.TimestampType):
        return f"unix_millis({name}) or unix_seconds({name})"
    return f"cast({name} as {sql_type})" if isinstance(found, _TO_NUMBERS) else None


def _list_to_use(name: str, found: t.DataType, serializer: ListSerializer) -> str | None:
    sql_type = _SQL_TYPES.get(type(serializer.inner))
    if sql_type is None or not isinstance(found, t.ArrayType):
        element = None if sql_type is None or isinstance(found, t.MapType) else _scalar_to_use(name, found, sql_type)
        return None if element is None else f"array({element})"
    cast = _scalar_to_use("element", found.elementType, sql_type)
    return None if cast is None else f"transform({name}, element -> {cast})"


def check_has_arrow_type(field: t.StructField) -> None:
    """Raises SchemaError for a column that no format with a schema has a type for, with the cast to use."""
    if arrow_type(field.dataType) is None:
        raise SchemaError(
            f"column {field.name}: is {field.dataType.simpleString()}, which has no type in a schema;"
            f" use {as_text(field.name, field.dataType)}",
            column=field.name,
        )


_ARROW_TYPES: dict[type[t.DataType], pa.DataType] = {
    t.NullType: pa.null(),
    t.StringType: pa.string(),
    t.BinaryType: pa.binary(),
    t.BooleanType: pa.bool_(),
    t.ByteType: pa.int8(),
    t.ShortType: pa.int16(),
    t.IntegerType: pa.int32(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.DateType: pa.date32(),
    t.TimestampType: pa.timestamp("us", "UTC"),  # in Spark, the session's zone
    t.TimestampNTZType: pa.timestamp("us"),
    t.DayTimeIntervalType: pa.duration("us"),
}


def arrow_type(kind: t.DataType) -> pa.DataType | None:
    """Returns the Arrow type of a column that Spark passes to Python. Spark's to_arrow_type has other arguments in each version.

    Returns None for a type without plain Arrow values: variant, intervals of months, geometry, user-defined types.
    """
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        element = arrow_type(kind.elementType)
        return None if element is None else pa.list_(element)
    if isinstance(kind, t.MapType):
        key, value = arrow_type(kind.keyType), arrow_type(kind.valueType)
        return None if key is None or value is None else pa.map_(key, value)
    if isinstance(kind, t.StructType):
        fields = [(field.name, arrow_type(field.dataType)) for field in kind.fields]
        return None if any(found is None for _, found in fields) else pa.struct(fields)
    if kind.typeName().startswith("time("):  # TimeType, from Spark 4.1 on
        return pa.time64("ns")
    return _ARROW_TYPES.get(type(kind))


def whole_type(kind: t.DataType) -> pa.DataType:
    """Returns a column's Arrow type with what `arrow_type` leaves out: which values may be null, and comments."""
    if isinstance(kind, t.StructType):
        return pa.struct([_arrow_field(field) for field in kind.fields])
    if isinstance(kind, t.ArrayType):
        return pa.list_(pa.field("element", whole_type(kind.elementType), kind.containsNull))
    if isinstance(kind, t.MapType):
        return pa.map_(whole_type(kind.keyType), pa.field("value", whole_type(kind.valueType), kind.valueContainsNull))
    return arrow_type(kind)


def _arrow_field(field: t.StructField) -> pa.Field:
    comment = (field.metadata or {}).get("comment")
    metadata = {"comment": comment} if isinstance(comment, str) and comment else None
    return pa.field(field.name, whole_type(field.dataType), field.nullable, metadata)
