"""Types of a JSON Schema in words, for errors; and what two schemas differ in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

# Keywords that say nothing about values, and those whose schemas have lines of their own.
_SILENT: Final = frozenset(
    {"type", "properties", "required", "items", "additionalProperties", "title", "description", "default", "examples", "$comment"}
    | {"$schema", "$id", "id", "$defs", "definitions", "deprecated", "readOnly", "writeOnly"}
    | {"$anchor", "$dynamicAnchor", "$vocabulary", "contentMediaType", "contentSchema"}
)
_LONGEST: Final = 60


def with_article(written: str) -> str:
    """Returns a type in JSON with its article."""
    return written if written == "null" else f"{'an' if written[0] in 'aeiou' else 'a'} {written}"


def in_words(schema: Any, depth: int = 3) -> str:
    """Returns the type of a schema, and its other keywords that restrict values. depth: how many levels of it."""
    if depth == 0:
        return "..."
    if isinstance(schema, bool) or schema == {}:
        return "nothing" if schema is False else "any type"
    if not isinstance(schema, dict):
        return "no schema"
    kind = schema.get("type")
    words = [" or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)] if kind is not None else []
    if schema.get("additionalProperties") is False:
        words.append("no other properties")
    words += [_restriction(name, value, depth) for name, value in schema.items() if name not in _SILENT and ":" not in name]
    return ", ".join(words) or ("object" if "properties" in schema else "array" if "items" in schema else "any type")


def _restriction(name: str, value: Any, depth: int) -> str:
    if name in ("oneOf", "anyOf", "allOf") and isinstance(value, list):
        return f"{name} of ({'; '.join(in_words(one, depth - 1) for one in value)})"
    return f"{name} {shown(value)}".rstrip()


def shown(value: Any) -> str:
    """Returns the value of a keyword, cut if it is long."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    except RecursionError:
        return ""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


class _Part(NamedTuple):
    kind: str
    is_required: bool | None  # None: it is not a property

    def __str__(self) -> str:
        return self.kind if self.is_required is None else f"{self.kind}, {'required' if self.is_required else 'not required'}"


def differences(old: str, new: str) -> list[str]:
    """Returns one line for each property that only one schema has, or whose type differs, with both types.

    Args:
        old: JSON text of the registered schema.
        new: JSON text of the other one.
    """
    try:
        before, after = (dict(_parts("", json.loads(text))) for text in (old, new))
    except (ValueError, TypeError, AttributeError, RecursionError):  # another format, or no valid schema
        return []
    found = []
    for path, one in after.items():
        earlier = before.get(path)
        if earlier is None:
            found.append(f"{path}: new, {one}")
        elif earlier.is_required != one.is_required:
            found.append(f"{path}: was {earlier}, is {one}")
        elif earlier.kind != one.kind:
            found.append(f"{path or 'the value'}: was {earlier.kind}, is {one.kind}")
    found += [f"{path}: was {one}, is missing" for path, one in before.items() if path not in after]
    return found


def _parts(path: str, schema: Any, is_required: bool | None = None) -> Iterator[tuple[str, _Part]]:
    """Yields a schema and all schemas below it. References are not followed: what they lead to has a path of its own."""
    yield path, _Part(in_words(schema), is_required)
    yield from _below(path, schema)


def _below(path: str, schema: Any) -> Iterator[tuple[str, _Part]]:
    if not isinstance(schema, dict):
        return
    required = schema.get("required", [])
    for name, inner in schema.get("properties", {}).items():
        yield from _parts(f"{path}.{name}".lstrip("."), inner, name in required)
    if isinstance(schema.get("items"), dict):
        yield from _parts(f"{path}[]", schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _parts(f"{path}{{}}", schema["additionalProperties"])
    for keyword in ("allOf", "anyOf", "oneOf"):
        for branch in schema.get(keyword, []):
            yield from _below(path, branch)
    for keyword in ("definitions", "$defs"):
        for name, inner in schema.get(keyword, {}).items():
            yield from _parts(f"#/{keyword}/{name}", inner)
