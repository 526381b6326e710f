"""Text as Java's String.getBytes writes it in each encoding: UTF-8, UTF-16, UTF-32, and code pages by tables.

A column is decoded and encoded as a whole; where each row begins is counted. What an encoding has no bytes for becomes its
replacement, as in Java: half of a surrogate pair too, which Arrow's text cannot hold.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.serializers.binary_arrays import binary_array, checked_text
from spark_kafka_sink.records.arrow_arrays import offsets_of, valid_mask

_HALF_PAIR = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\ufffd"  # of the encoders of UTF-16 and UTF-32; the others have '?'


class TextEncoder(Protocol):
    """One encoding. `name` is Java's."""

    @property
    def name(self) -> str: ...

    def encode(self, text: str) -> bytes: ...

    def encode_column(self, column: pa.Array) -> pa.Array:
        """column: string or large_string. SerializationError names a row."""
        ...


@dataclass(frozen=True)
class Utf8:
    """Columns are UTF-8 already, and not looked at."""

    name: str

    def encode(self, text: str) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError:
            return whole_pairs(text, "?").encode()

    def encode_column(self, column: pa.Array) -> pa.Array:
        return column


@dataclass(frozen=True)
class Utf16:
    """order: > big endian, < little. bom: text that is not empty begins with U+FEFF."""

    name: str
    order: str
    bom: bool = False

    def encode(self, text: str) -> bytes:
        marked = "\ufeff" + text if self.bom and text else text
        return whole_pairs(marked, REPLACEMENT).encode("utf-16-be" if self.order == ">" else "utf-16-le")

    def encode_column(self, column: pa.Array) -> pa.Array:
        points, starts = code_points(column)
        units = np.frombuffer(points.tobytes().decode("utf-32-le").encode("utf-16-le"), "<u2")
        offsets = starts + _running_count(points > 0xFFFF)[starts]
        if self.bom:
            has_text = np.diff(offsets) > 0
            units = np.insert(units, offsets[:-1][has_text], 0xFEFF)
            offsets = offsets + _running_count(has_text)
        return binary_array(units.astype(self.order + "u2"), offsets * 2, valid_mask(column))


@dataclass(frozen=True)
class Utf32:
    """Never with a byte order mark."""

    name: str
    order: str

    def encode(self, text: str) -> bytes:
        return whole_pairs(text, REPLACEMENT).encode("utf-32-be" if self.order == ">" else "utf-32-le")

    def encode_column(self, column: pa.Array) -> pa.Array:
        points, starts = code_points(column)
        return binary_array(points.astype(self.order + "u4"), starts * 4, valid_mask(column))


@dataclass(frozen=True)
class CodePage:
    """An encoding of one to three bytes a character, by Python's codec and what Java has otherwise.

    differences: other bytes, or none where Java has no bytes. private_use: whether U+E000 to U+F8FF are the same in both; if
    not, they are refused.
    """

    name: str
    codec: str
    differences: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    private_use: bool = True

    def encode(self, text: str) -> bytes:
        points = np.frombuffer(whole_pairs(text, REPLACEMENT).encode("utf-32-le"), "<u4")
        self._check(points)
        return self._encoded(points)[0].tobytes()

    def encode_column(self, column: pa.Array) -> pa.Array:
        points, starts = code_points(column)
        self._check(points, starts)
        data, ends = self._encoded(points)
        return binary_array(data, ends[starts], valid_mask(column))

    def _encoded(self, points: NDArray[np.uint32]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The bytes of all characters, and where each begins (and the last ends)."""
        codes, lengths = self._tables
        rows = np.minimum(points, len(lengths) - 1)
        each = lengths[rows]
        ends = np.zeros(len(points) + 1, np.int64)
        np.cumsum(each, out=ends[1:])
        width = codes.shape[1]
        wide = codes[rows]
        return (wide.reshape(-1) if width == 1 else wide[np.arange(width) < each[:, None]]), ends

    @cached_property
    def _tables(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """For each character up to U+FFFF, and one for all above, its bytes and how many they are. About 0.1 s to make."""
        # The byte of '?' also where that is another character, as in EBCDIC: CharsetEncoder.replacement().
        found = [self._bytes_of(chr(point)) or b"?" for point in range(0x10000)] + [b"?"]
        lengths = np.array([len(code) for code in found], np.uint8)
        width = int(lengths.max())
        codes = np.frombuffer(b"".join(code.ljust(width, b"\0") for code in found), np.uint8).reshape(-1, width)
        return codes, lengths

    def _bytes_of(self, character: str) -> bytes:
        if character in self.differences:
            return self.differences[character]
        code = codecs.encode(character, self.codec, "ignore")
        return b"" if len(code) > 3 else code  # Python's EUC-KR spells syllables that it does not have with eight

    def _check(self, points: NDArray[np.uint32], starts: NDArray[Any] | None = None) -> None:
        if self.private_use:
            return
        bad = (points >= 0xE000) & (points <= 0xF8FF)
        if not bad.any():
            return
        at = int(bad.argmax())
        row = {} if starts is None else {"row": int(np.searchsorted(starts, at, "right")) - 1}
        text = f"the character for private use U+{int(points[at]):04X} has no bytes in {self.name} that are sure to be Java's"
        raise SerializationError("".join(f"row {at}: " for at in row.values()) + text, **row)


def whole_pairs(text: str, replacement: str) -> str:
    """Two halves of a surrogate pair as the character that they are for Java; a half alone as the replacement."""
    if text.isascii() or not _HALF_PAIR.search(text):
        return text
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _HALF_PAIR.sub(replacement, paired)


def code_points(column: pa.Array) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """All characters of a text column, and where each row begins among them (and the last ends); nulls have none."""
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
