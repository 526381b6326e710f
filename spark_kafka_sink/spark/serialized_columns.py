"""Which columns of a DataFrame a serializer takes, and which cast mends one that it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import types as t

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import SchemaError, SerializationError
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
from spark_kafka_sink.producer.serializers.registry import serializers_of
from spark_kafka_sink.producer.serializers.serializer import Serializer, is_default
from spark_kafka_sink.producer.serializers.text import StringSerializer, UUIDSerializer
from spark_kafka_sink.spark.arrow_types import arrow_type

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

_NESTED = (t.StructType, t.ArrayType, t.MapType, t.VariantType)
_TO_NUMBERS = (t.NumericType, t.StringType, t.BooleanType, t.TimestampType)


def serializers_by_column(config: ProducerConfig) -> dict[str, Serializer]:
    """Those of `key` and `value` that an option sets, configured. OptionError for one that cannot be had."""
    key, value = serializers_of(config)
    return {name: serializer for name, serializer in (("key", key), ("value", value)) if not is_default(serializer)}


@contextmanager
def looked_at(config: ProducerConfig) -> Iterator[dict[str, Serializer]]:
    """The same in the driver, which serializes nothing: what was made to be asked is closed, an object is the program's own."""
    serializers = serializers_by_column(config)
    try:
        yield serializers
    finally:
        for name, serializer in serializers.items():
            if serializer is not getattr(config, f"{name}_serializer"):
                serializer.close()


def check_serialized(name: str, found: t.DataType, serializer: Serializer) -> None:
    """SchemaError when the serializer of column `name` does not take what it holds, with the cast to use if there is one."""
    if isinstance(found, t.NullType):
        return
    kind = arrow_type(found)
    if kind is None:
        problem = f"no serializer takes {found.simpleString()}"
    else:
        try:
            serializer.accepts(kind)
            return
        except SerializationError as error:
            problem = error.message
    cast = _cast_to_use(name, found, serializer)
    hint = "" if cast is None else f"; use {cast}"
    text = f"column {name}: is {found.simpleString()}, which {type(serializer).__name__} does not take ({problem}){hint}"
    raise SchemaError(text, column=name)


def _cast_to_use(name: str, found: t.DataType, serializer: Serializer) -> str | None:
    if isinstance(serializer, JsonSerializer):
        # A serializer would make text of text: what is JSON already needs none.
        return f"to_json({name}) without kafka.{name}.serializer" if isinstance(found, _NESTED) else f"cast({name} as string)"
    if isinstance(serializer, ListSerializer):
        return _list_to_use(name, found, serializer)
    wanted = _SQL_TYPES.get(type(serializer))
    return None if wanted is None else _scalar_to_use(name, found, wanted)


def _scalar_to_use(name: str, found: t.DataType, wanted: str) -> str | None:
    text = f"to_json({name})" if isinstance(found, _NESTED) else f"cast({name} as string)"
    if wanted == "string":
        return text
    if wanted == "binary":
        return f"cast({name if isinstance(found, t.StringType) else text} as binary)"
    return f"cast({name} as {wanted})" if isinstance(found, _TO_NUMBERS) else None


def _list_to_use(name: str, found: t.DataType, serializer: ListSerializer) -> str | None:
    wanted = _SQL_TYPES.get(type(serializer.inner))
    if wanted is None or not isinstance(found, t.ArrayType):
        element = None if wanted is None or isinstance(found, t.MapType) else _scalar_to_use(name, found, wanted)
        return None if element is None else f"array({element})"
    cast = _scalar_to_use("element", found.elementType, wanted)
    return None if cast is None else f"transform({name}, element -> {cast})"
