"""List columns of Arrow taken apart and put together, whichever of its list types they have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.records.arrow_arrays import filled_numbers, offsets_of


def list_parts(column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """All elements of a list column, and where each row begins among them (and the last ends); a null list has none."""
    lengths = filled_numbers(pc.list_value_length(column).cast(pa.int64()), np.int64, 0)
    starts = np.zeros(len(column) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return column.flatten(), starts


def place_in_list(starts: NDArray[np.int64], at: int) -> tuple[int, int]:
    """The row of element `at` of all, and its place there."""
    row = int(np.searchsorted(starts, at, "right")) - 1
    return row, at - int(starts[row])


def joined_lists(elements: pa.Array, starts: NDArray[np.int64]) -> pa.Array:
    """Each row's elements, one after the other: their memory, seen in longer pieces. elements: binary without nulls."""
    return pa.Array.from_buffers(
        pa.binary(), len(starts) - 1, [None, pa.py_buffer(offsets_of(elements)[starts]), elements.buffers()[2]]
    )
