"""Differences between two Avro schemas, for the error about a schema that the registry does not accept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from spark_kafka_sink.formats.schemas.schema_format import NAME_DIFFERS


class _Field(NamedTuple):
    kind: str
    has_default: bool


def differences(old: str, new: str) -> list[str]:
    """Returns one line for each field that only one schema has, or whose type differs, with both types.

    Args:
        old: JSON text of the registered schema.
        new: JSON text of the other one.
    """
    try:
        before, after = (dict(_fields(json.loads(text), "", {})) for text in (old, new))
    except (ValueError, TypeError, KeyError, RecursionError):  # another format, or no valid schema
        return []
    found = []
    was, now = (_record_name(json.loads(text)) for text in (old, new))
    if was is not None and now is not None and was != now:
        found.append(f"{NAME_DIFFERS}: was {was}, is {now}")
    for path, field in after.items():
        earlier = before.get(path)
        if earlier is None:
            found.append(f"{path}: new, {field.kind}, {'with' if field.has_default else 'without'} a default")
        elif earlier.kind != field.kind:
            found.append(f"{path}: was {earlier.kind}, is {field.kind}")
    for path, field in before.items():
        if path not in after:
            found.append(f"{path}: was {field.kind}, is missing")
    return found


def _record_name(schema: Any) -> str | None:
    """Returns the full name of a record. Readers find records by it, so a registry refuses another one."""
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error") or not isinstance(schema.get("name"), str):
        return None
    name, namespace = schema["name"], schema.get("namespace")
    return f"{namespace}.{name}" if isinstance(namespace, str) and namespace and "." not in name else name


def _fields(schema: Any, path: str, known: dict[str, Any]) -> Iterator[tuple[str, _Field]]:
    """Yields the fields of all records below a type. `known` has the named types that were met, so recursion ends."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _fields(branch, path, known)
        return
    if not isinstance(schema, dict):
        return
    kind = schema["type"]
    if kind == "array":
        yield from _fields(schema["items"], f"{path}[]", known)
    elif kind == "map":
        yield from _fields(schema["values"], f"{path}{{}}", known)
    elif kind == "record":
        if schema["name"] in known:
            return
        known[schema["name"]] = schema
        for field in schema["fields"]:
            inner = f"{path}.{field['name']}".lstrip(".")
            yield inner, _Field(_kind(field["type"]), "default" in field)
            yield from _fields(field["type"], inner, known)
    elif not isinstance(kind, str):
        yield from _fields(kind, path, known)


def _kind(schema: Any) -> str:
    """Returns a type in words. A record inside has its fields on lines of their own."""
    if isinstance(schema, list):
        return " or ".join(map(_kind, schema))
    if not isinstance(schema, dict):
        return str(schema)
    kind = schema["type"]
    if "logicalType" in schema:
        details = ", ".join(f"{schema[name]}" for name in ("precision", "scale") if name in schema)
        return f"{schema['logicalType']}({details}) in {_base(schema)}" if details else f"{schema['logicalType']}"
    if kind == "array":
        return f"array of {_kind(schema['items'])}"
    if kind == "map":
        return f"map of {_kind(schema['values'])}"
    return _base(schema)


def _base(schema: dict[str, Any]) -> str:
    kind = schema["type"]
    if kind == "fixed":
        return f"fixed({schema['size']}) {schema['name']}"
    if kind == "enum":
        return f"enum {schema['name']} of {', '.join(schema['symbols'])}"
    return f"{kind} {schema['name']}" if kind == "record" else _kind(kind)
