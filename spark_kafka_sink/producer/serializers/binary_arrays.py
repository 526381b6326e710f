"""Binary arrays out of numpy's: buffers are handed over, nothing is copied twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.option import INT32_MAX
from spark_kafka_sink.records.arrow_arrays import byte_column, offsets_of, scalar_of_bytes, valid_mask

Valid = NDArray[np.bool_] | None  # None: no row is null


def null_column(rows: int) -> pa.Array:
    return pa.nulls(rows, pa.binary())


def binary_array(data: Any, offsets: NDArray[Any], valid: Valid = None) -> pa.Array:
    """Row i is `data[offsets[i]:offsets[i + 1]]`, or null. data: a buffer; it is not copied."""
    large = int(offsets[-1]) > INT32_MAX
    offsets = np.ascontiguousarray(offsets, np.int64 if large else np.int32)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    kind = pa.large_binary() if large else pa.binary()
    return pa.Array.from_buffers(kind, len(offsets) - 1, [bits, pa.py_buffer(offsets), pa.py_buffer(data)])


def fixed_width_array(values: NDArray[Any], valid: Valid) -> pa.Array:
    """Each row's bytes as they lie in memory. values: shape (rows,) or (rows, width), contiguous."""
    width = values.nbytes // max(len(values), 1)
    return binary_array(values, np.arange(len(values) + 1, dtype=np.int64) * width, valid)


def as_binary(column: pa.Array) -> pa.Array:
    """The same rows as binary, whose memory is shared if it was binary or string."""
    return byte_column(column).cast(pa.binary())


def joined(*parts: Any) -> pa.Array:
    """Each row's parts one after the other; null where one is. parts: arrays or scalars of one type, binary or string."""
    kind = next(part.type for part in parts if isinstance(part, pa.Array))
    return pc.binary_join_element_wise(*parts, scalar_of_bytes(b"", kind))


def text_array(column: pa.Array) -> pa.Array:
    """Binary of text that was made here, as string."""
    return pa.Array.from_buffers(pa.string(), len(column), column.buffers(), offset=column.offset)


def checked_text(column: pa.Array) -> pa.Array:
    """Text with nothing in the place of nulls, or SerializationError with the first row that is no UTF-8, which Spark allows."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise _not_utf8(column) from None
    return column.fill_null(scalar_of_bytes(b"", column.type)) if column.null_count else column


def _not_utf8(column: pa.Array) -> SerializationError:
    first, last = 0, len(column)  # the first bad row is in [first, last)
    while last - first > 1:
        middle = (first + last) // 2
        try:
            column.slice(first, middle - first).validate(full=True)
            first = middle
        except pa.ArrowInvalid:
            last = middle
    return SerializationError(f"row {first}: text that is no UTF-8", row=first)


def first_row(mask: NDArray[np.bool_]) -> int | None:
    """The first row that is true."""
    row = int(mask.argmax()) if len(mask) else 0
    return row if len(mask) and mask[row] else None


__all__ = [
    "Valid",
    "as_binary",
    "binary_array",
    "checked_text",
    "first_row",
    "fixed_width_array",
    "joined",
    "null_column",
    "offsets_of",
    "text_array",
    "valid_mask",
]
