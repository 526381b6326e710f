"""Tells what a JSON Schema says about types alone: whether it excludes all values of a type, and whether it allows null.

Each place of a schema is judged once, because many references may lead to one place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from spark_kafka_sink.formats.json_schema.json_document import Documents, Place, UnknownReferenceError

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
