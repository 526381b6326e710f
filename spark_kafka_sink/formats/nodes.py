"""Nodes of a plan: each encodes columns of one type, level by level, without Python per row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.producer.serializers.arrays import first_not_utf8, first_row
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, numbers, offsets_of, valid_mask, validity
from spark_kafka_sink.records.parts import Part, Present, constant, join, masked

_ROWS: Final = 10_000


class Node(ABC):
    """One type of the schema, together with the type of its column."""

    @abstractmethod
    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        """Returns what each row of a column becomes.

        Args:
            column: rows of the type for which the node was made, at least one of them present.
            present: the rows that have a place in the result. The others are null and become nothing. None: all rows.

        Raises:
            BadRowError: The schema cannot hold a row.
        """


@dataclass(frozen=True, slots=True)
class DictionaryNode(Node):
    """A dictionary column, whose values are encoded like any others. They may contain a null."""

    node: Node

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        return self.node.parts(column.dictionary_decode(), present)


def encoded(node: Node, column: pa.Array, before: bytes = b"", *, keep_nulls: bool) -> pa.Array:
    """Returns each row's bytes after `before`.

    keep_nulls: null rows stay null. Otherwise they are encoded, as the node allows. Raises BadRowError.
    """
    pieces = [_encoded(node, column, start, before, keep_nulls) for start in range(0, len(column), _ROWS)]
    if not pieces:
        return pa.nulls(0, pa.binary())
    if len(pieces) == 1:
        return pieces[0]
    if any(piece.type != pa.binary() for piece in pieces) or sum(piece.nbytes for piece in pieces) > INT32_MAX:
        pieces = [piece.cast(pa.large_binary()) for piece in pieces]
    return pa.concat_arrays(pieces)


def _encoded(node: Node, column: pa.Array, start: int, before: bytes, keep_nulls: bool) -> pa.Array:
    rows = column.slice(start, _ROWS) if len(column) > _ROWS else column
    if keep_nulls and rows.null_count == len(rows):
        return pa.nulls(len(rows), pa.binary())
    valid = valid_mask(rows) if keep_nulls else None
    present = None if valid is None else Present.of(valid)
    try:
        parts = [*masked(constant(before), present), *node.parts(rows, present)]
    except BadRowError as bad:
        raise bad.inside(start + bad.row, "") from None
    return join(len(rows), parts, valid)


Kernel = Callable[[pa.Array, Present | None], Sequence[Part]]


class MisfitError(Exception):
    """A column's type does not fit the schema. The text is the reason."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """One difference between a column and a schema. `column` and `schema` are their types in words, or `missing`."""

    path: str
    column: str
    schema: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path or 'the value'}: column {self.column}, schema {self.schema}: {self.reason}"


_MOST_NAMES: Final = 10


def listed(names: Collection[str]) -> str:
    """Returns names of a schema for an error, at most ten."""
    more = len(names) - _MOST_NAMES
    return quoted(", ".join(islice(names, _MOST_NAMES))) + (f" and {more:,} more" if more > 0 else "")


def filled(values: NDArray[Any], present: Present | None) -> NDArray[Any]:
    """Returns the values, with the first present one in all rows without a value.

    With a value of the column in place of 0, all varints often have one width, which takes less time.
    """
    return values if present is None else np.where(present.rows, values, values[present.first()])


# Shared parts of kernels

WHOLE: Final[Mapping[pa.DataType, type[np.integer[Any]]]] = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.uint8(): np.uint8,
    pa.uint16(): np.uint16,
    pa.uint32(): np.uint32,
    pa.uint64(): np.uint64,
}
PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
MS_PER_DAY: Final = 86_400_000


def check_range(values: NDArray[Any], limits: tuple[int, int], target: str) -> tuple[int, int]:
    """Returns the least and the greatest of some numbers. Raises BadRowError for the first one that is out of range."""
    low, high = int(values.min()), int(values.max())
    if low < limits[0] or high > limits[1]:
        bad = first_row((values < limits[0]) | (values > limits[1]))
        assert bad is not None
        raise BadRowError(bad, f"{values[bad]} is out of range for {target}")
    return low, high


def bits(column: pa.Array) -> NDArray[np.uint8]:
    """Returns each row of a boolean column as 0 or 1."""
    start = column.offset // 8
    skip = column.offset - 8 * start
    data = np.frombuffer(column.buffers()[1], np.uint8, (skip + len(column) + 7) // 8, start)
    return np.unpackbits(data, count=skip + len(column), bitorder="little")[skip:]


def plain(column: pa.Array) -> pa.Array:
    """Returns the same bytes in a type that has offsets."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(column.type) or pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.large_binary())
    return column


def plain_text(column: pa.Array) -> pa.Array:
    """Returns what `plain` does. Raises BadRowError for the first row that is not valid UTF-8."""
    column = plain(column)
    bad = first_not_utf8(column)
    if bad is not None:
        raise BadRowError(bad, "text is not valid UTF-8")
    return column


def symbol_places(
    symbols: Sequence[str], kind: pa.DataType, problem: str
) -> Callable[[pa.Array, Present | None], NDArray[np.int32]]:
    """Returns what finds the place of each row's text among symbols. It raises BadRowError for the first row without one."""
    own = pa.string() if pa.types.is_string_view(kind) else kind
    known = array_of_bytes([symbol.encode() for symbol in symbols], own)

    def places(column: pa.Array, present: Present | None) -> NDArray[np.int32]:
        found = pc.index_in(column.cast(own), known)
        valid = valid_mask(found)
        if valid is not None:
            bad = first_row(~valid if present is None else present.rows & ~valid)
            if bad is not None:
                raise BadRowError(bad, problem)
        return filled(numbers(found, np.int32), present)

    return places


def check_nulls(column: pa.Array, present: Present | None, no_null: str | None) -> bool:
    """Returns whether any row has a value. Raises BadRowError for the first present row that is null if it must not be.

    no_null: what is wrong with a null; None: nothing.
    """
    if no_null is not None and column.null_count > (0 if present is None else len(column) - present.count):
        missing = ~validity(column)
        bad = first_row(missing if present is None else missing & present.rows)
        if bad is not None:
            raise BadRowError(bad, no_null)
    return bool(column.null_count < len(column))


def rows_of(elements: pa.Array, starts: NDArray[np.int64]) -> pa.Array:
    """Returns each row's encoded elements as one binary value, in the same memory."""
    offsets = pa.py_buffer(offsets_of(elements)[starts])
    return pa.Array.from_buffers(elements.type, len(starts) - 1, [None, offsets, elements.buffers()[2]])
