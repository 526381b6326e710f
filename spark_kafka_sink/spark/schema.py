"""Finds the columns of a Kafka record in a DataFrame, and names the cast for a column of the wrong type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.option import nearest
from spark_kafka_sink.producer.serializers.json_serializer import JsonSerializer
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


@dataclass(frozen=True, slots=True)
class SinkSchema:
    """The position of each column of a record in the rows, or None if the rows do not have it."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None


class RecordColumn(NamedTuple):
    """The types that a column of a Kafka record accepts.

    types: Spark's types that need no cast. expected: the same in words. of_rows: Python types of a Row's values, in words.
    sql_type: the type to cast other columns to.
    """

    types: tuple[type[t.DataType], ...]
    expected: str
    of_rows: str
    sql_type: str


_BYTES = RecordColumn((t.StringType, t.BinaryType, t.NullType), "string or binary", "str or bytes", "string")

# A void column has only nulls: null keys, tombstones, no headers, partitions by the partitioner, timestamps of the append. A void
# topic is refused by its first row.
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
_WHOLE_NUMBERS = (t.ByteType, t.ShortType, t.IntegerType)


def sink_schema(
    schema: t.StructType,
    topic_option: str | None,
    serializers: Mapping[str, Serializer] = MappingProxyType({}),
    *,
    case_sensitive: bool = False,
) -> SinkSchema:
    """Finds the record's columns in `schema`; other columns are ignored, as Spark's own Kafka sink does.

    serializers: of key and value, where an option sets one; it says which types that column may have. case_sensitive: as
    spark.sql.caseSensitive, which Spark does not tell a data source. Raises `SchemaError` for a missing value or topic, a column
    that is there twice, or a wrong type (with the cast to use).
    """
    names = schema.fieldNames()
    exact = [name for name in names if name.lower() == "value"]
    hint = f"; did you mean {exact[0]}?" if exact else nearest("value", names)
    found = columns_of_record(names, topic_option, hint, case_sensitive=case_sensitive)
    for name, index in found.items():
        _check_column(schema.fields[index].dataType, name, serializers.get(name))
    return SinkSchema(**found)


def columns_of_record(
    names: Sequence[str], topic_option: str | None, value_hint: str, *, case_sensitive: bool = False
) -> dict[str, int]:
    """Returns the position of each column of a record among a row's `names`. The topic column is left out if the option is set.

    Raises `SchemaError` for a column that exists twice, for a missing value column (with `value_hint`), and for a missing topic.
    """
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        places.setdefault(name if case_sensitive else name.lower(), []).append(index)
    found = {}
    for name in RECORD_COLUMNS:
        if name in places and not (name == "topic" and topic_option is not None):
            found[name] = places[name][0]
            _check_once(name, [names[index] for index in places[name]])
    if "value" not in found:
        raise SchemaError(f"column value is required{value_hint}", column="value")
    if "topic" not in found and topic_option is None:
        raise SchemaError("column topic is required when the option topic is not set", column="topic")
    return found


def _check_once(name: str, found: list[str]) -> None:
    if len(set(found)) > 1:
        text = f"columns {' and '.join(sorted(set(found)))} differ in case alone, and both are the record's {name}"
        raise SchemaError(f"{text}; drop or rename all but one", column=name)
    if len(found) > 1:
        raise SchemaError(f"column {name}: there are {len(found)} of this name; drop or rename all but one", column=name)


def check_arrow(schema: t.StructType) -> None:
    """Raises `SchemaError` for a column that Python workers cannot read. Spark hands a data source all columns, used or not."""
    for field in schema.fields:
        if _holds_months(field.dataType):
            raise SchemaError(
                f"column {field.name}: is {field.dataType.simpleString()}, which Spark cannot hand to Python;"
                " select the record's columns before the write, or cast it to string",
                column=field.name,
            )


def _holds_months(kind: t.DataType) -> bool:
    if isinstance(kind, t.StructType):
        return any(_holds_months(field.dataType) for field in kind.fields)
    if isinstance(kind, t.MapType):
        return _holds_months(kind.keyType) or _holds_months(kind.valueType)
    return _holds_months(kind.elementType) if isinstance(kind, t.ArrayType) else isinstance(kind, t.YearMonthIntervalType)


def _check_column(found: t.DataType, name: str, serializer: Serializer | None) -> None:
    if serializer is not None:
        _check_serialized(name, found, serializer)
        return
    column = RECORD_COLUMNS[name]
    if not (isinstance(found, column.types) or (name == "headers" and _is_headers(found))):
        raise SchemaError(
            f"column {name}: is {found.simpleString()}, must be {column.expected}; use {_cast_to_use(name, found)}", column=name
        )


def _is_headers(found: t.DataType) -> bool:
    if not (isinstance(found, t.ArrayType) and isinstance(found.elementType, t.StructType)):
        return False
    fields = [(field.name, type(field.dataType)) for field in found.elementType.fields]
    return fields == [("key", t.StringType), ("value", t.BinaryType)]


def _cast_to_use(name: str, found: t.DataType) -> str:
    """Returns the SQL that turns a column of type `found` into a valid column `name`."""
    if name in ("key", "value"):
        return _as_text(name, found)
    if name == "timestamp" and isinstance(found, _WHOLE_NUMBERS):
        return "cast(timestamp as bigint)"
    if name == "headers" and isinstance(found, t.MapType):
        return "transform(map_entries(headers), h -> named_struct('key', string(h.key), 'value', binary(h.value)))"
    if name == "headers" and not isinstance(found, t.ArrayType):
        return "array(named_struct('key', 'name', 'value', binary(headers)))"
    if name == "headers" and isinstance(found, t.ArrayType) and not _can_be_headers(found.elementType):
        return "transform(headers, h -> named_struct('key', 'name', 'value', binary(string(h))))"
    return f"cast({name} as {RECORD_COLUMNS[name].sql_type})"


def _can_be_headers(element: t.DataType) -> bool:
    """Returns whether Spark casts an array of such elements to headers: it names the fields of a struct anew, by position."""
    return isinstance(element, t.NullType) or (isinstance(element, t.StructType) and len(element.fields) == 2)


def _as_text(name: str, found: t.DataType) -> str:
    return f"to_json({name})" if isinstance(found, _NESTED) else f"cast({name} as string)"


# Keys and values that a serializer takes

# What to cast a column to.
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

_TO_NUMBERS = (t.NumericType, t.StringType, t.BooleanType, t.TimestampType)


def _check_serialized(name: str, found: t.DataType, serializer: Serializer) -> None:
    """Raises SchemaError if the serializer of column `name` does not accept its type, with the cast to use if there is one."""
    if isinstance(found, t.NullType):
        return
    kind = _arrow_type(found)
    if kind is None:
        problem = f"no serializer takes {found.simpleString()}"
    else:
        try:
            serializer.accepts(kind)
            return
        except SerializationError as error:
            problem = error.message
    cast = _cast_for(serializer, name, found)
    hint = "" if cast is None else f"; use {cast}"
    text = f"column {name}: is {found.simpleString()}, which {type(serializer).__name__} does not take ({problem}){hint}"
    raise SchemaError(text, column=name)


def _cast_for(serializer: Serializer, name: str, found: t.DataType) -> str | None:
    if isinstance(serializer, JsonSerializer):
        # A serializer would make text of text: what is JSON already needs none.
        return f"to_json({name}) without kafka.{name}.serializer" if isinstance(found, _NESTED) else f"cast({name} as string)"
    if isinstance(serializer, ListSerializer):
        return _list_to_use(name, found, serializer)
    sql_type = _SQL_TYPES.get(type(serializer))
    return None if sql_type is None else _scalar_to_use(name, found, sql_type)


def _scalar_to_use(name: str, found: t.DataType, sql_type: str) -> str | None:
    if sql_type == "string":
        return _as_text(name, found)
    if sql_type == "binary":
        return f"cast({name if isinstance(found, t.StringType) else _as_text(name, found)} as binary)"
    return f"cast({name} as {sql_type})" if isinstance(found, _TO_NUMBERS) else None


def _list_to_use(name: str, found: t.DataType, serializer: ListSerializer) -> str | None:
    sql_type = _SQL_TYPES.get(type(serializer.inner))
    if sql_type is None or not isinstance(found, t.ArrayType):
        element = None if sql_type is None or isinstance(found, t.MapType) else _scalar_to_use(name, found, sql_type)
        return None if element is None else f"array({element})"
    cast = _scalar_to_use("element", found.elementType, sql_type)
    return None if cast is None else f"transform({name}, element -> {cast})"


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
    t.TimestampType: pa.timestamp("us", "UTC"),  # of the session's zone really
    t.TimestampNTZType: pa.timestamp("us"),
    t.DayTimeIntervalType: pa.duration("us"),
}


def _arrow_type(kind: t.DataType) -> pa.DataType | None:
    """Returns the Arrow type of a column that Spark hands over. Spark's own to_arrow_type has other arguments in each version.

    Returns None for a type without plain Arrow values: variant, intervals of months, geometry, user-defined types.
    """
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        element = _arrow_type(kind.elementType)
        return None if element is None else pa.list_(element)
    if isinstance(kind, t.MapType):
        key, value = _arrow_type(kind.keyType), _arrow_type(kind.valueType)
        return None if key is None or value is None else pa.map_(key, value)
    if isinstance(kind, t.StructType):
        fields = [(field.name, _arrow_type(field.dataType)) for field in kind.fields]
        return None if any(found is None for _, found in fields) else pa.struct(fields)
    if kind.typeName().startswith("time("):  # TimeType, from Spark 4.1 on
        return pa.time64("ns")
    return _ARROW_TYPES.get(type(kind))
