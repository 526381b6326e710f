"""Nodes of a plan: each encodes columns of one type, level by level, without Python per row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.records.arrow_arrays import valid_mask
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
