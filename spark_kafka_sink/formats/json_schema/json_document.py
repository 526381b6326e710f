"""Reads a JSON Schema and those that it refers to: the places of the schemas inside, what they say about types, differences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.schema_format import compared

_DRAFTS: Final = ("draft-04", "draft-06", "draft-07")
_OLDER: Final = tuple(f"{draft}/schema" for draft in _DRAFTS)
_NEWER: Final = ("2019-09", "2020-12")
_NEWER_PATHS: Final = tuple(f"draft/{version}/schema" for version in _NEWER)
DIALECTS: Final = frozenset(
    f"{scheme}://json-schema.org/{path}" for scheme in ("http", "https") for path in (*_OLDER, *_NEWER_PATHS)
)


def official(schema: Any) -> Any:
    """Returns a schema whose `$schema` is as the draft has it. The library jsonschema knows no other spelling."""
    dialect = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS:
        return schema
    path = dialect.removesuffix("#").partition("://")[2]
    return {**schema, "$schema": f"https://{path}" if path.endswith(_NEWER_PATHS) else f"http://{path}#"}


@dataclass(frozen=True, slots=True)
class Place:
    """A schema inside a document.

    Attributes:
        value: the schema: a dict or a bool, if it is valid.
        document: the name of its document; empty for the schema that rows are written with.
        pointer: the JSON pointer that leads to it, such as `#/properties/id`.
    """

    value: Any
    document: str
    pointer: str

    def __str__(self) -> str:
        return f"{self.document}{self.pointer}"

    @property
    def is_root(self) -> bool:
        """Whether it is the whole document."""
        return self.pointer == "#"

    def at(self, *steps: str | int) -> Place:
        """Returns the place of a value inside this one."""
        value = self.value
        for step in steps:
            value = value[step]
        return Place(value, self.document, self.pointer + pointer(steps))


def pointer(steps: Iterable[str | int]) -> str:
    """Returns the JSON pointer of some steps."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


class UnknownReferenceError(Exception):
    """A `$ref` leads to nothing, or to a place that is not supported. The text is the reason."""


class Documents:
    """A schema and those that it refers to.

    Args:
        text: the schema, as JSON text.
        named: texts of the others, by the URI that `$ref` has.

    Raises:
        SchemaError: a text is not JSON, is neither an object nor a bool, or has an unknown `$schema`.
    """

    def __init__(self, text: str, named: Mapping[str, str]) -> None:
        self._values = {"": _parsed(text, "the schema"), **{name: _parsed(one, name) for name, one in named.items()}}
        self._by_uri = {}
        for name, value in self._values.items():
            self._by_uri[name] = name
            uri = _own_uri(value, _id_keyword(value))
            if uri is not None and not _is_beside_reference(value):
                self._by_uri.setdefault(uri, name)
                self._by_uri.setdefault(urldefrag(urljoin(name, uri)).url, name)
        self.root = Place(self._values[""], "", "#")

    def referred(self, place: Place, reference: Any) -> Place:
        """Returns what the `$ref` of a schema leads to. Raises UnknownReferenceError."""
        if not isinstance(reference, str):
            raise UnknownReferenceError("it is not text")
        relative, fragment = urldefrag(reference)
        document = self._document(place.document, relative) if relative else place.document
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            raise UnknownReferenceError("references to an anchor are not supported; use a path such as #/$defs/name")
        found = Place(self._values[document], document, "#")
        for escaped in fragment.split("/")[1:]:
            if not found.is_root and self.has_own_uri(found):
                raise UnknownReferenceError("it leads through a schema with an $id of its own, which is not supported")
            step, value = escaped.replace("~1", "/").replace("~0", "~"), found.value
            if isinstance(value, dict) and step in value:
                found = found.at(step)
            elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
                found = found.at(int(step))
            else:
                raise UnknownReferenceError("it leads to nothing")
        return found

    def has_own_uri(self, place: Place) -> bool:
        """Returns whether a schema has a URI, to which the references inside of it are relative."""
        return _own_uri(place.value, _id_keyword(self._values[place.document])) is not None

    def _document(self, document: str, relative: str) -> str:
        """Returns the name of another document, whose URI is relative to this one's.

        Some validators take the URI that a document has for itself, and others the one that led to it. Both must lead to one.
        """
        value = self._values[document]
        own = _own_uri(value, _id_keyword(value))
        bases = [document] if document or own is None or _is_beside_reference(value) else []
        bases += [] if own is None else [urljoin(document, own)]
        uris = [urljoin(base, relative) for base in bases]
        if len({self._by_uri.get(uri) for uri in uris}) > 1 or uris[0] not in self._by_uri:
            raise UnknownReferenceError(f"the schema has no reference with the name {' and '.join(dict.fromkeys(uris))}")
        return self._by_uri[uris[0]]


def _id_keyword(document: Any) -> str:
    is_draft_4 = isinstance(document, dict) and "draft-04" in str(document.get("$schema"))
    return "id" if is_draft_4 else "$id"


def _own_uri(value: Any, keyword: str) -> str | None:
    """Returns the URI that a schema has for itself, without a fragment."""
    uri = value.get(keyword) if isinstance(value, dict) else None
    return urldefrag(uri).url if isinstance(uri, str) else None


def _is_beside_reference(document: Any) -> bool:
    """Returns whether some validators ignore the URI of a document: the older drafts ignore what stands beside `$ref`."""
    return isinstance(document, dict) and "$ref" in document and str(document.get("$schema")).rstrip("#").endswith(_OLDER)


def _parsed(text: str, name: str) -> Any:
    """Returns a document. Its fractions are Decimal, so that no digit is lost."""
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_float=Decimal, parse_constant=_refused_constant)
    except ValueError as error:
        raise SchemaError(f"{name} is not valid JSON: {error}") from None
    except RecursionError:
        raise SchemaError(f"{name} is nested too deeply") from None
    if not isinstance(found, dict | bool):
        raise SchemaError(f"{name} is not a JSON Schema: it is neither an object nor true or false")
    dialect = found.get("$schema") if isinstance(found, dict) else None
    if dialect is not None and (not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS):
        versions = ", ".join((*_DRAFTS, *_NEWER))
        raise SchemaError(f"{name}: $schema {dialect!r} is not supported; must be one of {versions}")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object. Raises ValueError for a key that it has twice: readers may take the first or the last one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"an object has the key {twice!r} twice")
    return found


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


# Types

REFUSED_ALWAYS: Final = ("if", "not", "$dynamicRef", "$recursiveRef", "extends", "disallow")
"""Keywords that are supported for no type."""
_HARMLESS: Final[Mapping[str, Collection[Any]]] = {
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
        found: list[bool | None] = [None for _ in restricting(schema, REFUSED_ALWAYS)]
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


def restricting(schema: Mapping[str, Any], keywords: Iterable[str]) -> list[str]:
    """Returns the keywords that a schema has, with a value that may restrict something."""
    return [keyword for keyword in keywords if keyword in schema and schema[keyword] not in _HARMLESS.get(keyword, ())]


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


# Types in words

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
