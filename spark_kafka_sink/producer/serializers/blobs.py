"""Bytes that stay as they are: Kafka's ByteArraySerializer, BytesSerializer and ByteBufferSerializer; and VoidSerializer."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.producer_record import Headers
from spark_kafka_sink.producer.serializers.binary_arrays import null_column
from spark_kafka_sink.producer.serializers.serializer import Serializer, refused_type, refused_value


class ByteArraySerializer(Serializer):
    """Takes bytes, bytearray and memoryview; columns of binary, large_binary, fixed_size_binary and binary_view. No text."""

    wanted = "bytes"

    def accepts(self, kind: pa.DataType) -> None:
        if kind not in _binary_types() and not pa.types.is_fixed_size_binary(kind) and not pa.types.is_null(kind):
            raise refused_type(kind, "binary", cast="binary")

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if not isinstance(value, bytearray | memoryview):
            raise refused_value(value, self.wanted)
        return bytes(value)

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        self.accepts(column.type)
        if column.type in (pa.binary(), pa.large_binary()):
            return column
        return column.cast(pa.binary())


class BytesSerializer(ByteArraySerializer):
    """Kafka's class Bytes is an array of bytes: the same as ByteArraySerializer."""


class ByteBufferSerializer(ByteArraySerializer):
    """Takes whatever has the buffer protocol (bytes, array.array, a numpy array): all of it, in its order in memory.

    Java's ByteBuffer has a position, which its serializer sets back to 0 first; a memoryview has only its limits.
    """

    wanted = "an object with the buffer protocol"

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None:
            return None
        try:
            return memoryview(value).tobytes()
        except TypeError:
            raise refused_value(value, self.wanted) from None


class VoidSerializer(Serializer):
    """Takes None alone; columns of any type in which every row is null. All become null."""

    wanted = "None"

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is not None:
            raise refused_value(value, self.wanted)
        return None

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        if column.null_count != len(column):
            row = column.is_valid().index(True).as_py()
            raise SerializationError(f"row {row}: is not null, where the serializer of nulls is set", row=row)
        return null_column(len(column))


@cache
def _binary_types() -> tuple[pa.DataType, ...]:
    return pa.binary(), pa.large_binary(), pa.binary_view()
