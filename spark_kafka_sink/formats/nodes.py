"""Fits columns to a schema and encodes them: a walk over both makes a plan of nodes, or finds all misfits.

Each node encodes columns of one type, level by level, without Python per row."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.formats.schema_format import NAME, ColumnPlan
from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.producer.serializers.arrays import BadRowError, first_not_utf8, first_row
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, numbers, offsets_of, valid_mask, validity
from spark_kafka_sink.records.concat import Part, Present, constant, join, masked
from spark_kafka_sink.records.varints import Packed, Words

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
    pa.from_numpy_dtype(dtype): dtype
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
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


def floats(target: str, kind: pa.DataType) -> Callable[[pa.Array], NDArray[np.floating[Any]]]:
    """Returns how to read a column as `target`, float or double. Raises MisfitError if that would lose digits."""
    if target == "float" and kind not in (pa.float16(), pa.float32()):
        raise MisfitError("it would lose digits: cast it to float" if kind == pa.float64() else "it must be float")
    if not pa.types.is_floating(kind):
        raise MisfitError("it must be double or float")
    own, dtype = kind.to_pandas_dtype(), np.float32 if target == "float" else np.float64
    return lambda column: numbers(column, own).astype(dtype, copy=False)


def float_bits(values: NDArray[np.floating[Any]]) -> Packed:
    """Returns the bytes of floats, the lowest first."""
    size = values.itemsize
    word: Words = values.view(f"u{size}").astype(np.uint64, copy=False)
    return Packed(word, 8 * size, size)


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


_T = TypeVar("_T")


class Derivation:
    """A walk over the type of a column, which derives a schema and keeps the columns that the format cannot hold."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str]] = []

    def problem(self, path: str, problem: str) -> None:
        self.problems.append((path.lstrip(".") or "the value", problem))

    def check_name(self, name: str, path: str, format: str) -> None:
        if not NAME.fullmatch(name):
            text = re.sub(r"[^A-Za-z0-9_]", "_", name)
            valid = text if NAME.fullmatch(text) else f"_{text}"
            self.problem(path, f"is not a valid {format} name: rename it, for example to {valid}")

    def end(self, format: str) -> None:
        """Raises SchemaError if there were problems."""
        if self.problems:
            lines = "".join(f"\n  {path}: {problem}" for path, problem in self.problems)
            raise SchemaError(f"{format} cannot hold the columns:{lines}", fields=tuple(path for path, _ in self.problems))


def comment_of(field: pa.Field) -> str:
    return str((field.metadata or {}).get(b"comment", b"").decode(errors="replace"))


def check_full_name(name: str, format: str) -> None:
    """Raises SchemaError for a name of a derived record that is not valid."""
    if not all(NAME.fullmatch(part) for part in name.split(".")):
        raise SchemaError(f"{name!r} is not a valid {format} name: each part must match {NAME.pattern}", name=name)


def unused(name: str, taken: set[str], before_number: str = "") -> str:
    """Adds a name, with a number if it is taken, and returns it."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}{before_number}{number}"
    taken.add(found)
    return found


class Walk:
    """A walk over a schema and a type, which keeps the misfits."""

    def __init__(self) -> None:
        self.misfits: list[Misfit] = []

    def misfit(self, path: str, kind: pa.DataType | str, schema: object, reason: str) -> Node | None:
        """Notes a misfit. Returns None, in place of a node."""
        self.misfits.append(Misfit(path.lstrip("."), str(kind), str(schema), reason))
        return None

    def columns(self, fields: Mapping[str, object], kind: pa.DataType, path: str) -> Iterator[tuple[str, str, int | None]]:
        """Yields name and path of each field, and the index of its column; None: it has none.

        Fields with two columns, fields whose column differs in case, and columns without a field are misfits.

        Args:
            fields: what each field is in words, by its name.
            kind: the struct.
            path: the struct's path.
        """
        names = [kind.field(index).name for index in range(kind.num_fields)]
        unknown = {name.lower(): name for name in reversed(names) if name not in fields}
        for name, words in fields.items():
            inside = f"{path}.{name}"
            if names.count(name) > 1:
                self.misfit(inside, "twice", words, "two columns have this name")
            elif name in names:
                yield name, inside, names.index(name)
            elif (similar := unknown.get(name.lower())) is not None:
                self.misfit(inside, "missing", words, f"the column {similar} differs in case: rename it to {name}")
            else:
                yield name, inside, None
        told = {name.lower() for name in fields if name not in names}
        for name in dict.fromkeys(names):
            if name not in fields and name.lower() not in told:
                column = kind.field(names.index(name)).type
                self.misfit(f"{path}.{name}", column, "missing", "drop the column, or add it to the schema")

    def run(self, schema: str, step: Callable[[], _T]) -> _T:
        """Returns the result of a walk. Raises SchemaError, which lists the misfits, if there are any."""
        try:
            found = step()
        except RecursionError:
            raise SchemaError(f"the {schema}, or the type of the columns, is nested too deeply") from None
        misfits = list(dict.fromkeys(self.misfits))
        if misfits:
            lines = "".join(f"\n  {misfit}" for misfit in misfits)
            raise SchemaError(
                f"{counted(len(misfits), 'field')} of the {schema} and the columns do not fit:{lines}",
                fields=tuple(misfit.path for misfit in misfits),
                misfits=tuple((misfit.path, misfit.column, misfit.schema, misfit.reason) for misfit in misfits),
            )
        return found


@dataclass(frozen=True, slots=True)
class NodePlan(ColumnPlan):
    """How to encode columns of one type.

    Attributes:
        kind: type of the columns.
        node: encodes them.
        fit: makes the plan for columns of another type.
    """

    kind: pa.DataType
    node: Node
    fit: Callable[[pa.DataType], NodePlan]

    def encode(self, column: pa.Array, prefix: bytes = b"") -> pa.Array:
        node = self.node if column.type == self.kind else self.fit(column.type).node
        if isinstance(node, DictionaryNode):  # its values may contain a null, which the rows' own nulls do not show
            node, column = node.node, column.dictionary_decode()
        try:
            return encoded(node, column, prefix, keep_nulls=True)
        except BadRowError as bad:
            raise bad_row(bad) from None
        except RecursionError:
            raise SerializationError("the type of the columns is nested too deeply") from None


def bad_row(bad: BadRowError) -> SerializationError:
    """Returns the error about a row that the schema cannot hold."""
    return SerializationError(f"row {bad.row}: {bad}", row=bad.row, path=bad.path.lstrip("."))
