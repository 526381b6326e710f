"""The text of a JSON Schema and of those that it refers to, with a place for each schema inside of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from spark_kafka_sink.errors import SchemaError

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
        value, pointer = self.value, self.pointer
        for step in steps:
            value = value[step]
            pointer += "/" + str(step).replace("~", "~0").replace("/", "~1")
        return Place(value, self.document, pointer)


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
        for step in fragment.split("/")[1:]:
            if not found.is_root and self.has_own_uri(found):
                raise UnknownReferenceError("it leads through a schema with an $id of its own, which is not supported")
            found = _inside(found, step.replace("~1", "/").replace("~0", "~"))
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


def _inside(place: Place, step: str) -> Place:
    value = place.value
    if isinstance(value, dict) and step in value:
        return place.at(step)
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        return place.at(int(step))
    raise UnknownReferenceError("it leads to nothing")


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
