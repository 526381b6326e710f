"""Helpers that take Arrow arrays apart and build them: binary arrays from numpy arrays, lists, maps, and column types.

Buffers are passed on without needless copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.producer.partitioners.key_hash import murmur2
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
        pass  # it is looked for
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


class BadRowError(Exception):
    """A row that a format cannot hold. `path` leads to the value inside of it."""

    def __init__(self, row: int, problem: str, path: str = "") -> None:
        super().__init__(row, problem, path)
        self.row, self.problem, self.path = row, problem, path

    def __str__(self) -> str:
        return f"{self.path.lstrip('.')}: {self.problem}" if self.path else self.problem

    def inside(self, row: int, step: str) -> BadRowError:
        """Returns the error of the row that contains this value. `step` leads from that row to the value."""
        return BadRowError(row, self.problem, step + self.path)


_MOST_COMPARED: Final = 64
_GOLDEN_RATIO: Final = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing


def check_keys(keys: pa.Array, starts: NDArray[np.int64]) -> None:
    """Raises BadRowError for the first map that has a key twice: readers keep only one value. Arrow has no maps with a null key.

    Hashes tell the keys of almost all columns apart, at 10 to 20 ns for each key: a tenth of the time of writing a map as JSON,
    up to a half of writing it as Avro. Keys with one hash are compared.

    Args:
        keys: the keys of all maps.
        starts: where the keys of each map begin, and where the last one's end.
    """
    lengths = np.diff(starts)
    most = int(lengths.max(initial=0))
    if most < 2:
        return
    rows = np.repeat(np.arange(len(lengths), dtype=np.uint64) << np.uint64(32), lengths)
    if pa.types.is_dictionary(keys.type):  # its values may be there twice
        keys = keys.dictionary_decode()
    if pa.types.is_string_view(keys.type):
        keys = keys.cast(pa.string())
    hashes = _hashes(keys)
    if hashes is not None and _first_repeated(hashes | rows, most) is None:
        return
    codes = filled_numbers(keys.dictionary_encode().indices, np.int32, 0)
    twice = _first_repeated(codes.view(np.uint32) | rows, most)
    if twice is not None:
        raise BadRowError(twice, "a map has a key twice")


def _hashes(keys: pa.Array) -> NDArray[np.uint64] | None:
    """Returns a hash of 32 bits for each key; None: the type has none."""
    if is_text(keys.type):
        return murmur2(as_binary(keys)).view(np.uint32).astype(np.uint64)
    if pa.types.is_integer(keys.type):
        numbers = filled_numbers(keys, keys.type.to_pandas_dtype(), 0).astype(np.uint64)
        return numbers * _GOLDEN_RATIO >> np.uint64(32)
    return None


def _first_repeated(numbers: NDArray[np.uint64], most: int) -> int | None:
    """Returns the first row that has a number twice. numbers: the row in the upper half. most: the most that a row has."""
    if most <= _MOST_COMPARED:  # each number with those after it takes less time than sorting
        found = [numbers[step:][numbers[step:] == numbers[:-step]] for step in range(1, most)]
    else:
        numbers = np.sort(numbers)
        found = [numbers[1:][numbers[1:] == numbers[:-1]]]
    return min((int(one.min()) >> 32 for one in found if len(one)), default=None)
