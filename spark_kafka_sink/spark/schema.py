"""Which columns of a DataFrame make a Kafka record, and which cast mends one of the wrong type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.option import nearest
from spark_kafka_sink.producer.serializers.serializer import Serializer
from spark_kafka_sink.spark.serialized_columns import check_serialized

HEADERS_DDL = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True)
class SinkSchema:
    """Where each column of a record stands in the rows; None where the rows have no such column."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None


# A void column is one of nulls: a null key, a tombstone, no headers, the partitioner's choice, the time of append. A void
# topic is no topic, and says so row by row.
_ACCEPTED: dict[str, tuple[type[t.DataType], ...]] = {
    "value": (t.StringType, t.BinaryType, t.NullType),
    "key": (t.StringType, t.BinaryType, t.NullType),
    "topic": (t.StringType, t.NullType),
    "partition": (t.IntegerType, t.NullType),
    "timestamp": (t.TimestampType, t.LongType, t.NullType),
    "headers": (t.NullType,),
}

_WANTED = {
    "value": "string or binary",
    "key": "string or binary",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp, or bigint of milliseconds since the epoch",
    "headers": HEADERS_DDL,
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
    found = columns_of_record(names, topic_option, case_sensitive=case_sensitive)
    if "value" not in found:
        raise SchemaError(f"column value is required{_nearest_column('value', names)}", column="value")
    if "topic" not in found and topic_option is None:
        raise SchemaError("column topic is required when the option topic is not set", column="topic")
    for name, index in found.items():
        _check_column(schema.fields[index].dataType, name, serializers.get(name))
    return SinkSchema(**found)


def columns_of_record(names: Sequence[str], topic_option: str | None, *, case_sensitive: bool = False) -> dict[str, int]:
    """Where each column of a record stands among a row's `names`, by its own name; not the topic's where the option topic wins.

    Raises `SchemaError` for a column that is there twice.
    """
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        places.setdefault(name if case_sensitive else name.lower(), []).append(index)
    found = {}
    for name in _WANTED:
        if name in places and not (name == "topic" and topic_option is not None):
            found[name] = places[name][0]
            _check_once(name, [names[index] for index in places[name]])
    return found


def _check_once(name: str, found: list[str]) -> None:
    if len(set(found)) > 1:
        text = f"columns {' and '.join(sorted(set(found)))} differ in case alone, and both are the record's {name}"
        raise SchemaError(f"{text}; drop or rename all but one", column=name)
    if len(found) > 1:
        raise SchemaError(f"column {name}: there are {len(found)} of this name; drop or rename all but one", column=name)


def _nearest_column(name: str, columns: list[str]) -> str:
    exact = [column for column in columns if column.lower() == name]
    return f"; did you mean {exact[0]}?" if exact else nearest(name, columns)


def check_arrow(schema: t.StructType) -> None:
    """Raises `SchemaError` for a column that no Python worker can read: Spark hands a data source all columns, used or not."""
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
        check_serialized(name, found, serializer)
        return
    accepted = isinstance(found, _ACCEPTED[name]) or (name == "headers" and _is_headers(found))
    if not accepted:
        raise SchemaError(
            f"column {name}: is {found.simpleString()}, must be {_WANTED[name]}; use {cast_to_use(name, found)}", column=name
        )


def _is_headers(found: t.DataType) -> bool:
    if not (isinstance(found, t.ArrayType) and isinstance(found.elementType, t.StructType)):
        return False
    fields = [(field.name, type(field.dataType)) for field in found.elementType.fields]
    return fields == [("key", t.StringType), ("value", t.BinaryType)]


def cast_to_use(name: str, found: t.DataType) -> str:
    """SQL that makes a column of type `found` what column `name` must be."""
    if name in ("key", "value"):
        return f"to_json({name})" if isinstance(found, _NESTED) else f"cast({name} as string)"
    if name == "timestamp":
        return "cast(timestamp as bigint)" if isinstance(found, _WHOLE_NUMBERS) else "cast(timestamp as timestamp)"
    if name == "headers" and isinstance(found, t.MapType):
        return "transform(map_entries(headers), h -> named_struct('key', string(h.key), 'value', binary(h.value)))"
    if name == "headers" and not isinstance(found, t.ArrayType):
        return "array(named_struct('key', 'name', 'value', binary(headers)))"
    return f"cast({name} as {_WANTED[name]})"
