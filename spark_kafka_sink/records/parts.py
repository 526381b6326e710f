"""Columns of encoded values as lists of parts: what a row holds is the concatenation of its parts, which `join` carries out.

A part is a `Packed`, up to 8 bytes per row, or a `Views`, a column of byte strings. A part may be empty for some rows. So a field
that some rows lack is masked, and the fields of a nested record are just more parts of the record around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, bitmap, byte_lengths
from spark_kafka_sink.records.concat import Lengths, Views, column_views, concat_rows, keep_freed_memory
from spark_kafka_sink.records.varints import Packed, Words

Part = Packed | Views

_WORD = 8
_KEPT_MB = 24  # a field needs about 0.4 MB for 10,000 rows
_MAX_WORDS = 2  # a longer constant is a view, which costs one struct per row


@dataclass(frozen=True, slots=True)
class Present:
    """The rows that have a value, at least one.

    Attributes:
        rows: mask, True where a row has a value.
        words: the same with all 64 bits set.
        count: number of these rows.
    """

    rows: NDArray[np.bool_]
    words: Words
    count: int

    @classmethod
    def of(cls, rows: NDArray[np.bool_]) -> Present:
        words = (-rows.view(np.int8)).astype(np.int64).view(np.uint64)  # sign extension sets all bits
        return cls(rows, words, int(np.count_nonzero(rows)))

    def first(self) -> int:
        """Returns the first row that has a value."""
        return int(self.rows.argmax())


def masked(parts: Sequence[Part], present: Present | None) -> list[Part]:
    """Returns the same parts, empty in rows without a value. None: every row has one."""
    if present is None:
        return list(parts)
    return [_masked_packed(part, present) if isinstance(part, Packed) else _masked_views(part, present) for part in parts]


def _masked_packed(part: Packed, present: Present) -> Packed:
    return Packed(0 if _is_zero(part) else present.words & part.word, present.words & part.bits, part.max_bytes)


def _is_zero(part: Packed) -> bool:
    return isinstance(part.word, int) and part.word == 0


def _masked_views(part: Views, present: Present) -> Views:
    return replace(part, lengths=np.where(present.rows, part.lengths, -1), shortest=-1)


def constant(data: bytes) -> list[Part]:
    """Returns parts that hold the same bytes in every row."""
    if len(data) > _MAX_WORDS * _WORD:
        column = array_of_bytes([data])
        return [column_views(column, byte_lengths(column), None)]
    words = [data[start : start + _WORD] for start in range(0, len(data), _WORD)]
    return [Packed(int.from_bytes(word, "little"), 8 * len(word), len(word)) for word in words]


def sizes(parts: Sequence[Part]) -> Lengths:
    """Returns each row's size in bytes; an int applies to every row."""
    bits: Words | int = 0
    size: Lengths = 0
    for part in parts:
        if isinstance(part, Packed):
            bits = part.bits + bits
        else:
            size = part.sizes() + size
    return ((bits >> 3) if isinstance(bits, int) else (bits >> 3).view(np.int64)) + size


def join(rows: int, parts: Sequence[Part], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Returns each row's parts as one binary value; large_binary if there are more than 2 GiB.

    Above 10,000 rows the scratch memory leaves the caches, so larger columns are better joined piece by piece.

    Args:
        rows: number of rows.
        parts: the parts, which have that number of rows or the same value for every row.
        valid: mask of the rows that do not become null. The others must be empty. None: no row becomes null.
    """
    keep_freed_memory(_KEPT_MB)
    size = sizes(parts)
    offsets = np.zeros(rows + 1, np.int64)
    if isinstance(size, int):
        offsets[1:] = np.arange(1, rows + 1) * size
    else:
        np.cumsum(size, out=offsets[1:])
    total = int(offsets[-1])
    data = concat_rows(rows, parts, total) if total else pa.py_buffer(b"")
    large = total > INT32_MAX
    held = pa.py_buffer(offsets if large else offsets.astype(np.int32))
    bits = None if valid is None else bitmap(valid)
    return pa.Array.from_buffers(pa.large_binary() if large else pa.binary(), rows, [bits, held, data])
