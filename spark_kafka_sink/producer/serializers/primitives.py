"""Kafka's serializers for numbers (big endian, fixed width), booleans, bytes that stay as they are, and nulls."""

from __future__ import annotations

import struct
from math import isnan
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.arrays import fixed_width_array, is_binary, null_column
from spark_kafka_sink.producer.serializers.serializer import Serializer, refused_type, refused_value
from spark_kafka_sink.records.arrow_arrays import numbers, valid_mask

_NAN = bytes.fromhex("7ff8000000000000")


class _FixedWidth(Serializer):
    """Accepts a column of its type, or of a narrower one without loss. The caller must cast wider columns."""

    _arrow: ClassVar[pa.DataType]
    _narrower: ClassVar[tuple[pa.DataType, ...]] = ()
    _dtype: ClassVar[str]  # of the column in memory

    def accepts(self, kind: pa.DataType) -> None:
        if kind != self._arrow and kind not in self._narrower and not pa.types.is_null(kind):
            raise refused_type(kind, f"{self._arrow}{' or narrower' * bool(self._narrower)}", cast=str(self._arrow))

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        self.accepts(column.type)
        if pa.types.is_null(column.type):
            return null_column(len(column))
        values = self._values(column if column.type == self._arrow else column.cast(self._arrow))
        return fixed_width_array(values.astype(values.dtype.newbyteorder(">")), valid_mask(column))

    def _values(self, column: pa.Array) -> NDArray[Any]:
        return numbers(column, self._dtype)


class _WholeNumber(_FixedWidth):
    _bits: ClassVar[int]

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise refused_value(value, self.wanted)
        try:
            return int(value).to_bytes(self._bits // 8, "big", signed=True)
        except OverflowError:
            raise SerializationError(f"{value} is out of range: must be {self.wanted}") from None


class ShortSerializer(_WholeNumber):
    """Writes 16 bits, two's complement, big endian. Accepts int, and columns of int16, int8 and uint8."""

    wanted = "a 16-bit integer"
    _bits = 16
    _dtype = "i2"
    _arrow = pa.int16()
    _narrower = (pa.int8(), pa.uint8())


class IntegerSerializer(_WholeNumber):
    """Writes 32 bits, two's complement, big endian. Accepts int, and columns of int32 and narrower types."""

    wanted = "a 32-bit integer"
    _bits = 32
    _dtype = "i4"
    _arrow = pa.int32()
    _narrower = (pa.int16(), pa.int8(), pa.uint16(), pa.uint8())


class LongSerializer(_WholeNumber):
    """Writes 64 bits, two's complement, big endian. Accepts int, and columns of int64 and narrower types."""

    wanted = "a 64-bit integer"
    _bits = 64
    _dtype = "i8"
    _arrow = pa.int64()
    _narrower = (pa.int32(), pa.int16(), pa.int8(), pa.uint32(), pa.uint16(), pa.uint8())


class _Floating(_FixedWidth):
    _format: ClassVar[str]

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, float | np.floating):
            raise refused_value(value, self.wanted)
        try:
            return struct.pack(self._format, value)
        except OverflowError:
            raise SerializationError(f"{value} is out of range: must be {self.wanted}") from None


class FloatSerializer(_Floating):
    """Writes IEEE 754, 32 bits, big endian. Accepts float, rounded like a cast in Java, and columns of float and halffloat."""

    wanted = "a float that fits 32 bits"
    _format = ">f"
    _dtype = "f4"
    _arrow = pa.float32()
    _narrower = (pa.float16(),)


class DoubleSerializer(_Floating):
    """Writes IEEE 754, 64 bits, big endian; all NaNs have the same bits. Accepts float, and columns of double or narrower."""

    wanted = "a float"
    _format = ">d"
    _dtype = "f8"
    _arrow = pa.float64()
    _narrower = (pa.float32(), pa.float16())

    # Java's class calls Double.doubleToLongBits, but FloatSerializer calls Float.floatToRawIntBits.
    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        packed = super().serialize(topic, value, headers)
        return _NAN if packed is not None and isnan(value) else packed

    def _values(self, column: pa.Array) -> NDArray[Any]:
        values = numbers(column, self._dtype)
        nans = np.isnan(values)
        return np.where(nans, np.nan, values) if nans.any() else values


class BooleanSerializer(_FixedWidth):
    """Writes one byte, 0 or 1. Accepts bool, and columns of bool."""

    wanted = "a bool"
    _arrow = pa.bool_()

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, bool | np.bool_):
            raise refused_value(value, self.wanted)
        return b"\1" if value else b"\0"

    def _values(self, column: pa.Array) -> NDArray[Any]:
        return numbers(column.cast(pa.uint8()), np.uint8)


class ByteArraySerializer(Serializer):
    """Passes bytes through. Accepts bytes, bytearray and memoryview, and columns of binary, large_binary, fixed_size_binary and
    binary_view, but no text.
    """

    wanted = "bytes"

    def accepts(self, kind: pa.DataType) -> None:
        if not is_binary(kind) and not pa.types.is_null(kind):
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
    """Same as ByteArraySerializer, because Kafka's class Bytes wraps a byte array."""


class ByteBufferSerializer(ByteArraySerializer):
    """Accepts any object with the buffer protocol (bytes, array.array, a numpy array), and writes all of it in memory order.

    Java's ByteBuffer has a position, which its serializer resets to 0; a memoryview has only limits.
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
    """Accepts only None, and columns of any type in which every row is null. The result is null."""

    wanted = "None"

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is not None:
            raise refused_value(value, self.wanted)
        return None

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        if column.null_count != len(column):
            row = column.is_valid().index(True).as_py()
            raise SerializationError(f"row {row}: is not null, but the void serializer is set", row=row)
        return null_column(len(column))
