"""Fits an Avro schema to the type of a column: one walk over both makes the plan to encode by, or finds all misfits.

Fields are matched by name, in any order. The walk ends where the column's type ends, so a recursive schema fits as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.formats.avro.avro_defaults import default_bytes
from spark_kafka_sink.formats.avro.avro_derive import is_natural
from spark_kafka_sink.formats.avro.avro_nested import (
    MOST_BRANCHES,
    ArrayNode,
    Leaf,
    MapNode,
    MembersNode,
    NullNode,
    RecordNode,
    UnionNode,
)
from spark_kafka_sink.formats.avro.avro_scalars import scalar_kernel
from spark_kafka_sink.formats.avro.avro_schema import (
    MISSING,
    Array,
    AvroType,
    Field,
    Map,
    Primitive,
    Record,
    Union,
    is_null,
)
from spark_kafka_sink.formats.schemas.kernel import Misfit, MisfitError
from spark_kafka_sink.formats.schemas.nodes import DictionaryNode, Node, encoded
from spark_kafka_sink.formats.schemas.schema_format import ColumnPlan
from spark_kafka_sink.producer.serializers.arrays import is_list, is_text
from spark_kafka_sink.producer.serializers.bad_row import BadRowError

_NULL_REFUSED: Final = "it has only nulls, and the schema does not allow null"


@dataclass(frozen=True, slots=True)
class AvroPlan(ColumnPlan):
    """How to encode columns of one type by one Avro schema."""

    schema: AvroType
    kind: pa.DataType
    _node: Node

    def encode(self, column: pa.Array, prefix: bytes = b"") -> pa.Array:
        node = self._node if column.type == self.kind else fit(self.schema, column.type)._node
        if isinstance(node, DictionaryNode):  # its values may contain a null, which the rows' own nulls do not show
            node, column = node.node, column.dictionary_decode()
        try:
            return encoded(node, column, prefix, keep_nulls=True)
        except BadRowError as bad:
            raise SerializationError(f"row {bad.row}: {bad}", row=bad.row, path=bad.path.lstrip(".")) from None
        except RecursionError:
            raise SerializationError("the type of the columns is nested too deeply") from None


def fit(schema: AvroType, kind: pa.DataType) -> AvroPlan:
    """Makes the plan for columns of a type.

    Args:
        schema: the schema, as `avro_schema.parse` returns it.
        kind: type of the columns; a struct for a record.

    Raises:
        SchemaError: The schema does not fit the type. The text has a line for each misfit, and `facts` has them as `misfits`.
    """
    walk = _Walk()
    try:
        node = walk.node(schema, kind, "")
    except RecursionError:
        raise SchemaError("the Avro schema, or the type of the columns, is nested too deeply") from None
    if walk.misfits or node is None:
        lines = "".join(f"\n  {misfit}" for misfit in walk.misfits)
        text = f"{counted(len(walk.misfits), 'field')} of the Avro schema and the columns do not fit:{lines}"
        raise SchemaError(
            text,
            fields=tuple(misfit.path for misfit in walk.misfits),
            misfits=tuple((misfit.path, misfit.column, misfit.schema, misfit.reason) for misfit in walk.misfits),
        )
    return AvroPlan(schema, kind, node)


class _Walk:
    """Walks over a schema and a type. It keeps the misfits; a node of None stands for at least one."""

    def __init__(self) -> None:
        self.misfits: list[Misfit] = []

    def node(self, schema: AvroType, kind: pa.DataType, path: str) -> Node | None:
        if pa.types.is_dictionary(kind):
            inner = self.node(schema, kind.value_type, path)
            return None if inner is None else DictionaryNode(inner)
        match schema:
            case Union():
                return self._union(schema, kind, path)
            case Primitive(kind="null"):
                return NullNode() if pa.types.is_null(kind) else self._misfit(path, kind, schema, "null holds no values")
            case _ if pa.types.is_null(kind):
                return self._misfit(path, kind, schema, _NULL_REFUSED)
            case Record():
                return self._record(schema, kind, path)
            case Array():
                if not is_list(kind):
                    return self._misfit(path, kind, schema, "it must be an array")
                items = self.node(schema.items, kind.value_type, f"{path}[]")
                return None if items is None else ArrayNode(items)
            case Map():
                return self._map(schema, kind, path)
            case _:
                try:
                    return Leaf(scalar_kernel(schema, kind))
                except MisfitError as error:
                    return self._misfit(path, kind, schema, str(error))

    def _misfit(self, path: str, kind: pa.DataType | str, schema: AvroType | str, reason: str) -> Node | None:
        self.misfits.append(Misfit(path.lstrip("."), str(kind), str(schema), reason))
        return None

    def _record(self, schema: Record, kind: pa.DataType, path: str) -> Node | None:
        if not pa.types.is_struct(kind):
            return self._misfit(path, kind, schema, "it must be a struct")
        before = len(self.misfits)
        names = [kind.field(index).name for index in range(kind.num_fields)]
        known = {field.name for field in schema.fields}
        fields: list[tuple[str, int, Node] | bytes] = []
        for field in schema.fields:
            inside = f"{path}.{field.name}"
            if names.count(field.name) > 1:
                self._misfit(inside, "twice", field.type, "two columns have this name")
            elif field.name in names:
                index = names.index(field.name)
                node = self.node(field.type, kind.field(index).type, inside)
                if node is not None:
                    fields.append((field.name, index, node))
            else:
                fields.append(self._default(field, [name for name in names if name not in known], inside))
        for name in dict.fromkeys(names):
            if name not in known and not any(name.lower() == other.lower() for other in known - set(names)):
                index = names.index(name)
                self._misfit(f"{path}.{name}", kind.field(index).type, "missing", "drop the column, or add it to the schema")
        return RecordNode(fields) if len(self.misfits) == before else None

    def _default(self, field: Field, unknown: Sequence[str], path: str) -> bytes:
        """Returns the bytes of a field that has no column. unknown: the columns that have no field."""
        similar = next((name for name in unknown if name.lower() == field.name.lower()), None)
        if similar is not None:
            self._misfit(path, "missing", field.type, f"the column {similar} differs in case: rename it to {field.name}")
        elif field.default is MISSING:
            self._misfit(path, "missing", field.type, "the schema has no default: add the column")
        else:
            try:
                return default_bytes(field)
            except MisfitError as error:
                self._misfit(path, "missing", field.type, str(error))
        return b""

    def _map(self, schema: Map, kind: pa.DataType, path: str) -> Node | None:
        if not pa.types.is_map(kind):
            return self._misfit(path, kind, schema, "it must be a map")
        inside = f"{path}[]"
        if not is_text(kind.key_type):
            return self._misfit(inside, kind.key_type, "string", "the keys of a map must be string")
        keys = self.node(Primitive("string"), kind.key_type, inside)
        values = self.node(schema.values, kind.item_type, inside)
        if keys is None or values is None:
            return None
        return MapNode(RecordNode([("key", 0, keys), ("value", 1, values)]))

    def _union(self, schema: Union, kind: pa.DataType, path: str) -> Node | None:
        null = schema.null
        branches = [(index, branch) for index, branch in enumerate(schema.branches) if not is_null(branch)]
        if len(schema.branches) > MOST_BRANCHES:
            return self._misfit(path, kind, "union", f"a union of more than {MOST_BRANCHES} types is not supported")
        if pa.types.is_null(kind):
            return UnionNode(None, 0, null) if null is not None else self._misfit(path, kind, schema, _NULL_REFUSED)
        if len(branches) == 1:
            index, branch = branches[0]
            node = self.node(branch, kind, path)
            return None if node is None else UnionNode(node, index, null)
        if _is_members(kind, len(branches)):
            return self._members(schema, kind, path)
        fitting = [(index, branch) for index, branch in branches if _fits(branch, kind)]
        natural = [(index, branch) for index, branch in fitting if is_natural(branch, kind)]
        chosen = natural if len(natural) == 1 else fitting
        if len(chosen) == 1:
            index, branch = chosen[0]
            node = self.node(branch, kind, path)
            return None if node is None else UnionNode(node, index, null)
        reason = "several types of the union fit" if chosen else "no type of the union fits"
        return self._misfit(path, kind, schema, f"{reason}; a struct with the fields {_members_of(branches)} fits")

    def _members(self, schema: Union, kind: pa.DataType, path: str) -> Node | None:
        members: list[tuple[int, Node]] = []
        branches = [(index, branch) for index, branch in enumerate(schema.branches) if not is_null(branch)]
        for number in range(kind.num_fields):
            field = kind.field(number)
            index, branch = branches[int(field.name.removeprefix("member"))]
            node = self.node(branch, field.type, f"{path}.{field.name}")
            if node is not None:
                members.append((index, node))
        return MembersNode(members, schema.null) if len(members) == len(branches) else None


def _is_members(kind: pa.DataType, branches: int) -> bool:
    """Returns whether a type is Spark's struct for a union: a field `member0`, `member1` ... for each type but null."""
    if not pa.types.is_struct(kind):
        return False
    names = [kind.field(index).name for index in range(kind.num_fields)]
    return sorted(names) == sorted(f"member{number}" for number in range(branches))


def _members_of(branches: Sequence[object]) -> str:
    return f"member0 to member{len(branches) - 1}"


def _fits(schema: AvroType, kind: pa.DataType) -> bool:
    trial = _Walk()
    return trial.node(schema, kind, "") is not None and not trial.misfits
