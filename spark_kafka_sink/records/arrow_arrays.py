"""Arrow arrays out of numpy's and of Python's lists, and numpy arrays out of Arrow's, through their buffers alone.

pyarrow's own ways (`pa.array`, `pa.scalar`, `to_numpy`, `fill_null` with a Python value) import pandas first: 350 modules and
0.4 s of CPU in each Python worker, for nothing that the sink needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.records.views import INT32_MAX, valid_mask

_LARGE = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}


def array_of_numbers(values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """The same whole numbers, floats or booleans. Only booleans, and what is not contiguous, are copied.

    valid: False where a row is null; None where no row is.
    """
    present = None if valid is None else bitmap(valid)
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), len(values), [present, bitmap(values)])
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [present, pa.py_buffer(np.ascontiguousarray(values))]
    )


def bitmap(values: NDArray[np.bool_]) -> pa.Buffer:
    """A bit for each row, as Arrow has them."""
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def array_of_bytes(values: Sequence[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """A column of binary, large_binary, string or large_string; null for None.

    kind: its type; binary where it is left out. The offsets of binary and string have 32 bits: over 2 GiB it is the large type.
    Raises TypeError for what is neither bytes nor None.
    """
    kind = pa.binary() if kind is None else kind
    try:
        data, valid = b"".join(values), None  # type: ignore[arg-type]  # None is what the error is for
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
        raise TypeError("a buffer whose items are no bytes")
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


@lru_cache(1024)
def scalar_of_bytes(value: bytes | None, kind: pa.DataType) -> pa.Scalar:
    """One value of binary, string or their large types. Some are kept: most are constants of the code."""
    return array_of_bytes([value], kind)[0]


def text_scalar(value: str) -> pa.Scalar:
    """One value of string."""
    return scalar_of_bytes(value.encode(), pa.string())


def numbers(column: pa.Array, dtype: Any) -> NDArray[Any]:
    """The rows of a column of numbers, whose memory is seen as `dtype`; anything in the place of nulls. Not to be written to."""
    kind = np.dtype(dtype)
    if len(column) == 0:
        return np.zeros(0, kind)
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * kind.itemsize)


def filled_numbers(column: pa.Array, dtype: Any, null: int) -> NDArray[Any]:
    """The same, with `null` in the place of nulls; copied only where there are some."""
    values, valid = numbers(column, dtype), valid_mask(column)
    return values if valid is None else np.where(valid, values, values.dtype.type(null))


def validity(column: pa.Array) -> NDArray[np.bool_]:
    """True where a row is not null, of every row."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.bool_)
    valid = valid_mask(column)
    return np.ones(len(column), np.bool_) if valid is None else valid
