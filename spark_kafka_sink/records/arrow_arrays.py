"""Conversions between Arrow arrays, numpy arrays and Python lists through buffers.

pyarrow's functions for this (`pa.array`, `pa.scalar`, `to_numpy`, `fill_null` with a Python value) import pandas first. That is
350 modules and 0.4 s of CPU in each Python worker, and the sink needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.options.option import INT32_MAX

_SAME_BYTES_AS = {
    pa.binary().id: pa.binary(),
    pa.string().id: pa.binary(),
    pa.large_binary().id: pa.large_binary(),
    pa.large_string().id: pa.large_binary(),
}
_LARGE_OFFSETS = (pa.large_binary().id, pa.large_string().id, pa.large_list(pa.null()).id)
_OFFSETS_OF_32_BITS = (pa.binary().id, pa.string().id)
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
_LARGE = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}


def array_of_numbers(values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Returns an array of the same integers, floats or booleans. It copies only booleans and non-contiguous values.

    valid: False where a row is null. None: no row is null.
    """
    present = None if valid is None else bitmap(valid)
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), len(values), [present, bitmap(values)])
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [present, pa.py_buffer(np.ascontiguousarray(values))]
    )


def bitmap(values: NDArray[np.bool_]) -> pa.Buffer:
    """Returns an Arrow bitmap with one bit per row."""
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def array_of_bytes(values: Sequence[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """Returns a column of binary, large_binary, string or large_string. None becomes null.

    kind: the type, which defaults to binary. Offsets of binary and string have 32 bits, so columns over 2 GiB get the large type.
    Raises TypeError for values other than bytes and None.
    """
    kind = pa.binary() if kind is None else kind
    try:
        data, valid = b"".join(values), None  # type: ignore[arg-type]  # the error is about None
        lengths = np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
    except TypeError:
        present = [b"" if value is None else value for value in values]
        data = b"".join(present)
        lengths = np.fromiter(map(len, present), np.int64, len(values))
        valid = bitmap(np.array([value is not None for value in values], np.bool_))
    if len(data) > INT32_MAX:
        kind = _LARGE.get(kind, kind)
    offsets = np.zeros(len(values) + 1, np.int32 if kind in _LARGE else np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if int(offsets[-1]) != len(data):
        raise TypeError("the items of the buffer are not bytes")
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


@lru_cache(1024)
def scalar_of_bytes(value: bytes | None, kind: pa.DataType) -> pa.Scalar:
    """Returns a scalar of binary, string or their large types. Some are cached, because most are constants."""
    return array_of_bytes([value], kind)[0]


def text_scalar(value: str) -> pa.Scalar:
    """Returns a string scalar."""
    return scalar_of_bytes(value.encode(), pa.string())


# Out of Arrow


def numbers(column: pa.Array, dtype: Any) -> NDArray[Any]:
    """Returns a read-only view of a column of numbers as `dtype`. Null rows hold any value."""
    kind = np.dtype(dtype)
    if len(column) == 0:
        return np.zeros(0, kind)
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * kind.itemsize)


def filled_numbers(column: pa.Array, dtype: Any, null: int) -> NDArray[Any]:
    """Returns the same with `null` in null rows. It copies only if there are nulls."""
    values, valid = numbers(column, dtype), valid_mask(column)
    return values if valid is None else np.where(valid, values, values.dtype.type(null))


def validity(column: pa.Array) -> NDArray[np.bool_]:
    """Returns a mask of all rows: True where a row is not null."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.bool_)
    valid = valid_mask(column)
    return np.ones(len(column), np.bool_) if valid is None else valid


@lru_cache(8)
def cast_to(kind: pa.DataType) -> Callable[[list[pa.Array]], pa.Array]:
    """Returns Arrow's cast of one array, in a list, without the Python code around it: 10 us less within an append."""
    return partial(pc.get_function("cast").call, options=pc.CastOptions.safe(kind))


def holds_bytes(kind: pa.DataType) -> bool:
    """Returns whether a column of this type can be sent unchanged."""
    return kind.id in _SAME_BYTES_AS


def byte_column(array: pa.Array) -> pa.Array:
    """Returns the same memory as binary or large_binary. Text needs no check, because its bytes are sent unchanged."""
    kind = _SAME_BYTES_AS.get(array.type.id)
    if kind is None:
        raise SchemaError(f"a column of type {array.type} does not hold bytes: cast it to binary or string", type=str(array.type))
    return pa.Array.from_buffers(kind, len(array), array.buffers(), offset=array.offset)


def offsets_of(array: pa.Array) -> NDArray[Any]:
    """Returns the n+1 offsets (int32 or int64) of a binary, string or list column, only for the rows of this slice."""
    dtype = _INT64 if array.type.id in _LARGE_OFFSETS else _INT32
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(len(array) + 1, dtype)
    return np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)


def has_offsets_of_32_bits(array: pa.Array) -> bool:
    """Returns whether a column of bytes is binary or string, which hold less than 2 GiB."""
    return array.type.id in _OFFSETS_OF_32_BITS


def valid_mask(array: pa.Array) -> NDArray[np.bool_] | None:
    """Returns a mask, True where a row is not null, or None if no row is null."""
    if array.null_count == 0:
        return None
    start = array.offset // 8
    packed = np.frombuffer(array.buffers()[0], np.uint8, (array.offset + len(array) + 7) // 8 - start, start)
    skip = array.offset - start * 8
    return np.unpackbits(packed, count=skip + len(array), bitorder="little")[skip:].view(np.bool_)


class ByteLengths(NamedTuple):
    """The size in bytes of each row of a column, -1 for null, with their minimum and maximum (0 without rows)."""

    rows: NDArray[np.int64]
    shortest: int
    longest: int

    @property
    def is_constant(self) -> bool:
        return self.shortest == self.longest


def repeated(number: int, rows: int) -> NDArray[np.int64]:
    """Returns a read-only array with the same number for each row, which takes the memory of one (its stride is 0)."""
    return np.ndarray((rows,), np.int64, number.to_bytes(8, "little", signed=True), 0, (0,))


def repeated_number(numbers: NDArray[np.int64]) -> int | None:
    """Returns the number of an array that `repeated` made, and None for most others."""
    return int(numbers[0]) if numbers.strides == (0,) and len(numbers) else None


def byte_lengths(array: pa.Array) -> ByteLengths:
    offsets = offsets_of(array)
    differences = offsets[1:] - offsets[:-1]
    rows = len(differences)
    # The common case takes 3 calls of numpy instead of 4, and no memory for each row.
    if rows and array.null_count == 0:
        first = int(differences[0])
        if first * rows == int(offsets[-1]) - int(offsets[0]) and np.count_nonzero(differences != first) == 0:
            return ByteLengths(repeated(first, rows), first, first)
    lengths: NDArray[np.int64] = differences.astype(np.int64, copy=False)
    valid = valid_mask(array)
    if valid is not None:
        lengths[~valid] = -1
    return ByteLengths(lengths, int(lengths.min()), int(lengths.max())) if len(lengths) else ByteLengths(lengths, 0, 0)
