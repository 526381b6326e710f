"""Fits an Avro schema to the type of a column: one walk over both makes the plan to encode by, or finds all misfits.

Fields are matched by name, in any order. The walk ends where the column's type ends, so a recursive schema fits as well.

A column is encoded level by level: each node of the plan turns it into parts. A nested record adds no bytes, only its fields'
parts. The elements of lists and maps are encoded once, as one column. A row's value is a view of that column's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.formats.avro.avro_defaults import default_bytes
from spark_kafka_sink.formats.avro.avro_scalars import scalar_kernel
from spark_kafka_sink.formats.avro.avro_schema import (
    MISSING,
    Array,
    AvroType,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    is_null,
)
from spark_kafka_sink.formats.nodes import (
    DictionaryNode,
    Kernel,
    MisfitError,
    Node,
    NodePlan,
    Walk,
    check_nulls,
    encoded,
    rows_of,
)
from spark_kafka_sink.producer.serializers.arrays import (
    BadRowError,
    check_keys,
    entries_of,
    first_row,
    is_list,
    is_text,
    is_uuid,
    list_parts,
    place_in_list,
)
from spark_kafka_sink.records.arrow_arrays import byte_lengths, valid_mask, validity
from spark_kafka_sink.records.concat import Part, Present, Views, column_views, constant, masked
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
        elif self.node is None or column.null_count == len(column):
            return masked([_index(self.null)], present)
        assert self.node is not None
        rows = None if self.null is None else valid_mask(column)
        if self.null is None or rows is None:
            return [*masked([_index(self.branch)], present), *self.node.parts(column, present)]
        valid = Present.of(rows)
        word = valid.words & (2 * (self.branch ^ self.null)) ^ (2 * self.null)
        return [*masked([Packed(word, 8, 1)], present), *self.node.parts(column, valid)]


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
        chosen = branches
        if len(branches) != 1:
            if _is_members(kind, len(branches)):
                return self._members(branches, null, kind, path)
            fitting = [(index, branch) for index, branch in branches if _fits(branch, kind)]
            natural = [(index, branch) for index, branch in fitting if is_natural(branch, kind)]
            chosen = natural if len(natural) == 1 else fitting
        if len(chosen) == 1:
            index, branch = chosen[0]
            node = self.node(branch, kind, path)
            return None if node is None else UnionNode(node, index, null)
        reason = "several types of the union fit" if chosen else "no type of the union fits"
        return self.misfit(path, kind, schema, f"{reason}; a struct with the fields member0 to member{len(branches) - 1} fits")

    def _members(self, branches: Sequence[tuple[int, AvroType]], null: int | None, kind: pa.DataType, path: str) -> Node | None:
        members: list[tuple[int, Node]] = []
        for number in range(kind.num_fields):
            field = kind.field(number)
            index, branch = branches[int(field.name.removeprefix("member"))]
            node = self.node(branch, field.type, f"{path}.{field.name}")
            if node is not None:
                members.append((index, node))
        return MembersNode(members, null) if len(members) == len(branches) else None


def _is_members(kind: pa.DataType, branches: int) -> bool:
    """Returns whether a type is Spark's struct for a union: a field `member0`, `member1` ... for each type but null."""
    if not pa.types.is_struct(kind):
        return False
    names = [kind.field(index).name for index in range(kind.num_fields)]
    return sorted(names) == sorted(f"member{number}" for number in range(branches))


def _fits(schema: AvroType, kind: pa.DataType) -> bool:
    trial = _Walk()
    return trial.node(schema, kind, "") is not None and not trial.misfits


_UNITS = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}


def natural(kind: pa.DataType) -> str | dict[str, Any] | None:
    """Returns the Avro type, as JSON, of a type without parts and without a name; None: there is none."""
    for fits, schema in _PLAIN:
        if fits(kind):
            return schema
    if pa.types.is_decimal(kind) and kind.scale >= 0:
        return {"type": "bytes", "logicalType": "decimal", "precision": max(kind.precision, kind.scale), "scale": kind.scale}
    if pa.types.is_time(kind):
        base, unit = ("int", "millis") if pa.types.is_time32(kind) else ("long", "micros")
        return {"type": base, "logicalType": f"time-{unit}"}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'local-' if kind.tz is None else ''}timestamp-{_UNITS[kind.unit]}"}
    return None


def is_natural(schema: AvroType, kind: pa.DataType) -> bool:
    """Returns whether `schema` is the type that would be derived, but for names and fields."""
    match schema:
        case Record():
            return bool(pa.types.is_struct(kind))
        case Array():
            return is_list(kind)
        case Map():
            return bool(pa.types.is_map(kind))
        case Fixed(logical=None):
            return bool(pa.types.is_fixed_size_binary(kind))
        case Primitive():
            derived = natural(kind)
            logical = None if schema.logical is None else schema.logical.name
            if isinstance(derived, dict):
                return bool(derived["type"] == schema.kind and derived["logicalType"] == logical)
            return derived == schema.kind and logical is None
        case _:
            return False


_PLAIN = (
    (pa.types.is_null, "null"),
    (pa.types.is_boolean, "boolean"),
    (lambda kind: pa.types.is_integer(kind) and (kind.bit_width < 32 or kind == pa.int32()), "int"),
    (pa.types.is_integer, "long"),
    (lambda kind: kind in (pa.float16(), pa.float32()), "float"),
    (pa.types.is_float64, "double"),
    (is_text, "string"),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind), "bytes"),
    (pa.types.is_date, {"type": "int", "logicalType": "date"}),
    (is_uuid, {"type": "string", "logicalType": "uuid"}),
)
