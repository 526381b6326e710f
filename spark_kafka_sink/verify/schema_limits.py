"""Differences that a schema makes by itself: coarser times, the case of a UUID, arrays and maps that cannot be null."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import types as t

from spark_kafka_sink.verify.protobuf_files import is_repeated, last_file
from spark_kafka_sink.verify.schema_ids import TopicSchema
from spark_kafka_sink.verify.values.conversion import AVRO, JSON, PROTOBUF

MILLISECONDS: Final = "milliseconds"
UUID: Final = "uuid"
EMPTY: Final = "empty"
_LIMITS: Final = {
    "timestamp-millis": MILLISECONDS,
    "local-timestamp-millis": MILLISECONDS,
    "time-millis": MILLISECONDS,
    "uuid": UUID,
}
_NAMED: Final = ("record", "error", "enum", "fixed")
_DEEPEST: Final = 100
"""Maximum number of records or unions inside of each other whose defaults are known. The types of columns are not as deep."""

Path = tuple[str, ...]
"""Names of fields, ELEMENT for the elements of an array and ITEM for the values of a map."""
ELEMENT: Final = "[]"
ITEM: Final = "{}"


def limits(schemas: Iterable[TopicSchema], kind: t.DataType, message: str | None = None) -> dict[Path, str]:
    """Returns what at least one of the schemas cannot hold, by path.

    MILLISECONDS: finer times. UUID: upper case. EMPTY: null, which Protobuf reads as an empty list or map.

    The walk goes only as deep as the column's type: schemas may be recursive, and name one type at exponentially many paths.

    Args:
        schemas: the schemas of a topic.
        kind: the column's type.
        message: the Protobuf message of the records; None: the first of its file.
    """
    found: dict[Path, str] = {}
    for one in schemas:
        if one.schema is not None and one.schema.kind == AVRO:
            read = _parsed(one.schema.text)
            _AvroWalk(_named_types([*(_parsed(text.text) for _, text in one.named), read]), found).walk(read, "", kind, ())
        elif one.schema is not None and one.schema.kind == PROTOBUF:
            descriptors = last_file(one.files).message_types_by_name
            named_message = next((each for each in descriptors.values() if message in (each.name, each.full_name)), None)
            _walk_message(named_message or next(iter(descriptors.values())), kind, (), found)
    return found


def _walk_message(message: Any, kind: t.DataType, path: Path, found: dict[Path, str]) -> None:
    for column in kind.fields if isinstance(kind, t.StructType) else ():
        field = message.fields_by_name.get(column.name)
        if field is None:
            continue
        here, inner, inside = (*path, column.name), field.message_type, column.dataType
        if is_repeated(field):
            found[here] = EMPTY
        if isinstance(inside, t.ArrayType):
            here, inside = (*here, ELEMENT), inside.elementType
        elif isinstance(inside, t.MapType) and inner is not None and inner.GetOptions().map_entry:
            here, inside, inner = (*here, ITEM), inside.valueType, inner.fields_by_name["value"].message_type
        if inner is not None:
            _walk_message(inner, inside, here, found)


class _AvroWalk:
    """Walks over an Avro schema and a column's type."""

    def __init__(self, named: Mapping[str, tuple[Any, str]], found: dict[Path, str]) -> None:
        self._named = named
        self._found = found
        self._seen: set[tuple[int, Path]] = set()

    def walk(self, schema: Any, namespace: str, kind: t.DataType, path: Path) -> None:
        schema = _unwrapped(schema)
        if isinstance(schema, list):
            members = [one for one in map(_unwrapped, schema) if one != "null" and not isinstance(one, list)]
            for number, member in enumerate(members):
                self.walk(member, namespace, kind, path)
                # The column may be a struct with a field for each type.
                self._field(f"member{number}", member, namespace, kind, path)
            return
        if isinstance(schema, str):
            full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            schema, namespace = self._named.get(full) or self._named.get(schema) or (None, "")
        if not isinstance(schema, dict) or (id(schema), path) in self._seen:
            return
        self._seen.add((id(schema), path))
        if limit := _LIMITS.get(str(schema.get("logicalType"))):
            self._found[path] = limit
        if schema.get("type") in _NAMED:
            namespace = _full_name(schema, namespace).rpartition(".")[0]
        for field in schema.get("fields") or []:
            self._field(field.get("name"), field.get("type"), namespace, kind, path)
        if isinstance(kind, t.ArrayType):
            self.walk(schema.get("items"), namespace, kind.elementType, (*path, ELEMENT))
        elif isinstance(kind, t.MapType):
            self.walk(schema.get("values"), namespace, kind.valueType, (*path, ITEM))

    def _field(self, name: str, schema: Any, namespace: str, kind: t.DataType, path: Path) -> None:
        for column in kind.fields if isinstance(kind, t.StructType) else ():
            if column.name == name:
                self.walk(schema, namespace, column.dataType, (*path, name))


def _unwrapped(schema: Any) -> Any:
    """Returns the type of an object that only wraps it. It may be one of many."""
    while isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
        schema = schema["type"]
    return schema


def _named_types(schemas: Iterable[Any]) -> dict[str, tuple[Any, str]]:
    """Returns the named types of Avro schemas by full name, each with the namespace around it."""
    found: dict[str, tuple[Any, str]] = {}
    waiting = [(schema, "") for schema in schemas]
    while waiting:
        schema, namespace = waiting.pop()
        if isinstance(schema, list):
            waiting += [(member, namespace) for member in schema]
        if not isinstance(schema, dict):
            continue
        if schema.get("type") in _NAMED:
            full = _full_name(schema, namespace)
            found[full] = schema, namespace
            namespace = full.rpartition(".")[0]
        waiting += [(schema.get(part), namespace) for part in ("type", "items", "values")]
        waiting += [(field.get("type"), namespace) for field in schema.get("fields") or []]
    return found


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name = str(schema.get("name"))
    around = namespace if schema.get("namespace") is None else str(schema["namespace"])
    return name if "." in name or not around else f"{around}.{name}"


def defaults(schema: TopicSchema) -> dict[str, Any]:
    """Returns the defaults of a record's fields, as the schema has them. Those of a nested record are a dict."""
    if schema.schema is None or schema.schema.kind not in (AVRO, JSON):
        return {}
    read = _parsed(schema.schema.text)
    return _defaults_of_record(read, _DEEPEST) if schema.schema.kind == AVRO else _defaults_of_object(read, _DEEPEST)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # the bare name of a primitive type, or one that is nested more deeply than any value
        return text.strip()


def _defaults_of_record(kind: Any, levels: int) -> dict[str, Any]:
    if isinstance(kind, list) and levels:
        return next(filter(None, (_defaults_of_record(one, levels - 1) for one in kind)), {})
    if not isinstance(kind, dict) or kind.get("type") not in ("record", "error") or not levels:
        return {}
    found: dict[str, Any] = {}
    for field in kind["fields"]:
        if field.get("default") is not None:
            found[field["name"]] = field["default"]
        elif inner := _defaults_of_record(field["type"], levels - 1):
            found[field["name"]] = inner
    return found


def _defaults_of_object(kind: Any, levels: int) -> dict[str, Any]:
    properties = kind.get("properties") if isinstance(kind, Mapping) and levels else None
    found = {}
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(inner, Mapping) and "default" in inner:
            found[name] = inner["default"]
        elif deeper := _defaults_of_object(inner, levels - 1):
            found[name] = deeper
    return found
