"""Differences between two Protobuf schemas, for the error about a schema that the registry does not accept."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.errors import InstallationError, SchemaError
from spark_kafka_sink.formats.protobuf.descriptors import message_types
from spark_kafka_sink.formats.protobuf.message_types import ENUM, MESSAGE, Field, ProtobufSchema


def differences(old: str, new: str) -> list[str]:
    """Returns one line for each field that only one schema has, or that differs, with both types and numbers.

    The first message of each schema is compared, with the messages that it uses.

    Args:
        old: text of the registered schema.
        new: text of the other one.
    """
    try:
        before, after = (dict(_fields(message_types(text, {}, None))) for text in (old, new))
    except (SchemaError, InstallationError):  # another format, no valid schema, or one that needs others
        return []
    found = []
    for path, kind in after.items():
        earlier = before.get(path)
        if earlier is None:
            found.append(f"{path}: new, {kind}")
        elif earlier != kind:
            found.append(f"{path}: was {earlier}, is {kind}")
    return [*found, *(f"{path}: was {kind}, is missing" for path, kind in before.items() if path not in after)]


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
