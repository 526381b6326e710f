"""Serializers for text and UUIDs: Kafka's StringSerializer and UUIDSerializer, with encodings under Java's names.

Text is encoded as Java's String.getBytes does. A column is decoded and encoded as a whole, and row boundaries are counted. As in
Java, characters that an encoding lacks become its replacement. A lone surrogate is no character: Java writes the replacement for
it, and here it is an error, as in a column, whose text cannot hold it. Code pages are not supported: most differ between Java and
Python or between Java versions, and an unnoticed wrong byte is worse than an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import OptionError, SerializationError
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.arrays import (
    binary_array,
    checked_text,
    first_row,
    fixed_width_array,
    is_text,
    is_uuid,
    null_column,
    text_array,
)
from spark_kafka_sink.producer.serializers.serializer import Serializer, refused_type, refused_value
from spark_kafka_sink.records.arrow_arrays import numbers, offsets_of, valid_mask, validity

_HALF_PAIR = re.compile("[\ud800-\udfff]")
_LONE = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")


@dataclass(frozen=True)
class TextEncoder:
    """One encoding, by Java's name. codec: Python's codec, which writes the same bytes. unit: bytes per character; in UTF-16 a
    character above U+FFFF takes two units. UTF-8 columns are passed through. bom: whether non-empty text begins with U+FEFF.
    """

    name: str
    codec: str
    unit: int
    bom: bool = False

    def encode(self, text: str) -> bytes:
        """Returns the encoded text. Raises SerializationError for a lone surrogate."""
        mark = "\ufeff" if self.bom and text else ""
        try:
            return (mark + text).encode(self.codec)
        except UnicodeEncodeError:
            return (mark + whole_pairs(text, self.name)).encode(self.codec, "replace")

    def encode_column(self, column: pa.Array) -> pa.Array:
        """Returns the encoded column. `column` is string or large_string. Raises SerializationError that names a row."""
        if self.codec == "utf-8":
            return column
        points, starts = _code_points(column)
        if self.bom:
            has_text = np.diff(starts) > 0
            points = np.insert(points, starts[:-1][has_text], 0xFEFF)
            starts = starts + _running_count(has_text)
        data = points.tobytes().decode("utf-32-le").encode(self.codec, "replace")
        units = starts + _running_count(points > 0xFFFF)[starts] if self.unit == 2 else starts
        return binary_array(data, units * self.unit, valid_mask(column))


UTF_8 = TextEncoder("UTF-8", "utf-8", 1)

# Java's other names for each, in the form that _plain returns.
_ENCODERS: Sequence[tuple[TextEncoder, str]] = (
    (UTF_8, "utf8 unicode-1-1-utf-8"),
    (TextEncoder("UTF-16", "utf-16-be", 2, bom=True), "utf16 unicode unicodebig"),
    (TextEncoder("UTF-16BE", "utf-16-be", 2), "x-utf-16be iso-10646-ucs-2 unicodebigunmarked"),
    (TextEncoder("UTF-16LE", "utf-16-le", 2), "x-utf-16le unicodelittleunmarked"),
    (TextEncoder("UTF-32", "utf-32-be", 4), "utf32"),
    (TextEncoder("UTF-32BE", "utf-32-be", 4), "x-utf-32be"),
    (TextEncoder("UTF-32LE", "utf-32-le", 4), "x-utf-32le"),
    (
        TextEncoder("US-ASCII", "ascii", 1),
        "ascii ascii7 default us 646 cp367 ibm367 csascii iso-ir-6 iso646-us iso-646.irv:1983 iso-646.irv:1991"
        " ansi-x3.4-1968 ansi-x3.4-1986",
    ),
    (
        TextEncoder("ISO-8859-1", "latin-1", 1),
        "latin1 latin-1 l1 819 cp819 ibm819 ibm-819 8859-1 iso8859-1 iso-8859-1:1987 iso-ir-100 csisolatin1",
    ),
)


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")


_BY_NAME: Mapping[str, TextEncoder] = {
    name: found for found, others in _ENCODERS for name in (_plain(found.name), *others.split())
}


def encoder(name: str, option: str) -> TextEncoder:
    """Returns the encoder for Java's name of an encoding, in any case. Raises OptionError, which names `option`, for others."""
    found = _BY_NAME.get(_plain(name))
    if found is None:
        names = ", ".join(one.name for one, _ in _ENCODERS)
        raise OptionError(f"option {option}: encoding {name!r} is not supported: must be one of {names}", option=option)
    return found


def whole_pairs(text: str, encoding: str) -> str:
    """Joins surrogate pairs into characters, as Java does. Raises SerializationError for a lone surrogate."""
    if text.isascii() or not _HALF_PAIR.search(text):
        return text
    lone = _LONE.search(text)
    if lone is not None:
        raise SerializationError(f"text with a lone surrogate at {lone.start()} cannot be encoded as {encoding}")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _code_points(column: pa.Array) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Returns all characters of a text column, and the n + 1 offsets of its rows among them. Nulls have none."""
    column = checked_text(column)
    offsets = offsets_of(column).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last:
        return np.zeros(0, np.uint32), offsets - first
    data = np.frombuffer(column.buffers()[2], np.uint8, last - first, first)
    points = np.frombuffer(str(data.data, "utf-8").encode("utf-32-le"), "<u4")
    return points, _running_count((data & 0xC0) != 0x80)[offsets - first]


def _running_count(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    counts = np.zeros(len(mask) + 1, np.int64)
    np.cumsum(mask, out=counts[1:])
    return counts


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
    """Writes the 36 characters of Java's UUID.toString. Accepts UUID, its text or 16 bytes, and columns of text or 16 bytes."""

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
    return np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)


_NOTHING = np.zeros(0, np.uint8)
