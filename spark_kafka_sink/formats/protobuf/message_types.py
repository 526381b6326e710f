"""Protobuf's messages as plain data. The driver makes it from descriptors, and tasks read it without Protobuf's library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from typing import Any, Final

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.nodes import listed
from spark_kafka_sink.records.varints import unsigned_varint, varint

MESSAGE: Final = "message"
ENUM: Final = "enum"
GROUP: Final = "group"
GROUP_PROBLEM: Final = "groups are not supported: use a message, or leave the field out"
NO_NULL_ELEMENT: Final = "is null, and a repeated field cannot hold null"
NO_NULL_IN_MAP: Final = "is null, and a map cannot hold null"
_VERSION: Final = 1

TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
WRAPPERS: Final = tuple(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
NOT_SUPPORTED: Final = tuple(f"google.protobuf.{name}" for name in ("Any", "Struct", "Value", "ListValue"))
LIMITS_S: Final[Mapping[str, tuple[int, int]]] = {
    TIMESTAMP: (-62_135_596_800, 253_402_300_799),  # the years 1 to 9999
    DURATION: (-315_576_000_000, 315_576_000_000),  # 10,000 years
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    Attributes:
        name: its name.
        number: its number.
        kind: a scalar type as Protobuf names it, `message`, `enum` or `group`. The type of a group is not kept.
        type_name: full name of the message or enum; empty for a scalar type.
        repeated: whether it is repeated. A map is a repeated field of messages with `map_entry`.
        required: whether each message must have it, which only proto2 knows.
        presence: whether a field without a value differs from one with the default.
        packed: whether a repeated field is one block without a tag for each element.
        oneof: name of its oneof, or empty. An optional field of proto3 has none.
    """

    name: str
    number: int
    kind: str
    type_name: str = ""
    repeated: bool = False
    required: bool = False
    presence: bool = False
    packed: bool = False
    oneof: str = ""

    def __str__(self) -> str:
        return f"repeated {self.element}" if self.repeated else self.element

    @property
    def null_problem(self) -> str | None:
        """The problem with a null; None: the field is left out."""
        if self.required:
            return "is null, and the field is required"
        if self.presence or self.repeated:
            return None
        return "is null, and the field cannot be null: declare it as optional in the schema, or replace the nulls"

    @property
    def element(self) -> str:
        """The type in words, without `repeated`."""
        return f"{self.kind} {self.type_name}" if self.type_name else self.kind


@dataclass(frozen=True, slots=True)
class Message:
    """A message type, with its fields in the order of their numbers."""

    name: str
    fields: tuple[Field, ...]
    map_entry: bool = False

    def __str__(self) -> str:
        return f"message {self.name}"


@dataclass(frozen=True, slots=True)
class Enum:
    """An enum type. Several names may have one number."""

    name: str
    values: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"enum {self.name}"

    def listed(self) -> str:
        """Returns the first names and numbers for an error."""
        return listed([f"{name} = {number}" for name, number in self.values])


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A message type with all types that it uses.

    Attributes:
        message: full name of the message.
        indexes: where the message is in its file: its index, and before it the indexes of the messages around it.
        messages: all messages by full name.
        enums: all enums by full name.
    """

    message: str
    indexes: tuple[int, ...]
    messages: Mapping[str, Message] = field(default_factory=dict)
    enums: Mapping[str, Enum] = field(default_factory=dict)

    @property
    def root(self) -> Message:
        return self.messages[self.message]

    def is_map(self, one: Field) -> bool:
        return one.kind == MESSAGE and self.messages[one.type_name].map_entry

    def index_bytes(self) -> bytes:
        """Returns the indexes as Confluent's format has them after the schema's id."""
        if self.indexes == (0,):
            return b"\0"
        return b"".join(map(varint, (len(self.indexes), *self.indexes)))

    def to_json(self) -> str:
        """Returns the text that `from_json` reads."""
        return json.dumps(
            {
                "version": _VERSION,
                "message": self.message,
                "indexes": self.indexes,
                "messages": [[one.name, one.map_entry, [astuple(each) for each in one.fields]] for one in self.messages.values()],
                "enums": [[one.name, one.values] for one in self.enums.values()],
            },
            ensure_ascii=False,
        )


def from_json(text: str) -> ProtobufSchema:
    """Reads what `to_json` wrote. Raises SchemaError for any other text."""
    try:
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise ValueError
        return ProtobufSchema(
            found["message"],
            tuple(found["indexes"]),
            {name: Message(name, tuple(map(_field, members)), entry) for name, entry, members in found["messages"]},
            {name: Enum(name, tuple((value, number) for value, number in values)) for name, values in found["enums"]},
        )
    except (ValueError, KeyError, TypeError):
        raise SchemaError("the text is not a Protobuf schema that the driver has prepared") from None


def _field(values: list[Any]) -> Field:
    if len(values) != len(fields(Field)):
        raise ValueError
    return Field(*values)


def tag(number: int, wire_type: int) -> bytes:
    """Returns the bytes before a field's value."""
    return unsigned_varint(number << 3 | wire_type)
