"""Serializers for text and UUIDs: Kafka's StringSerializer and UUIDSerializer, with their encoding options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.arrays import (
    checked_text,
    first_row,
    fixed_width_array,
    is_text,
    is_uuid,
    null_column,
    text_array,
)
from spark_kafka_sink.producer.serializers.encodings import UTF_8, encoder
from spark_kafka_sink.producer.serializers.serializer import Serializer, refused_type, refused_value
from spark_kafka_sink.records.arrow_arrays import numbers, valid_mask, validity

UUID_TEXT = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_IS_UUID = re.compile(UUID_TEXT)
_DASHES = (8, 13, 18, 23)  # their positions in 36 characters
_DIGIT_PLACES = [place for place in range(36) if place not in _DASHES]


class _Encoded(Serializer):
    """Writes text in `key.serializer.encoding` or `value.serializer.encoding`, which default to `serializer.encoding`."""

    def __init__(self) -> None:
        self._encoder = UTF_8

    def configure(self, settings: Mapping[str, object], is_key: bool) -> None:
        own = f"{'key' if is_key else 'value'}.serializer.encoding"
        option = own if settings.get(own) is not None else "serializer.encoding"
        self._encoder = encoder(str(settings.get(option, "UTF-8")), option)


class StringSerializer(_Encoded):
    """Accepts str, and columns of string, large_string and string_view. Characters that the encoding lacks become '?', as in
    Java.
    """

    wanted = "str"

    def accepts(self, kind: pa.DataType) -> None:
        if not is_text(kind) and not pa.types.is_null(kind):
            raise refused_type(kind, "string", cast="string")

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise refused_value(value, self.wanted)
        return self._encoder.encode(value)

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        self.accepts(column.type)
        if pa.types.is_null(column.type):
            return null_column(len(column))
        return self._encoder.encode_column(column.cast(pa.string()) if column.type == pa.string_view() else column)


class UUIDSerializer(_Encoded):
    """Writes the 36 characters of Java's UUID.toString. Accepts UUID, its text or its 16 bytes, and columns of text or 16
    bytes.
    """

    wanted = "a UUID"

    def accepts(self, kind: pa.DataType) -> None:
        if not is_text(kind) and kind != pa.binary(16) and not pa.types.is_null(kind) and not is_uuid(kind):
            raise refused_type(kind, "string, fixed_size_binary[16] or arrow.uuid", cast="string")

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, str) and _IS_UUID.match(value) and not value.endswith("\n"):
            return self._encoder.encode(value.lower())
        if isinstance(value, bytes | bytearray) and len(value) == 16:
            value = UUID(bytes=bytes(value))
        if not isinstance(value, UUID):
            raise refused_value(value, "a UUID, its text of 36 characters, or its 16 bytes")
        return self._encoder.encode(str(value))

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        self.accepts(column.type)
        if pa.types.is_null(column.type):
            return null_column(len(column))
        if is_text(column.type):
            text = _checked_uuids(column.cast(pa.string()))
        else:
            text = uuid_text(column.storage if isinstance(column, pa.ExtensionArray) else column)
        return self._encoder.encode_column(text)


def uuid_text(column: pa.Array) -> pa.Array:
    """Returns fixed_size_binary[16] as text of 36 characters."""
    bits = np.frombuffer(column.buffers()[1], np.uint8, len(column) * 16, column.offset * 16) if len(column) else _NOTHING
    text = np.full((len(column), 36), ord("-"), np.uint8)
    text[:, _DIGIT_PLACES] = _hex_digits()[bits].reshape(-1, 32)
    return text_array(fixed_width_array(text, valid_mask(column)))


def _checked_uuids(column: pa.Array) -> pa.Array:
    fits = pc.match_substring_regex(checked_text(column), UUID_TEXT)
    wrong = first_row(validity(column) & ~numbers(fits.cast(pa.uint8()), np.bool_))
    if wrong is not None:
        raise SerializationError(f"row {wrong}: text is not a valid UUID (36 characters with dashes)", row=wrong)
    return pc.ascii_lower(column)


@cache
def _hex_digits() -> NDArray[np.uint8]:
    """Returns the two hexadecimal digits of each byte, shape (256, 2)."""
    return np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)


_NOTHING = np.zeros(0, np.uint8)
