"""Protobuf as a format of schemas, and message types from .proto text or from descriptors, for the driver.

It needs Protobuf's library and compiler. A schema is .proto text, or a FileDescriptorProto or FileDescriptorSet in base64.
Registries hold the first two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_kafka_sink.errors import InstallationError, SchemaError
from spark_kafka_sink.formats.protobuf.message_types import ENUM, MESSAGE, Enum, Field, Message, ProtobufSchema
from spark_kafka_sink.formats.protobuf.proto_files import (
    LITERALS,
    check_libraries,
    decoded,
    file_of,
    files_by_name,
    files_of,
    in_order,
    set_of,
    unknown_import,
    with_known,
)
from spark_kafka_sink.formats.protobuf.protobuf_derive import derive
from spark_kafka_sink.formats.protobuf.protobuf_scalars import SIZED, WIRE_TYPES
from spark_kafka_sink.formats.schema_format import Latest, SchemaFile, SchemaFormat, compared
from spark_kafka_sink.peer_text import quoted

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

_OPTION: Final = re.compile(r"\(\s*+\.?confluent\.\w+_meta\s*+\)")
_FIELD: Final = re.compile(r"\b(\w++)\s*+=\s*+\d++\s*+\[")
# What may be rules, in whatever way it is written: better refuse a schema without them than write in clear what has them.
_META: Final = re.compile(r"_meta\b")
_RULES: Final = re.compile(r"\brules\b")
_SURELY_NO_FIELD: Final = re.compile(r"\brules\s*[:\[{<]|\)\s*\.\s*rules\b")


class ProtobufFormat(SchemaFormat):
    """Protobuf. References name a file by its import path.

    The driver compiles the schema with libraries of the extra `protobuf`. Tasks get message types as JSON, and need none.
    """

    name = "protobuf"
    kind = "PROTOBUF"

    def files(self, text: str, message: str | None) -> Sequence[SchemaFile]:
        return files_of(text, message)

    def prepared(self, text: str, named: Mapping[str, str], message: str | None) -> tuple[str, Mapping[str, str]]:
        return message_types(text, named, message).to_json(), {}

    def derived(self, kind: pa.DataType, name: str, latest: Latest) -> str:
        found = latest()
        return derive(kind, name, None if found is None else (found[0], earlier_message(found[1], found[2], name)))

    def differences(self, old: str, new: str) -> list[str]:
        try:
            before, after = (dict(_fields(message_types(text, {}, None))) for text in (old, new))
        except (SchemaError, InstallationError):  # another format, no valid schema, or one that needs others
            return []
        return compared(before, after)

    def inline_rules(self, text: str) -> list[str]:
        return inline_rules(text)


def message_types(text: str, named: Mapping[str, str], message: str | None) -> ProtobufSchema:
    """Returns a message with all types that it uses.

    Args:
        text: the schema.
        named: the schemas that it imports, by import path.
        message: full name of the message; None: the first one of the schema.

    Raises:
        SchemaError: The text is not a valid schema, an import is unknown, or there is no such message.
        InstallationError: The extra `protobuf` is not installed.
    """
    return _message_types(text, tuple(sorted(named.items())), None if message is None else message.lstrip("."))


def earlier_message(text: str, named: Mapping[str, str], name: str) -> Descriptor:
    """Returns the message with a name, else the first one of a schema. Raises what `message_types` raises."""
    first, _ = _chosen(text, tuple(sorted(named.items())), None)
    try:
        found: Descriptor = first.file.pool.FindMessageTypeByName(name)
    except KeyError:
        return first
    return found


@lru_cache(maxsize=64)
def _chosen(
    text: str, named: tuple[tuple[str, str], ...], message: str | None
) -> tuple[Descriptor, Mapping[str, FileDescriptorProto]]:
    """Returns the descriptor of a message, and the files that it uses."""
    check_libraries()
    main, files = files_by_name(text, dict(named), message)
    pool = _pool(main, files)
    found = pool.FindFileByName(main).message_types_by_name
    if not found:
        raise SchemaError(
            "the Protobuf schema has no message; if another file of a descriptor set has it, name it in schema.message"
        )
    if message is None:
        chosen: Any = next(iter(found.values()))
    else:
        try:
            chosen = pool.FindMessageTypeByName(message)
        except KeyError:
            chosen = None
        if chosen is None or chosen.file.name != main or chosen.GetOptions().map_entry:
            names = ", ".join(one.full_name for one in found.values())
            raise SchemaError(f"the Protobuf schema has no message {message}; it has {names}", name=message)
    return chosen, files


def inline_rules(text: str) -> list[str]:
    """Returns the fields of a schema that have rules of their own, in Confluent's options."""
    data = decoded(text)
    if data is not None:
        check_libraries()
        return ["confluent.Meta (rules)"] if _has_rules(data) else []
    bare = LITERALS.sub(lambda found: " " if found[0][0] == "/" else '""', text)
    found = []
    for statement in bare.split(";"):
        option = _OPTION.search(statement)
        if option is not None and _RULES.search(statement, option.end()):
            field = _FIELD.search(statement, 0, option.start())
            found.append(f"{'the message' if field is None else field[1]} (confluent.Meta, rules)")
    if not found and _META.search(bare) and _SURELY_NO_FIELD.search(bare):
        return ["a field or a message (confluent.Meta, rules)"]
    return found


def _pool(main: str, files: Mapping[str, FileDescriptorProto]) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool: Any = DescriptorPool()
    for file in in_order(main, files):
        missing = next((name for name in file.dependency if name not in files), None)
        if missing is not None:
            raise unknown_import(missing)
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise SchemaError(f"{file.name} is not a valid Protobuf schema: {quoted(str(error))}") from None
    return pool


def _indexes(message: Descriptor) -> tuple[int, ...]:
    around = message.containing_type
    if around is None:
        return (list(message.file.message_types_by_name).index(message.name),)
    return (*_indexes(around), [one.name for one in around.nested_types].index(message.name))


@lru_cache(maxsize=64)
def _message_types(text: str, named: tuple[tuple[str, str], ...], message: str | None) -> ProtobufSchema:
    chosen, files = _chosen(text, named, message)  # which checks that the libraries are there
    from google.protobuf.descriptor_pb2 import DescriptorProto

    messages: dict[str, Message] = {}
    enums: dict[str, Enum] = {}
    waiting = [chosen]
    while waiting:
        used = waiting.pop()
        if used.full_name in messages:
            continue
        own = DescriptorProto()
        used.CopyToProto(own)
        by_number = {one.number: one for one in own.field}
        found = sorted(used.fields, key=lambda one: one.number)
        fields = tuple(_field(one, by_number[one.number], files[used.file.name]) for one in found)
        messages[used.full_name] = Message(used.full_name, fields, bool(used.GetOptions().map_entry))
        for one in reversed(found):
            if one.message_type is not None and one.type != one.TYPE_GROUP:
                waiting.append(one.message_type)
            if one.enum_type is not None:
                values = tuple((value.name, value.number) for value in one.enum_type.values)
                enums[one.enum_type.full_name] = Enum(one.enum_type.full_name, values)
    return ProtobufSchema(chosen.full_name, _indexes(chosen), messages, enums)


def _field(field: FieldDescriptor, own: FieldDescriptorProto, file: FileDescriptorProto) -> Field:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Proto

    kind = Proto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if file.syntax == "editions" and not hasattr(field, "is_required"):
        raise SchemaError(f"{file.name} has an edition, which needs protobuf 6 or newer on the driver", name=file.name)
    oneof = field.containing_oneof
    return Field(
        field.name,
        field.number,
        {"message": MESSAGE, "enum": ENUM}.get(kind, kind),
        field.message_type.full_name
        if field.message_type is not None
        else ""
        if field.enum_type is None
        else field.enum_type.full_name,
        repeated=own.label == Proto.LABEL_REPEATED,
        required=getattr(field, "is_required", own.label == Proto.LABEL_REQUIRED),
        presence=own.label != Proto.LABEL_REPEATED and field.has_presence,
        packed=own.label == Proto.LABEL_REPEATED and _is_packed(field, own, file),
        oneof="" if oneof is None or own.proto3_optional else oneof.name,
    )


def _is_packed(field: FieldDescriptor, own: FieldDescriptorProto, file: FileDescriptorProto) -> bool:
    """Returns whether a repeated field is packed, which old versions of Protobuf's library do not say."""
    known = getattr(field, "is_packed", None)
    if known is not None:
        return bool(known)
    if WIRE_TYPES.get(own.Type.Name(own.type).removeprefix("TYPE_").lower(), SIZED) == SIZED:
        return False
    return bool(own.options.packed if own.options.HasField("packed") else file.syntax == "proto3")


def _has_rules(data: bytes) -> bool:
    """Returns whether a descriptor has Confluent's options with rules, which is field 4 of the option 1088."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.message_factory import GetMessageClass

    try:
        files = set_of(data) or [file_of(data, None)]
    except SchemaError:  # the name of one of Avro's types is also base64
        return False
    if not any("confluent/meta.proto" in one.dependency for one in files):
        return False
    pool = _pool("meta", with_known({"meta": FileDescriptorProto(name="meta", dependency=["confluent/meta.proto"])}))
    reader = GetMessageClass(pool.FindMessageTypeByName(FileDescriptorSet.DESCRIPTOR.full_name))
    extensions = [
        pool.FindExtensionByName(f"confluent.{name}_meta") for name in ("file", "message", "field", "enum", "enum_value")
    ]
    found: Any = reader.FromString(FileDescriptorSet(file=files).SerializeToString())
    return _uses_rules(found, extensions)


def _uses_rules(message: Any, extensions: Sequence[Any]) -> bool:
    for field, value in message.ListFields():
        if field in extensions and value.rules:
            return True
        if field.message_type is not None and not field.is_extension:
            inside = value if isinstance(value, Sequence) or hasattr(value, "append") else [value]
            if any(_uses_rules(one, extensions) for one in inside):
                return True
    return False


def _fields(schema: ProtobufSchema) -> Iterator[tuple[str, str]]:
    """Yields path and type of each field. A message that is met again is not entered, so recursion ends."""
    known = {schema.message}
    waiting = [("", schema.root)]
    for path, message in waiting:
        for field in message.fields:
            inside = f"{path}.{field.name}".lstrip(".")
            yield inside, _kind(schema, field)
            if field.kind == MESSAGE and field.type_name not in known:
                known.add(field.type_name)
                waiting.append((inside, schema.messages[field.type_name]))


def _kind(schema: ProtobufSchema, field: Field) -> str:
    label = "required " if field.required else "repeated " if field.repeated else ""
    values = f" of {', '.join(name for name, _ in schema.enums[field.type_name].values)}" if field.kind == ENUM else ""
    return f"{label}{field.element}{values} = {field.number}"
