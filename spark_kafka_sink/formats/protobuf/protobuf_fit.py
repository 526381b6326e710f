"""Fits a Protobuf message to the type of a column: one walk over both makes the plan to encode by, or finds all misfits.

Fields are matched by name, in any order. A field without a column is left out. The walk ends where the column's type ends, so a
recursive message fits as well.

A column is encoded level by level: each node of the plan turns it into a field's parts. A message inside another is its tag, its
size and the parts of its fields, so it is not copied. The elements of repeated fields and maps are encoded once, as one column.
A row's elements are a view of that column's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.formats.nodes import DictionaryNode, MisfitError, Node, NodePlan, Walk, check_nulls, encoded, rows_of
from spark_kafka_sink.formats.protobuf.message_types import (
    DURATION,
    ENUM,
    GROUP,
    GROUP_PROBLEM,
    MESSAGE,
    NO_NULL_ELEMENT,
    NO_NULL_IN_MAP,
    NOT_SUPPORTED,
    TIMESTAMP,
    WRAPPERS,
    Field,
    Message,
    ProtobufSchema,
    from_json,
    tag,
)
from spark_kafka_sink.formats.protobuf.protobuf_scalars import SIZED, ScalarKernel, enum_kernel, scalar_kernel, seconds_and_nanos
from spark_kafka_sink.formats.protobuf.protobuf_single import encode_value
from spark_kafka_sink.formats.schema_format import ColumnPlan, LoadedSchema
from spark_kafka_sink.producer.serializers.arrays import (
    BadRowError,
    binary_array,
    check_keys,
    entries_of,
    first_row,
    is_list,
    list_parts,
    place_in_list,
)
from spark_kafka_sink.records.arrow_arrays import byte_lengths, valid_mask, validity
from spark_kafka_sink.records.concat import Part, Present, column_views, masked, sizes
from spark_kafka_sink.records.varints import Packed, unsigned_varints

_WORD: Final = 8


@dataclass(frozen=True, slots=True)
class NothingNode(Node):
    """A field whose column has only nulls. `no_null` is what is wrong with them; None: the field is left out."""

    no_null: str | None = None

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        check_nulls(column, present, self.no_null)
        return ()


@dataclass(frozen=True, slots=True)
class ScalarNode(Node):
    """A field of a scalar type or an enum, or one element of a repeated one.

    Attributes:
        tag: bytes before a value; none in a packed field.
        kernel: how values are written.
        skips_default: whether a value that is the default is left out.
        no_null: what is wrong with a null; None: the field is left out.
    """

    tag: bytes
    kernel: ScalarKernel
    skips_default: bool = False
    no_null: str | None = None

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        if not check_nulls(column, present, self.no_null):
            return ()
        valid = _present(column)
        values = self.kernel.encode(column, valid, self.skips_default)
        if values.other is not None:
            rows = values.other if valid is None else values.other & valid.rows
            if not rows.any():
                return ()
            valid = None if rows.all() else Present.of(rows)
        return _masked_numbers(_tagged(self.tag, values.parts), valid)


@dataclass(frozen=True, slots=True)
class FieldsNode(Node):
    """The fields of a message.

    Attributes:
        fields: name, index in the column, and node of each field, in the order of their numbers.
        oneofs: name of each oneof, and the indexes of its columns.
    """

    fields: Sequence[tuple[str, int, Node]]
    oneofs: Sequence[tuple[str, Sequence[int]]] = ()

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        children = column.flatten()
        for name, indexes in self.oneofs:
            _check_oneof(name, [(column.type.field(index).name, _decoded(children[index])) for index in indexes])
        parts: list[Part] = []
        for name, index, node in self.fields:
            try:
                parts += node.parts(children[index], present)
            except BadRowError as bad:
                raise bad.inside(bad.row, f".{name}") from None
        return parts


@dataclass(frozen=True, slots=True)
class MessageNode(Node):
    """A field that is a message, or one element of a repeated one: its tag, its size and its fields."""

    tag: bytes
    fields: Node
    no_null: str | None = None

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        if not check_nulls(column, present, self.no_null):
            return ()
        valid = _present(column)
        inside = self.fields.parts(column, valid)
        size = sizes(inside)
        if isinstance(size, np.ndarray):
            size = size.view(np.uint64)
        return [*_masked_numbers(_tagged(self.tag, unsigned_varints(size)), valid), *inside]


@dataclass(frozen=True, slots=True)
class RepeatedNode(Node):
    """A repeated field: its elements one after the other.

    Attributes:
        element: an element, with its tag unless the field is packed.
        tag: the tag of a packed field; none for another.
        fixed: the kernel if all elements of a packed field have one size, so that they need not be encoded.
    """

    element: Node
    tag: bytes = b""
    fixed: ScalarKernel | None = None

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        elements, starts = list_parts(column)
        if not len(elements):
            return ()
        try:
            held = self._held(elements, starts)
        except BadRowError as bad:
            row, place = place_in_list(starts, bad.row)
            raise bad.inside(row, f"[{place}]") from None
        lengths = byte_lengths(held)
        views = column_views(held, lengths, None)
        if not self.tag:
            return [views]
        size: NDArray[np.uint64] | int = views.lengths if isinstance(views.lengths, int) else views.lengths.view(np.uint64)
        rows = None if lengths.shortest > 0 else Present.of(lengths.rows > 0)
        head = unsigned_varints(size, (lengths.shortest, lengths.longest))
        return [*_masked_numbers(_tagged(self.tag, head), rows), views]

    def _held(self, elements: pa.Array, starts: NDArray[np.int64]) -> pa.Array:
        check_nulls(elements, None, NO_NULL_ELEMENT)
        if self.fixed is not None and self.fixed.fixed is not None:
            values = np.ascontiguousarray(self.fixed.fixed(elements))
            return binary_array(values, starts * values.itemsize)
        return rows_of(encoded(self.element, elements, keep_nulls=False), starts)


@dataclass(frozen=True, slots=True)
class MapNode(Node):
    """A map: repeated messages of a key and a value."""

    entries: RepeatedNode

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        entries = entries_of(column)
        elements, starts = list_parts(entries)
        check_keys(elements.flatten()[0], starts)
        return self.entries.parts(entries, present)


def _present(column: pa.Array) -> Present | None:
    """Returns the rows that are not null. None: all rows."""
    valid = valid_mask(column)
    return None if valid is None else Present.of(valid)


def _decoded(column: pa.Array) -> pa.Array:
    """Returns a column whose nulls are its own: the values of a dictionary may contain one."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) and column.dictionary.null_count else column


def _check_oneof(name: str, members: Sequence[tuple[str, pa.Array]]) -> None:
    """Raises BadRowError for the first row in which more than one member has a value."""
    set_in = [validity(column) for _, column in members if column.null_count < len(column)]
    if len(set_in) < 2:
        return
    counts = np.zeros(len(set_in[0]), np.int64)
    for rows in set_in:
        counts += rows
    bad = first_row(counts > 1)
    if bad is not None:
        names = " and ".join(field for field, column in members if column[bad].is_valid)
        raise BadRowError(bad, f"{names} have a value, and the oneof {name} can hold only one")


def _tagged(tag: bytes, parts: Sequence[Part]) -> list[Part]:
    """Returns the parts after a tag, in one word with the first part if it has room."""
    if not tag:
        return list(parts)
    head = Packed(int.from_bytes(tag, "little"), 8 * len(tag), len(tag))
    first = parts[0]
    if isinstance(first, Packed) and len(tag) + first.max_bytes <= _WORD:
        return [head.then(first), *parts[1:]]
    return [head, *parts]


def _masked_numbers(parts: Sequence[Part], present: Present | None) -> list[Part]:
    """Returns the same parts, numbers being empty in rows without a value. Views are empty there."""
    if present is None:
        return list(parts)
    return [masked([part], present)[0] if isinstance(part, Packed) else part for part in parts]


class LoadedProtobuf(LoadedSchema):
    """A Protobuf message. Its indexes follow the schema's id."""

    def __init__(self, text: str, named: Mapping[str, str]) -> None:
        self._schema = from_json(text)
        self.record_name = self._schema.message
        self.after_id = self._schema.index_bytes()

    def fit(self, kind: pa.DataType) -> ColumnPlan:
        return fit(self._schema, kind)

    def encode_value(self, value: Any, prefix: bytes = b"") -> bytes | None:
        return encode_value(self._schema, value, prefix)


def fit(schema: ProtobufSchema, kind: pa.DataType) -> NodePlan:
    """Makes the plan for columns of a type.

    Args:
        schema: the message with its types.
        kind: type of the columns: a struct, or the type that the message stands for, such as a timestamp for Timestamp.

    Raises:
        SchemaError: The message does not fit the type. The text has a line for each misfit, and `facts` has them as `misfits`.
    """
    walk = _Walk(schema)
    node = walk.run("Protobuf schema", lambda: walk.message(schema.root, kind, ""))
    assert node is not None
    return NodePlan(kind, node, partial(fit, schema))


class _Walk(Walk):
    """Walks over messages and a type. A node of None stands for at least one misfit."""

    def __init__(self, schema: ProtobufSchema) -> None:
        super().__init__()
        self.schema = schema

    def message(self, message: Message, kind: pa.DataType, path: str) -> Node | None:
        """Returns the node of a message's fields."""
        if pa.types.is_dictionary(kind):
            inner = self.message(message, kind.value_type, path)
            return None if inner is None else DictionaryNode(inner)
        if message.name in NOT_SUPPORTED:
            return self.misfit(path, kind, message, "the message is not supported: use another one, or leave the column out")
        if message.name in WRAPPERS and not pa.types.is_struct(kind):
            return self._single(message.fields[0], kind, path, None)
        if message.name in (TIMESTAMP, DURATION):
            try:
                node = seconds_and_nanos(message.name, kind)
            except MisfitError as error:
                return self.misfit(path, kind, message, str(error))
            if node is not None:
                return node
        if not pa.types.is_struct(kind):
            return self.misfit(path, kind, message, "it must be a struct")
        return self._fields(message, kind, path)

    def _fields(self, message: Message, kind: pa.DataType, path: str) -> Node | None:
        before = len(self.misfits)
        known = {field.name: field for field in message.fields}
        fields: list[tuple[str, int, Node]] = []
        oneofs: dict[str, list[int]] = {}
        for name, inside, index in self.columns(known, kind, path):
            field = known[name]
            if index is None:
                if field.required:
                    self.misfit(inside, "missing", field, "the field is required: add the column")
                continue
            node = self._field(field, kind.field(index).type, inside)
            if node is not None:
                fields.append((name, index, node))
            if field.oneof:
                oneofs.setdefault(field.oneof, []).append(index)
        if len(self.misfits) > before:
            return None
        return FieldsNode(fields, [(name, members) for name, members in oneofs.items() if len(members) > 1])

    def _field(self, field: Field, kind: pa.DataType, path: str) -> Node | None:
        if field.kind == GROUP:
            return self.misfit(path, kind, field, GROUP_PROBLEM)
        if self.schema.is_map(field):
            return self._map(field, kind, path)
        if pa.types.is_null(kind):
            if not field.required:
                return NothingNode(field.null_problem)
            return self.misfit(path, kind, field, "it has only nulls, and the field is required")
        if field.repeated:
            if not is_list(kind):
                return self.misfit(path, kind, field, "it must be an array")
            return self._repeated(field, kind.value_type, f"{path}[]")
        return self._single(field, kind, path, field.null_problem)

    def _single(self, field: Field, kind: pa.DataType, path: str, no_null: str | None, *, always: bool = False) -> Node | None:
        """Returns the node of one value with its tag. always: the default is written, too."""
        if pa.types.is_dictionary(kind):
            inner = self._single(field, kind.value_type, path, no_null, always=always)
            return None if inner is None else DictionaryNode(inner)
        if field.kind == MESSAGE:
            inside = self.message(self.schema.messages[field.type_name], kind, path)
            return None if inside is None else MessageNode(tag(field.number, SIZED), inside, no_null)
        kernel = self._kernel(field, kind, path)
        if kernel is None:
            return None
        skips_default = not (always or field.presence or field.repeated)
        return ScalarNode(tag(field.number, kernel.wire_type), kernel, skips_default, no_null)

    def _kernel(self, field: Field, kind: pa.DataType, path: str) -> ScalarKernel | None:
        try:
            if field.kind == ENUM:
                return enum_kernel(self.schema.enums[field.type_name], kind)
            return scalar_kernel(field.kind, kind)
        except MisfitError as error:
            self.misfit(path, kind, field.element, str(error))
            return None

    def _repeated(self, field: Field, kind: pa.DataType, path: str) -> Node | None:
        if pa.types.is_null(kind):  # a list of nulls, which may be empty
            return RepeatedNode(NothingNode())
        if not field.packed:
            element = self._single(field, kind, path, NO_NULL_ELEMENT)
            return None if element is None else RepeatedNode(element)
        is_dictionary = pa.types.is_dictionary(kind)
        kernel = self._kernel(field, kind.value_type if is_dictionary else kind, path)
        if kernel is None:
            return None
        one: Node = ScalarNode(b"", kernel, no_null=NO_NULL_ELEMENT)
        if is_dictionary:
            return RepeatedNode(DictionaryNode(one), tag(field.number, SIZED))
        return RepeatedNode(one, tag(field.number, SIZED), kernel)

    def _map(self, field: Field, kind: pa.DataType, path: str) -> Node | None:
        key, value = self.schema.messages[field.type_name].fields
        if pa.types.is_null(kind):
            return NothingNode()
        if not pa.types.is_map(kind):
            return self.misfit(path, kind, f"map<{key.element}, {value.element}>", "it must be a map")
        inside = f"{path}[]"
        keys = self._single(key, kind.key_type, inside, NO_NULL_IN_MAP, always=True)
        if pa.types.is_null(kind.item_type):
            values: Node | None = NothingNode(NO_NULL_IN_MAP)
        else:
            values = self._single(value, kind.item_type, inside, NO_NULL_IN_MAP, always=True)
        if keys is None or values is None:
            return None
        entry = FieldsNode([("key", 0, keys), ("value", 1, values)])
        return MapNode(RepeatedNode(MessageNode(tag(field.number, SIZED), entry)))
