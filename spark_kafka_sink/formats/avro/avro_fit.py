"""Fits an Avro schema to the type of a column: one walk over both makes the plan to encode by, or finds all misfits.

Fields are matched by name, in any order. The walk ends where the column's type ends, so a recursive schema fits as well.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import pyarrow as pa

from spark_kafka_sink.formats.avro.avro_defaults import default_bytes
from spark_kafka_sink.formats.avro.avro_derive import is_natural
from spark_kafka_sink.formats.avro.avro_nodes import (
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
from spark_kafka_sink.formats.fit import NodePlan, Walk
from spark_kafka_sink.formats.nodes import DictionaryNode, MisfitError, Node
from spark_kafka_sink.producer.serializers.arrays import is_list, is_text

_NULL_REFUSED: Final = "it has only nulls, and the schema does not allow null"


def fit(schema: AvroType, kind: pa.DataType) -> NodePlan:
    """Makes the plan for columns of a type.

    Args:
        schema: the schema, as `avro_schema.parse` returns it.
        kind: type of the columns; a struct for a record.

    Raises:
        SchemaError: The schema does not fit the type. The text has a line for each misfit, and `facts` has them as `misfits`.
    """
    walk = _Walk()
    node = walk.run("Avro schema", lambda: walk.node(schema, kind, ""))
    assert node is not None
    return NodePlan(kind, node, partial(fit, schema))


class _Walk(Walk):
    """Walks over an Avro schema and a type. A node of None stands for at least one misfit."""

    def node(self, schema: AvroType, kind: pa.DataType, path: str) -> Node | None:
        if pa.types.is_dictionary(kind):
            inner = self.node(schema, kind.value_type, path)
            return None if inner is None else DictionaryNode(inner)
        match schema:
            case Union():
                return self._union(schema, kind, path)
            case Primitive(kind="null"):
                return NullNode() if pa.types.is_null(kind) else self.misfit(path, kind, schema, "null holds no values")
            case _ if pa.types.is_null(kind):
                return self.misfit(path, kind, schema, _NULL_REFUSED)
            case Record():
                return self._record(schema, kind, path)
            case Array():
                if not is_list(kind):
                    return self.misfit(path, kind, schema, "it must be an array")
                items = self.node(schema.items, kind.value_type, f"{path}[]")
                return None if items is None else ArrayNode(items)
            case Map():
                return self._map(schema, kind, path)
            case _:
                try:
                    return Leaf(scalar_kernel(schema, kind))
                except MisfitError as error:
                    return self.misfit(path, kind, schema, str(error))

    def _record(self, schema: Record, kind: pa.DataType, path: str) -> Node | None:
        if not pa.types.is_struct(kind):
            return self.misfit(path, kind, schema, "it must be a struct")
        before = len(self.misfits)
        types = {field.name: field.type for field in schema.fields}
        defaults = {field.name: field for field in schema.fields}
        fields: list[tuple[str, int, Node] | bytes] = []
        for name, inside, index in self.columns(types, kind, path):
            if index is None:
                fields.append(self._default(defaults[name], inside))
            elif (node := self.node(types[name], kind.field(index).type, inside)) is not None:
                fields.append((name, index, node))
        return RecordNode(fields) if len(self.misfits) == before else None

    def _default(self, field: Field, path: str) -> bytes:
        """Returns the bytes of a field that has no column."""
        if field.default is MISSING:
            self.misfit(path, "missing", field.type, "the schema has no default: add the column")
        else:
            try:
                return default_bytes(field)
            except MisfitError as error:
                self.misfit(path, "missing", field.type, str(error))
        return b""

    def _map(self, schema: Map, kind: pa.DataType, path: str) -> Node | None:
        if not pa.types.is_map(kind):
            return self.misfit(path, kind, schema, "it must be a map")
        inside = f"{path}[]"
        if not is_text(kind.key_type):
            return self.misfit(inside, kind.key_type, "string", "the keys of a map must be string")
        keys = self.node(Primitive("string"), kind.key_type, inside)
        values = self.node(schema.values, kind.item_type, inside)
        if keys is None or values is None:
            return None
        return MapNode(RecordNode([("key", 0, keys), ("value", 1, values)]))

    def _union(self, schema: Union, kind: pa.DataType, path: str) -> Node | None:
        null = schema.null
        branches = [(index, branch) for index, branch in enumerate(schema.branches) if not is_null(branch)]
        if len(schema.branches) > MOST_BRANCHES:
            return self.misfit(path, kind, "union", f"a union of more than {MOST_BRANCHES} types is not supported")
        if pa.types.is_null(kind):
            return UnionNode(None, 0, null) if null is not None else self.misfit(path, kind, schema, _NULL_REFUSED)
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
        return self.misfit(path, kind, schema, f"{reason}; a struct with the fields member0 to member{len(branches) - 1} fits")

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


def _fits(schema: AvroType, kind: pa.DataType) -> bool:
    trial = _Walk()
    return trial.node(schema, kind, "") is not None and not trial.misfits
