"""Tells what a JSON Schema says about types alone: whether it excludes all values of a type, and whether it allows null.

Each place of a schema is judged once, because many references may lead to one place.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from spark_kafka_sink.formats.json_schema.json_document import Documents, Place, UnknownReferenceError
from spark_kafka_sink.formats.schema_format import compared

REFUSED_ALWAYS: Final = ("if", "not", "$dynamicRef", "$recursiveRef", "extends", "disallow")
"""Keywords that are supported for no type."""
HARMLESS: Final[Mapping[str, Collection[Any]]] = {
    "uniqueItems": [False],
    "unevaluatedItems": [True, {}],
    "unevaluatedProperties": [True, {}],
    "propertyNames": [True, {}],
    "patternProperties": [{}],
    "dependencies": [{}],
    "dependentRequired": [{}],
    "dependentSchemas": [{}],
    "disallow": [[]],
    "extends": [[], {}],
}
"""Keywords that restrict nothing if they have one of these values."""
_OF_JSON: Final[Mapping[type, str]] = {bool: "boolean", int: "integer", Decimal: "number", str: "string", type(None): "null"}

_Key = tuple[str, str, str]


class Types:
    """Judges the schemas of documents.

    Args:
        documents: the schemas.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._excluded: dict[_Key, bool] = {}
        self._nulls: dict[_Key, bool | None] = {}

    def excludes(self, place: Place, written: str) -> bool:
        """Returns whether it is sure that no value of a type in JSON is valid."""
        if not isinstance(place.value, dict):
            return place.value is False
        key = (place.document, place.pointer, written)
        if key not in self._excluded:
            self._excluded[key] = False  # while it is found out, for a schema that leads back to itself
            self._excluded[key] = self._found_to_exclude(place, written)
        return self._excluded[key]

    def allows_null(self, place: Place) -> bool:
        """Returns whether it is sure that null is valid, in all drafts."""
        return self._of_null(place) is True

    def _found_to_exclude(self, place: Place, written: str) -> bool:
        schema = place.value
        if "$ref" in schema:  # older drafts ignore what stands beside it
            try:
                return self.excludes(self._documents.referred(place, schema["$ref"]), written)
            except UnknownReferenceError:
                return False
        if "type" in schema and not may_have_type(schema["type"], written):
            return True
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and not any(may_have_type(_OF_JSON.get(type(value), written), written) for value in values):
            return True
        if any(self.excludes(one, written) for one in branches(place, "allOf")):
            return True
        choices = [branches(place, keyword) for keyword in ("anyOf", "oneOf")]
        return any(choice and all(self.excludes(one, written) for one in choice) for choice in choices)

    def _of_null(self, place: Place) -> bool | None:
        """Returns whether null is valid; None: drafts differ, or it is not known."""
        if not isinstance(place.value, dict):
            return place.value if isinstance(place.value, bool) else None
        key = (place.document, place.pointer, "")
        if key not in self._nulls:
            self._nulls[key] = None  # while it is found out, for a schema that leads back to itself
            self._nulls[key] = self._found_of_null(place)
        return self._nulls[key]

    def _found_of_null(self, place: Place) -> bool | None:
        schema = place.value
        found = [None for keyword in REFUSED_ALWAYS if keyword in schema and schema[keyword] not in HARMLESS.get(keyword, ())]
        if not place.is_root and self._documents.has_own_uri(place):
            found.append(None)
        own = _all([*found, *self._verdicts(place)])
        if "$ref" not in schema:
            return own
        try:
            referred = self._of_null(self._documents.referred(place, schema["$ref"]))
        except UnknownReferenceError:
            return None
        # Older drafts ignore what stands beside it.
        return referred if own is True or referred is False else None

    def _verdicts(self, place: Place) -> Iterable[bool | None]:
        schema = place.value
        if "type" in schema:
            yield has_type(schema["type"], "null")
        if "const" in schema:
            yield schema["const"] is None
        if isinstance(schema.get("enum"), list):
            yield None in schema["enum"]
        yield _all([self._of_null(one) for one in branches(place, "allOf")])
        if "anyOf" in schema:
            found = [self._of_null(one) for one in branches(place, "anyOf")]
            yield True if True in found else None if None in found else False
        if "oneOf" in schema:
            found = [self._of_null(one) for one in branches(place, "oneOf")]
            yield None if None in found and found.count(True) < 2 else found.count(True) == 1


def _all(verdicts: Collection[bool | None]) -> bool | None:
    return False if False in verdicts else None if None in verdicts else True


def branches(place: Place, keyword: str) -> list[Place]:
    """Returns the schemas in the list of a keyword; none if it is not a list."""
    value = place.value.get(keyword)
    return [place.at(keyword, index) for index in range(len(value))] if isinstance(value, list) else []


def has_type(types: Any, written: str) -> bool:
    """Returns whether all values of a type in JSON have the type of a schema."""
    names = types if isinstance(types, list) else [types]
    return written in names or "any" in names or (written == "integer" and "number" in names)


def may_have_type(types: Any, written: str) -> bool:
    """Returns whether some values have it. 1.0 is an integer in most drafts."""
    names = types if isinstance(types, list) else [types]
    return has_type(names, written) or (written == "number" and "integer" in names)


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


def differences(old: str, new: str) -> list[str]:
    """Returns what `SchemaFormat.differences` does, for each property."""
    try:
        before, after = (dict(_parts("", json.loads(text))) for text in (old, new))
    except (ValueError, TypeError, AttributeError, RecursionError):  # another format, or no valid schema
        return []
    return compared(before, after)


def _parts(path: str, schema: Any, is_required: bool | None = None) -> Iterator[tuple[str, str]]:
    """Yields a schema and all schemas below it. References are not followed: what they lead to has a path of its own.

    is_required: None if it is not a property.
    """
    yield path, in_words(schema) + ("" if is_required is None else ", required" if is_required else ", not required")
    yield from _below(path, schema)


def _below(path: str, schema: Any) -> Iterator[tuple[str, str]]:
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
