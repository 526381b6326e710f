"""Fits a Protobuf message to the type of a column: one walk over both makes the plan to encode by, or finds all misfits.

Fields are matched by name, in any order. A field without a column is left out. The walk ends where the column's type ends, so a
recursive message fits as well.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from spark_kafka_sink.formats.fit import NodePlan, Walk
from spark_kafka_sink.formats.nodes import DictionaryNode, MisfitError, Node
from spark_kafka_sink.formats.protobuf.message_types import (
    ENUM,
    GROUP,
    GROUP_PROBLEM,
    MESSAGE,
    Field,
    Message,
    ProtobufSchema,
    tag,
)
from spark_kafka_sink.formats.protobuf.protobuf_nested import (
    DURATION,
    NO_NULL_ELEMENT,
    NO_NULL_IN_MAP,
    NOT_SUPPORTED,
    TIMESTAMP,
    WRAPPERS,
    FieldsNode,
    MapNode,
    MessageNode,
    NothingNode,
    RepeatedNode,
    ScalarNode,
    seconds_and_nanos,
)
from spark_kafka_sink.formats.protobuf.protobuf_scalars import SIZED, ScalarKernel, enum_kernel, scalar_kernel
from spark_kafka_sink.producer.serializers.arrays import is_list


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
