"""Differences that a schema makes by itself: coarser times, the case of a UUID, fields that cannot be null."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from spark_kafka_sink.verify.conversion import AVRO, JSON, PROTOBUF
from spark_kafka_sink.verify.protobuf_files import is_repeated, last_file
from spark_kafka_sink.verify.schema_ids import TopicSchema

MILLISECONDS: Final = "milliseconds"
UUID: Final = "uuid"
ZERO: Final = "zero "
"""The limit of a repeated field or a map of Protobuf."""
_LIMITS: Final = {
    "timestamp-millis": MILLISECONDS,
    "local-timestamp-millis": MILLISECONDS,
    "time-millis": MILLISECONDS,
    "uuid": UUID,
}

Path = tuple[str, ...]
"""Names of fields, ELEMENT for the elements of an array and ITEM for the values of a map."""
ELEMENT: Final = "[]"
ITEM: Final = "{}"


def limits(schemas: Iterable[TopicSchema], message: str | None = None) -> dict[Path, str]:
    """Returns what at least one of the schemas cannot hold, by path.

    MILLISECONDS: finer times. UUID: upper case. ZERO: null, which is read as an empty list or map.

    Args:
        schemas: the schemas of a topic.
        message: the Protobuf message of the records; None: the first of its file.
    """
    found: dict[Path, str] = {}
    for one in schemas:
        if one.schema is not None and one.schema.kind == AVRO:
            named = {name: _parsed(text.text) for name, text in one.named}
            _walk(_parsed(one.schema.text), (), "", named, found, ())
        elif one.schema is not None and one.schema.kind == PROTOBUF:
            descriptors = last_file(one.files).message_types_by_name
            named_message = next((each for each in descriptors.values() if message in (each.name, each.full_name)), None)
            _walk_message(named_message or next(iter(descriptors.values())), (), found, ())
    return found


def _walk_message(message: Any, path: Path, found: dict[Path, str], inside: tuple[str, ...]) -> None:
    for field in message.fields:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        here = (*path, field.name)
        if is_repeated(field):
            found[here] = ZERO
        inner = field.message_type
        if is_map:
            inner, here = field.message_type.fields_by_name["value"].message_type, (*here, ITEM)
        elif is_repeated(field):
            here = (*here, ELEMENT)
        if inner is not None and inner.full_name not in inside:
            _walk_message(inner, here, found, (*inside, inner.full_name))


def defaults(schema: TopicSchema) -> dict[str, Any]:
    """Returns the defaults of a record's fields, as the schema has them. Those of a nested record are a dict."""
    if schema.schema is None or schema.schema.kind not in (AVRO, JSON):
        return {}
    read = _parsed(schema.schema.text)
    return _defaults_of_record(read) if schema.schema.kind == AVRO else _defaults_of_object(read)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # the bare name of a primitive type
        return text.strip()


def _walk(kind: Any, path: Path, namespace: str, named: dict[str, Any], found: dict[Path, str], inside: tuple[str, ...]) -> None:
    if isinstance(kind, list):
        members = [member for member in kind if member != "null"]
        for number, member in enumerate(members):
            _walk(member, path, namespace, named, found, inside)
            if len(members) > 1:  # the column may be a struct with a field for each type
                _walk(member, (*path, f"member{number}"), namespace, named, found, inside)
        return
    if isinstance(kind, str):
        name = kind if "." in kind or not namespace else f"{namespace}.{kind}"
        name = name if name in named else kind
        if name in named and name not in inside:
            _walk(named[name], path, namespace, named, found, (*inside, name))
        return
    if not isinstance(kind, dict):
        return
    if limit := _LIMITS.get(str(kind.get("logicalType"))):
        found[path] = limit
    inner = kind.get("type")
    if inner in ("record", "error", "enum", "fixed"):
        name = str(kind.get("name"))
        namespace = name.rpartition(".")[0] or str(kind.get("namespace") or namespace)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        named[full] = kind
        for field in kind.get("fields") or []:
            _walk(field.get("type"), (*path, field.get("name")), namespace, named, found, (*inside, full))
    elif inner == "array":
        _walk(kind.get("items"), (*path, ELEMENT), namespace, named, found, inside)
    elif inner == "map":
        _walk(kind.get("values"), (*path, ITEM), namespace, named, found, inside)
    elif isinstance(inner, dict | list):
        _walk(inner, path, namespace, named, found, inside)


def _defaults_of_record(kind: Any) -> dict[str, Any]:
    if isinstance(kind, list):
        return next(filter(None, map(_defaults_of_record, kind)), {})
    if not isinstance(kind, dict) or kind.get("type") not in ("record", "error"):
        return {}
    found: dict[str, Any] = {}
    for field in kind["fields"]:
        if field.get("default") is not None:
            found[field["name"]] = field["default"]
        elif inner := _defaults_of_record(field["type"]):
            found[field["name"]] = inner
    return found


def _defaults_of_object(kind: Any) -> dict[str, Any]:
    properties = kind.get("properties") if isinstance(kind, Mapping) else None
    found = {}
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(inner, Mapping) and "default" in inner:
            found[name] = inner["default"]
        elif deeper := _defaults_of_object(inner):
            found[name] = deeper
    return found
