"""A byte column as Arrow's 16-byte view structs over its own memory: rows are put in order by moving structs, not bytes.

A struct is `int32 length | 12 bytes` for up to 12 bytes, else `int32 length | 4 bytes | int32 buffer | int32 offset`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.errors import RecordTooLargeError, SchemaError

INLINE = 12  # bytes that a view struct itself can hold
INT32_MAX = 2**31 - 1
Order = NDArray[np.intp] | None
Lengths = NDArray[np.int64] | int

_SAME_BYTES_AS = {
    pa.binary().id: pa.binary(),
    pa.string().id: pa.binary(),
    pa.large_binary().id: pa.large_binary(),
    pa.large_string().id: pa.large_binary(),
}
_LARGE_OFFSETS = (pa.large_binary().id, pa.large_string().id, pa.large_list(pa.null()).id)


@dataclass(frozen=True, slots=True)
class Views:
    """A column, to be put in `order`. `lengths` are in that order already, -1 for null; an int holds for every row.
    The structs of null rows hold anything."""

    structs: NDArray[np.complex128]
    buffers: list[Any]
    lengths: Lengths
    longest: int
    has_nulls: bool
    order: Order

    def sizes(self) -> Lengths:
        """The lengths with 0 for null."""
        if isinstance(self.lengths, int):
            return max(self.lengths, 0)
        return np.maximum(self.lengths, 0) if self.has_nulls else self.lengths


def holds_bytes(kind: pa.DataType) -> bool:
    """Whether a column of this type can be sent as it is."""
    return kind.id in _SAME_BYTES_AS


def byte_column(array: pa.Array) -> pa.Array:
    """The same memory as binary or large_binary: text needs no check here, its bytes are what is sent."""
    wanted = _SAME_BYTES_AS.get(array.type.id)
    if wanted is None:
        raise SchemaError(f"a column of type {array.type} holds no bytes: cast it to binary or string", type=str(array.type))
    return pa.Array.from_buffers(wanted, len(array), array.buffers(), offset=array.offset)


def offsets_of(array: pa.Array) -> NDArray[Any]:
    """The n+1 offsets of a binary, string or list column (int32 or int64), for the rows of this slice only."""
    dtype = np.dtype(np.int64 if array.type.id in _LARGE_OFFSETS else np.int32)
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(len(array) + 1, dtype)
    return np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)


def valid_mask(array: pa.Array) -> NDArray[np.bool_] | None:
    """True where a row is not null; None when no row is."""
    if array.null_count == 0:
        return None
    start = array.offset // 8
    packed = np.frombuffer(array.buffers()[0], np.uint8, (array.offset + len(array) + 7) // 8 - start, start)
    skip = array.offset - start * 8
    return np.unpackbits(packed, count=skip + len(array), bitorder="little")[skip:].view(np.bool_)


@dataclass(frozen=True, slots=True)
class ByteLengths:
    """Bytes of each row of a column, -1 for null, and the least and the most of them (0 without rows)."""

    rows: NDArray[np.int64]
    shortest: int
    longest: int

    @property
    def is_constant(self) -> bool:
        return self.shortest == self.longest


def byte_lengths(array: pa.Array) -> ByteLengths:
    offsets = offsets_of(array)
    lengths: NDArray[np.int64] = (offsets[1:] - offsets[:-1]).astype(np.int64, copy=False)
    valid = valid_mask(array)
    if valid is not None:
        lengths[~valid] = -1
    return ByteLengths(lengths, int(lengths.min()), int(lengths.max())) if len(lengths) else ByteLengths(lengths, 0, 0)


def column_views(array: pa.Array, lengths: ByteLengths, order: Order) -> Views:
    """Views of a binary, string, large_binary or large_string column, sliced or not, with its lengths."""
    shortest, longest = lengths.shortest, lengths.longest
    if longest > INT32_MAX:
        raise RecordTooLargeError(f"a value of {longest} bytes is over {INT32_MAX}, the most Kafka can hold", size=longest)
    structs, buffers = _structs(byte_column(array))
    if lengths.is_constant:
        return Views(structs, buffers, longest, longest, longest < 0, order)
    return Views(structs, buffers, lengths.rows if order is None else lengths.rows[order], longest, shortest < 0, order)


def _structs(array: pa.Array) -> tuple[NDArray[np.complex128], list[Any]]:
    """The structs of all rows and the buffers they point into. 16-byte items: numpy gathers complex128 fastest."""
    parts, buffers = [], list[Any]()
    for piece in _pieces(array):
        views = piece.cast(pa.binary_view())
        structs = np.frombuffer(views.buffers()[1], np.complex128, len(piece), views.offset * 16)
        if buffers:
            structs = structs.copy()
            fields = structs.view(np.int32)
            shift_buffers(fields[0::4], fields[2::4], len(buffers))
        parts.append(structs)
        buffers += views.buffers()[2:]
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)), buffers


def _pieces(array: pa.Array) -> list[pa.Array]:
    """Runs of rows of under 2 GiB each, their offsets counted from 0: a struct's offset is 32 bits, and Arrow's cast of a
    large_binary looks at the whole data buffer, however small the slice."""
    if array.type == pa.binary():
        return [array]
    offsets = offsets_of(array)
    cuts = [0]
    while cuts[-1] < len(array):
        fits = int(np.searchsorted(offsets, offsets[cuts[-1]] + INT32_MAX, "right")) - 1
        cuts.append(min(fits, len(array)))
    data = array.buffers()[2]
    pieces = []
    for start, end in pairwise(cuts):
        own = offsets[start : end + 1] - offsets[start]
        run = None if data is None else data.slice(int(offsets[start]), int(own[-1]))
        pieces.append(pa.Array.from_buffers(pa.large_binary(), end - start, [None, pa.py_buffer(own), run]))
    return pieces


def shift_buffers(lengths: NDArray[np.int32], indexes: NDArray[np.int32], by: int) -> None:
    """Only structs that point somewhere have a buffer index; in the others these bytes are data."""
    indexes += np.where(lengths > INLINE, np.int32(by), np.int32(0))
