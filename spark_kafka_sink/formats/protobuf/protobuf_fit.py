"""Fits a Protobuf message to the type of a column: one walk over both makes the plan to encode by, or finds all misfits.

Fields are matched by name, in any order. A field without a column is left out. The walk ends where the column's type ends, so a
recursive message fits as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import SchemaError, SerializationError
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
    NO_NULL_ELEMENT,
    NO_NULL_IN_MAP,
    FieldsNode,
    MapNode,
    MessageNode,
    NothingNode,
    RepeatedNode,
    ScalarNode,
)
from spark_kafka_sink.formats.protobuf.protobuf_scalars import SIZED, ScalarKernel, enum_kernel, scalar_kernel
from spark_kafka_sink.formats.protobuf.well_known import (
    DURATION,
    NOT_SUPPORTED,
    TIMESTAMP,
    WRAPPERS,
    seconds_and_nanos,
)
from spark_kafka_sink.formats.schemas.kernel import Misfit, MisfitError
from spark_kafka_sink.formats.schemas.nodes import DictionaryNode, Node, encoded
from spark_kafka_sink.formats.schemas.schema_format import ColumnPlan
from spark_kafka_sink.producer.serializers.arrays import is_list
from spark_kafka_sink.producer.serializers.bad_row import BadRowError


@dataclass(frozen=True, slots=True)
class ProtobufPlan(ColumnPlan):
    """How to encode columns of one type as one message."""

    schema: ProtobufSchema
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


def fit(schema: ProtobufSchema, kind: pa.DataType) -> ProtobufPlan:
    """Makes the plan for columns of a type.

    Args:
        schema: the message with its types.
        kind: type of the columns: a struct, or the type that the message stands for, such as a timestamp for Timestamp.

    Raises:
        SchemaError: The message does not fit the type. The text has a line for each misfit, and `facts` has them as `misfits`.
    """
    walk = _Walk(schema)
    try:
        node = walk.message(schema.root, kind, "")
    except RecursionError:
        raise SchemaError("the type of the column is nested too deeply") from None
    if walk.misfits or node is None:
        lines = "".join(f"\n  {misfit}" for misfit in walk.misfits)
        text = f"{counted(len(walk.misfits), 'field')} of the Protobuf schema and the columns do not fit:{lines}"
        raise SchemaError(
            text,
            fields=tuple(misfit.path for misfit in walk.misfits),
            misfits=tuple((misfit.path, misfit.column, misfit.schema, misfit.reason) for misfit in walk.misfits),
        )
    return ProtobufPlan(schema, kind, node)


class _Walk:
    """Walks over messages and a type. It keeps the misfits; a node of None stands for at least one."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self.schema = schema
        self.misfits: list[Misfit] = []

    def message(self, message: Message, kind: pa.DataType, path: str) -> Node | None:
        """Returns the node of a message's fields."""
        if pa.types.is_dictionary(kind):
            inner = self.message(message, kind.value_type, path)
            return None if inner is None else DictionaryNode(inner)
        if message.name in NOT_SUPPORTED:
            return self._misfit(path, kind, message, "the message is not supported: use another one, or leave the column out")
        if message.name in WRAPPERS and not pa.types.is_struct(kind):
            return self._single(message.fields[0], kind, path, None)
        if message.name in (TIMESTAMP, DURATION):
            try:
                node = seconds_and_nanos(message.name, kind)
            except MisfitError as error:
                return self._misfit(path, kind, message, str(error))
            if node is not None:
                return node
        if not pa.types.is_struct(kind):
            return self._misfit(path, kind, message, "it must be a struct")
        return self._fields(message, kind, path)

    def _misfit(self, path: str, kind: pa.DataType | str, schema: Message | Field | str, reason: str) -> Node | None:
        self.misfits.append(Misfit(path.lstrip("."), str(kind), str(schema), reason))
        return None

    def _fields(self, message: Message, kind: pa.DataType, path: str) -> Node | None:
        before = len(self.misfits)
        names = [kind.field(index).name for index in range(kind.num_fields)]
        known = {field.name for field in message.fields}
        fields: list[tuple[str, int, Node]] = []
        oneofs: dict[str, list[int]] = {}
        for field in message.fields:
            inside = f"{path}.{field.name}"
            if names.count(field.name) > 1:
                self._misfit(inside, "twice", field, "two columns have this name")
            elif field.name in names:
                index = names.index(field.name)
                node = self._field(field, kind.field(index).type, inside)
                if node is not None:
                    fields.append((field.name, index, node))
                if field.oneof:
                    oneofs.setdefault(field.oneof, []).append(index)
            else:
                self._missing(field, [name for name in names if name not in known], inside)
        for name in dict.fromkeys(names):
            if name not in known and not any(name.lower() == other.lower() for other in known - set(names)):
                index = names.index(name)
                self._misfit(f"{path}.{name}", kind.field(index).type, "missing", "drop the column, or add it to the schema")
        if len(self.misfits) > before:
            return None
        return FieldsNode(fields, [(name, members) for name, members in oneofs.items() if len(members) > 1])

    def _missing(self, field: Field, unknown: Sequence[str], path: str) -> None:
        """Notes a field without a column if it may not be left out, or if an unknown column has its name in another case."""
        similar = next((name for name in unknown if name.lower() == field.name.lower()), None)
        if similar is not None:
            self._misfit(path, "missing", field, f"the column {similar} differs in case: rename it to {field.name}")
        elif field.required:
            self._misfit(path, "missing", field, "the field is required: add the column")

    def _field(self, field: Field, kind: pa.DataType, path: str) -> Node | None:
        if field.kind == GROUP:
            return self._misfit(path, kind, field, GROUP_PROBLEM)
        if self.schema.is_map(field):
            return self._map(field, kind, path)
        if pa.types.is_null(kind):
            if not field.required:
                return NothingNode(field.null_problem)
            return self._misfit(path, kind, field, "it has only nulls, and the field is required")
        if field.repeated:
            if not is_list(kind):
                return self._misfit(path, kind, field, "it must be an array")
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
            self._misfit(path, kind, field.element, str(error))
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
            return self._misfit(path, kind, f"map<{key.element}, {value.element}>", "it must be a map")
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
