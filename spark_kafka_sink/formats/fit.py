"""Shared parts of fitting a schema to the type of a column: the misfits, the columns of fields, and the plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.formats.nodes import DictionaryNode, Misfit, Node, encoded
from spark_kafka_sink.formats.schema_format import NAME, ColumnPlan
from spark_kafka_sink.producer.serializers.bad_row import BadRowError

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
