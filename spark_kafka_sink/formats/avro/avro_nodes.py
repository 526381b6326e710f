"""Encodes columns level by level, without Python per row: each node of a plan turns a column into parts.

A nested record adds no bytes, only its fields' parts. The elements of lists and maps are encoded once, as one column. A row's
value is a view of that column's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.formats.nodes import Kernel, Node, check_nulls, encoded, rows_of
from spark_kafka_sink.producer.serializers.arrays import entries_of, first_row, list_parts, place_in_list
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.producer.serializers.map_keys import check_keys
from spark_kafka_sink.records.arrow_arrays import byte_lengths, valid_mask, validity
from spark_kafka_sink.records.concat import Views, column_views
from spark_kafka_sink.records.parts import Part, Present, constant, masked
from spark_kafka_sink.records.varints import ZERO_BYTE, Packed, varints

_NO_NULL: Final = "is null, and the schema does not allow null"
MOST_BRANCHES: Final = 64  # so that the index of a union's branch is one byte


@dataclass(frozen=True, slots=True)
class Leaf(Node):
    """A type that has no parts."""

    kernel: Kernel

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        check_nulls(column, present, _NO_NULL)
        parts = self.kernel(column, present)
        # Views have no bytes in null rows.
        return parts if present is None else [one if isinstance(one, Views) else masked([one], present)[0] for one in parts]


class NullNode(Node):
    """Avro's null, which has no bytes."""

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        return ()


@dataclass(frozen=True, slots=True)
class UnionNode(Node):
    """A union of which a column uses one branch, and the branch null if there is one.

    Attributes:
        node: the branch; None: all rows are null.
        branch: its index in the union.
        null: index of the branch null; None: the union has none.
    """

    node: Node | None
    branch: int
    null: int | None

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        if self.null is None:
            check_nulls(column, present, _NO_NULL)
            assert self.node is not None
            return [*masked([_index(self.branch)], present), *self.node.parts(column, present)]
        if self.node is None or column.null_count == len(column):
            return masked([_index(self.null)], present)
        rows = valid_mask(column)
        if rows is None:
            return [*masked([_index(self.branch)], present), *self.node.parts(column, present)]
        valid = Present.of(rows)
        word = valid.words & (2 * (self.branch ^ self.null)) ^ (2 * self.null)
        index: Part = Packed(word, 8, 1)
        return [*masked([index], present), *self.node.parts(column, valid)]


@dataclass(frozen=True, slots=True)
class MembersNode(Node):
    """A union of several types, whose column is a struct with a field for each. At most one field of a row has a value.

    Attributes:
        members: for each field its branch's index in the union, and its node.
        null: index of the branch null; None: the union has none.
    """

    members: Sequence[tuple[int, Node]]
    null: int | None

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        children = column.flatten()
        found = [validity(child) for child in children]
        counts: NDArray[np.int64] = np.add.reduce(found, dtype=np.int64)
        bad = first_row(counts > 1)
        if bad is not None:
            raise BadRowError(bad, "more than one member of the union has a value")
        if self.null is None:
            bad = first_row((counts == 0) if present is None else (counts == 0) & present.rows)
            if bad is not None:
                raise BadRowError(bad, "no member of the union has a value, and the schema does not allow null")
        word = np.full(len(column), 2 * (self.null or 0), np.uint64)
        parts: list[Part] = []
        for (branch, node), child, rows in zip(self.members, children, found, strict=True):
            if rows.any():
                word[rows] = 2 * branch
                parts += node.parts(child, Present.of(rows))
        return [*masked([Packed(word, 8, 1)], present), *parts]


@dataclass(frozen=True, slots=True)
class RecordNode(Node):
    """A record.

    Attributes:
        fields: in the schema's order, a column's name, its index in the struct, and its node; or the bytes of a default.
    """

    fields: Sequence[tuple[str, int, Node] | bytes]

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        check_nulls(column, present, _NO_NULL)
        children = column.flatten()
        parts: list[Part] = []
        for field in self.fields:
            if isinstance(field, bytes):
                parts += masked(constant(field), present)
                continue
            name, index, node = field
            try:
                parts += node.parts(children[index], present)
            except BadRowError as bad:
                raise bad.inside(bad.row, f".{name}") from None
        return parts


@dataclass(frozen=True, slots=True)
class ArrayNode(Node):
    """An array: one block with all elements."""

    items: Node

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        check_nulls(column, present, _NO_NULL)
        elements, starts = list_parts(column)
        return _blocks(self.items, elements, starts, present)


@dataclass(frozen=True, slots=True)
class MapNode(Node):
    """A map: one block with all entries, which are records of a key and a value."""

    entries: RecordNode

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        check_nulls(column, present, _NO_NULL)
        elements, starts = list_parts(entries_of(column))
        check_keys(elements.flatten()[0], starts)
        return _blocks(self.entries, elements, starts, present)


def _blocks(node: Node, elements: pa.Array, starts: NDArray[np.int64], present: Present | None) -> Sequence[Part]:
    """Returns each row's elements as Avro writes them: their number, the elements, and 0. If there are none, the 0 alone."""
    if not len(elements):
        return masked([ZERO_BYTE], present)
    try:
        items = encoded(node, elements, keep_nulls=False)
    except BadRowError as bad:
        row, place = place_in_list(starts, bad.row)
        raise bad.inside(row, f"[{place}]") from None
    held = rows_of(items, starts)
    counts = np.diff(starts)
    has_any = counts > 0
    end = [ZERO_BYTE] if has_any.all() else masked([ZERO_BYTE], Present.of(has_any))
    return [*masked(varints(counts), present), column_views(held, byte_lengths(held), None), *end]


def _index(branch: int) -> Part:
    return Packed(2 * branch, 8, 1)
