"""Helpers that take Arrow arrays apart and build them: binary arrays from numpy arrays, lists, and column types.

Buffers are passed on without needless copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.records.arrow_arrays import bitmap, byte_column, filled_numbers, offsets_of, scalar_of_bytes

Valid = NDArray[np.bool_] | None  # None: no row is null


def null_column(rows: int) -> pa.Array:
    return pa.nulls(rows, pa.binary())


def binary_array(data: Any, offsets: NDArray[Any], valid: Valid = None) -> pa.Array:
    """Returns an array whose row i is `data[offsets[i]:offsets[i + 1]]`, or null. `data` is a buffer and is not copied."""
    large = int(offsets[-1]) > INT32_MAX
    offsets = np.ascontiguousarray(offsets, np.int64 if large else np.int32)
    bits = None if valid is None else bitmap(valid)
    kind = pa.large_binary() if large else pa.binary()
    return pa.Array.from_buffers(kind, len(offsets) - 1, [bits, pa.py_buffer(offsets), pa.py_buffer(data)])


def fixed_width_array(values: NDArray[Any], valid: Valid) -> pa.Array:
    """Returns each row's bytes as they are in memory. values: shape (rows,) or (rows, width), contiguous."""
    width = values.nbytes // max(len(values), 1)
    return binary_array(values, np.arange(len(values) + 1, dtype=np.int64) * width, valid)


def as_binary(column: pa.Array) -> pa.Array:
    """Returns the same rows as binary. The memory is shared if they were binary or string."""
    return byte_column(column).cast(pa.binary())


def joined(*parts: Any) -> pa.Array:
    """Returns each row's parts concatenated; null if any part is null. parts: arrays or scalars of one type, binary or string."""
    kind = next(part.type for part in parts if isinstance(part, pa.Array))
    return pc.binary_join_element_wise(*parts, scalar_of_bytes(b"", kind))


def text_array(column: pa.Array) -> pa.Array:
    """Returns binary that is known to be valid UTF-8 as string."""
    return pa.Array.from_buffers(pa.string(), len(column), column.buffers(), offset=column.offset)


def checked_text(column: pa.Array) -> pa.Array:
    """Returns text with empty nulls. Raises SerializationError for the first row that is not valid UTF-8, which Spark allows."""
    bad = first_not_utf8(column)
    if bad is not None:
        raise SerializationError(f"row {bad}: text is not valid UTF-8", row=bad)
    return column.fill_null(scalar_of_bytes(b"", column.type)) if column.null_count else column


def first_not_utf8(column: pa.Array) -> int | None:
    """Returns the first row of a text column that is not valid UTF-8. Spark passes such text. column: string or large_string."""
    offsets = offsets_of(column)
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last or np.frombuffer(column.buffers()[2], np.uint8, last - first, first).max() < 0x80:
        return None  # ASCII, which takes a tenth of the time to find out
    return first_invalid(column, lambda rows: rows.validate(full=True))


def first_invalid(column: pa.Array, check: Callable[[pa.Array], object]) -> int | None:
    """Returns the first row for which `check` raises ArrowInvalid. It takes a slice and raises if any of its rows is invalid."""
    try:
        check(column)
        return None
    except pa.ArrowInvalid:
        pass
    first, last = 0, len(column)  # the first bad row is in [first, last)
    while last - first > 1:
        middle = (first + last) // 2
        try:
            check(column.slice(first, middle - first))
            first = middle
        except pa.ArrowInvalid:
            last = middle
    return first


def first_row(mask: NDArray[np.bool_]) -> int | None:
    """Returns the index of the first true row."""
    row = int(mask.argmax()) if len(mask) else 0
    return row if len(mask) and mask[row] else None


# Lists of all Arrow list types


def list_parts(column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Returns all elements of a list column, and the n + 1 offsets of its rows among them. A null list has no elements."""
    lengths = filled_numbers(pc.list_value_length(column).cast(pa.int64()), np.int64, 0)
    starts = np.zeros(len(column) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return column.flatten(), starts


def entries_of(column: pa.Array) -> pa.Array:
    """Returns a map column as a list of structs of a key and a value, which shares its memory.

    Arrow's cast to that type leaves lists of nulls in a sliced map with wrong offsets. The next kernel then ends the process.
    """
    pairs = column.values
    return pa.Array.from_buffers(pa.list_(pairs.type), len(column), column.buffers()[:2], offset=column.offset, children=[pairs])


def place_in_list(starts: NDArray[np.int64], at: int) -> tuple[int, int]:
    """Returns the row of element `at`, and its position in that row."""
    row = int(np.searchsorted(starts, at, "right")) - 1
    return row, at - int(starts[row])


def joined_lists(elements: pa.Array, starts: NDArray[np.int64]) -> pa.Array:
    """Returns each row's elements concatenated, sharing their memory. elements: binary without nulls."""
    return pa.Array.from_buffers(
        pa.binary(), len(starts) - 1, [None, pa.py_buffer(offsets_of(elements)[starts]), elements.buffers()[2]]
    )


# Column types


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    is_plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(is_plain or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"
