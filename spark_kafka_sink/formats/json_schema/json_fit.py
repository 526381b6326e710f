"""Fits a JSON Schema to the type of a column: one walk over both makes the plan to write by, or finds all misfits.

Most keywords are judged from the column's type. The rest become checks of whole columns, or are refused, so that no reader that
validates can meet a row which does not pass. Where drafts of JSON Schema differ, the plan holds for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.formats.json_schema import json_kernels as kernels
from spark_kafka_sink.formats.json_schema.json_document import (
    REFUSED_ALWAYS,
    Documents,
    Place,
    Types,
    UnknownReferenceError,
    branches,
    has_type,
    in_words,
    restricting,
    with_article,
)
from spark_kafka_sink.formats.json_schema.json_kernels import Check, Rows
from spark_kafka_sink.formats.json_schema.json_values import VALUE_KEYWORDS, is_number, value_check
from spark_kafka_sink.formats.nodes import MisfitError, Walk, bad_row
from spark_kafka_sink.formats.schema_format import ColumnPlan
from spark_kafka_sink.producer.serializers.arrays import BadRowError, as_binary, is_list, is_text, joined
from spark_kafka_sink.producer.serializers.json_serializer import json_texts, why_not_json
from spark_kafka_sink.records.arrow_arrays import scalar_of_bytes

_REFUSED_OBJECTS: Final = (
    "patternProperties",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
)
_REFUSED_ARRAYS: Final = ("prefixItems", "contains", "uniqueItems", "unevaluatedItems")
_Path = tuple[str, ...]
"""The steps to a column: `.name` or `[]`. Joined, the paths of two columns may be the same."""
_DEEPEST: Final = 100
_COUNTED: Final = {"minItems": "elements", "minLength": "characters", "minProperties": "properties"}


@dataclass(frozen=True, slots=True)
class JsonPlan(ColumnPlan):
    """How to write columns of one type with one schema. It has no state, so any thread may use it."""

    documents: Documents
    kind: pa.DataType
    checks: Sequence[Check]

    def encode(self, column: pa.Array, prefix: bytes = b"") -> pa.Array:
        checks = self.checks if column.type == self.kind else fit(self.documents, column.type).checks
        try:
            texts = _checked_texts(column, checks)
        except BadRowError as found:
            raise bad_row(_first(column, checks, found)) from None
        data = as_binary(texts)
        return joined(scalar_of_bytes(prefix, data.type), data) if prefix else data


def _checked_texts(column: pa.Array, checks: Sequence[Check]) -> pa.Array:
    texts = json_texts(column)
    kernels.run(checks, column)
    return texts


def _first(column: pa.Array, checks: Sequence[Check], bad: BadRowError) -> BadRowError:
    """Returns the error of the first bad row. The checks run one after another, so a later one may find an earlier row."""
    while bad.row:
        try:
            _checked_texts(column.slice(0, bad.row), checks)
        except BadRowError as earlier:
            bad = earlier
        else:
            break
    return bad


def fit(documents: Documents, kind: pa.DataType) -> JsonPlan:
    """Makes the plan for columns of a type.

    Args:
        documents: the schema and those that it refers to.
        kind: type of the columns.

    Raises:
        SchemaError: The schema does not fit the type. The text has a line for each misfit, and `facts` has them as `misfits`.
    """
    walk = _Walk(documents)
    checks = walk.run("JSON Schema", lambda: walk.checks(documents.root, kind, ()))
    return JsonPlan(documents, kind, checks)


def json_type(kind: pa.DataType) -> str | None:
    """Returns the type in JSON of what a column is written as; None: it cannot be written."""
    if pa.types.is_dictionary(kind):
        return json_type(kind.value_type)
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return "object"
    if is_list(kind):
        return "array"
    if why_not_json(kind) is not None:
        return None
    if pa.types.is_null(kind):
        return "null"
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
        return "integer"
    return "number" if pa.types.is_floating(kind) or pa.types.is_decimal(kind) else "string"


class _Walk(Walk):
    """Walks over a schema and a type. It keeps the misfits, and returns what depends on the values."""

    def __init__(self, documents: Documents) -> None:
        super().__init__()
        self._documents = documents
        self._types = Types(documents)
        self._open = 0
        self._walked: dict[tuple[str, str, _Path], bool] = {}  # whether the walk over it has ended

    def checks(self, place: Place, kind: pa.DataType, path: _Path) -> list[Check]:
        """Returns the checks of a column, in which null rows are valid."""
        if pa.types.is_dictionary(kind):
            inner = self.checks(place, kind.value_type, path)
            return [kernels.of_dictionary(inner)] if inner else []
        written = json_type(kind)
        schema = {} if place.value is True else place.value
        if written is None:
            self._misfit(path, kind, place, "JSON has no type for it: cast it, for example to string")
        elif place.value is False:
            self._misfit(path, kind, place, "the schema allows no value")
        elif not isinstance(schema, dict):
            self._misfit(path, kind, place, f"{place} is not a schema")
        else:
            return self._once(Place(schema, place.document, place.pointer), kind, written, path)
        return []

    def _once(self, place: Place, kind: pa.DataType, written: str, path: _Path) -> list[Check]:
        """Returns the checks of a column that were not returned before: each place is walked once for each column.

        Many references may lead to one place, and each of those places may refer twice to the next.
        """
        key = (place.document, place.pointer, path)
        if key in self._walked:
            if not self._walked[key]:  # a schema that leads back to itself for one column has no end
                self._misfit(path, kind, place, f"{place} refers to itself")
            return []
        if self._open > _DEEPEST:
            self._misfit(path, kind, place, f"more than {_DEEPEST} schemas inside of each other are not supported")
            return []
        self._walked[key] = False
        self._open += 1
        found = self._of_schema(place, kind, written, path)
        self._open -= 1
        self._walked[key] = True
        return found

    def _of_schema(self, place: Place, kind: pa.DataType, written: str, path: _Path) -> list[Check]:
        schema = place.value
        found: list[Check] = []
        if not place.is_root and self._documents.has_own_uri(place):
            self._misfit(path, kind, place, f"{place} has an $id of its own, which is not supported")
        self._refuse_all(place, REFUSED_ALWAYS, kind, path)
        if "type" in schema and not has_type(schema["type"], written):
            self._misfit(path, kind, place, f"it is written as {with_article(written)}")
            return []
        if "$ref" in schema:
            found += self._referred(place, kind, path)
        for one in branches(place, "allOf"):
            found += self.checks(one, kind, path)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                found += self._branch(place, keyword, kind, written, path)
        if pa.types.is_struct(kind):
            found += self._struct(place, kind, path)
        elif pa.types.is_map(kind):
            found += self._map(place, kind, path)
        elif is_list(kind):
            found += self._list(place, kind, path)
        return found + self._of_values(place, kind, written, path)

    def _misfit(self, path: _Path, kind: pa.DataType | str, place: Place | str, reason: str) -> None:
        self.misfit("".join(path), kind, place if isinstance(place, str) else in_words(place.value), reason)

    def _refuse(self, place: Place, keyword: str, kind: pa.DataType, path: _Path, why: str = "is not supported") -> None:
        self._misfit(path, kind, place, f"keyword {keyword} at {place.at(keyword)} {why}")

    def _refuse_all(self, place: Place, keywords: Sequence[str], kind: pa.DataType, path: _Path) -> None:
        for keyword in restricting(place.value, keywords):
            self._refuse(place, keyword, kind, path)

    # Other schemas

    def _referred(self, place: Place, kind: pa.DataType, path: _Path) -> list[Check]:
        reference = place.value["$ref"]
        try:
            return self.checks(self._documents.referred(place, reference), kind, path)
        except UnknownReferenceError as error:
            self._misfit(path, kind, place, f"$ref {reference!r} at {place}: {error}")
            return []

    def _branch(self, place: Place, keyword: str, kind: pa.DataType, written: str, path: _Path) -> list[Check]:
        """Returns the checks of the one schema in a list that can hold the column, because the others have another type."""
        fitting = [branch for branch in branches(place, keyword) if not self._types.excludes(branch, written)]
        if len(fitting) == 1:
            return self.checks(fitting[0], kind, path)
        if fitting:
            self._refuse(place, keyword, kind, path, "has several schemas that may fit; only their types may tell them apart")
        else:
            self._misfit(path, kind, place, f"it is written as {with_article(written)}")
        return []

    # Nesting

    def _struct(self, place: Place, kind: pa.DataType, path: _Path) -> list[Check]:
        schema = place.value
        self._refuse_all(place, _REFUSED_OBJECTS, kind, path)
        properties = _mapped(schema.get("properties"))
        required = schema["required"] if isinstance(schema.get("required"), list) else []
        names = [kind.field(index).name for index in range(kind.num_fields)]
        fields = []
        for index, name in enumerate(names):
            field, inside = kind.field(index), (*path, f".{name}")
            if names.count(name) > 1:
                self._misfit(inside, "twice", place, "two columns have this name")
                continue
            checks = []
            inner = self._property(place, field, names, inside)
            if inner is not None and not pa.types.is_null(field.type):  # its fields are never written
                checks = self.checks(inner, field.type, inside)
            if name in required and pa.types.is_null(field.type):
                self._misfit(inside, field.type, place.at("required"), "it has only nulls, and the schema requires it")
            elif checks or name in required:
                fields.append((index, name, name in required, checks))
        for name in dict.fromkeys([*properties, *required]):
            if name not in names:
                self._missing(properties, str(name), names, name in required, (*path, f".{name}"))
        found = self._lengths(place, ("minProperties", "maxProperties"), kernels.number_of_fields, kind, path)
        return [*found, kernels.of_fields(fields)] if fields else found

    def _property(self, place: Place, field: pa.Field, names: Sequence[str], path: _Path) -> Place | None:
        properties = _mapped(place.value.get("properties"))
        if field.name in properties:
            return place.at("properties", field.name)
        if place.value.get("additionalProperties", True) is not False:
            return place.at("additionalProperties") if "additionalProperties" in place.value else Place(True, "", "".join(path))
        if not any(field.name.lower() == name.lower() for name in properties if name not in names):
            self._misfit(path, field.type, "missing", "drop the column, or add it to the schema")
        return None

    def _missing(self, properties: Mapping[str, Any], name: str, names: Sequence[str], required: bool, path: _Path) -> None:
        """Notes a property without a column, if it is required or a column differs in case."""
        words = in_words(properties.get(name, True))
        similar = next((one for one in names if one.lower() == name.lower() and one not in properties), None)
        if similar is not None:
            self._misfit(path, "missing", words, f"the column {similar} differs in case: rename it to {name}")
        elif required:
            self._misfit(path, "missing", words, "the schema requires it: add the column")

    def _map(self, place: Place, kind: pa.DataType, path: _Path) -> list[Check]:
        inside = (*path, "[]")
        if not is_text(kind.key_type):
            self._misfit(inside, kind.key_type, "string", "the keys of a map must be string")
            return []
        self._refuse_all(place, _REFUSED_OBJECTS, kind, path)
        for keyword in ("properties", "required"):
            if place.value.get(keyword):
                reason = "names properties, and a map may have any: use a struct"
                self._refuse(place, keyword, kind, path, reason)
        found = self._lengths(place, ("minProperties", "maxProperties"), kernels.list_length, kind, path)
        items = place.at("additionalProperties") if "additionalProperties" in place.value else Place(True, "", "".join(inside))
        checks, nullable = self.checks(items, kind.item_type, inside), self._types.allows_null(items)
        return [*found, kernels.of_elements(checks, nullable=nullable)] if checks or not nullable else found

    def _list(self, place: Place, kind: pa.DataType, path: _Path) -> list[Check]:
        schema, inside = place.value, (*path, "[]")
        self._refuse_all(place, _REFUSED_ARRAYS, kind, path)
        found = self._lengths(place, ("minItems", "maxItems"), kernels.list_length, kind, path)
        if isinstance(schema.get("items"), list):
            self._refuse(place, "items", kind, path, "as a list is not supported")
            return found
        items = place.at("items") if "items" in schema else Place(True, "", "".join(inside))
        checks, nullable = self.checks(items, kind.value_type, inside), self._types.allows_null(items)
        return [*found, kernels.of_elements(checks, nullable=nullable)] if checks or not nullable else found

    def _lengths(self, place: Place, keywords: tuple[str, str], length: Rows, kind: pa.DataType, path: _Path) -> list[Check]:
        """Returns the check of the bounds of a length, if the schema has any."""
        least, most = limits = [place.value.get(keyword) for keyword in keywords]
        for keyword, value in zip(keywords, limits, strict=True):
            if value is not None and not is_number(value):
                self._refuse(place, keyword, kind, path, "is not a number")
                return []
        if least is None and most is None:
            return []
        return [kernels.check(kernels.of_length(length, least, most), _out_of_bounds(least, most, _COUNTED[keywords[0]]))]

    # Values

    def _of_values(self, place: Place, kind: pa.DataType, written: str, path: _Path) -> list[Check]:
        found = []
        if written == "string":
            found += self._lengths(place, ("minLength", "maxLength"), kernels.text_length, kind, path)
        for keyword in VALUE_KEYWORDS:
            if keyword in place.value:
                try:
                    one = value_check(keyword, place.value, kind, written)
                except MisfitError as error:
                    self._misfit(path, kind, place, f"keyword {keyword} at {place.at(keyword)}: {error}")
                else:
                    found += [one] if one is not None else []
        return found


def _mapped(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _out_of_bounds(least: int | Decimal | None, most: int | Decimal | None, noun: str) -> str:
    if most is None:
        return f"it has fewer than {least} {noun}"
    return f"it has more than {most} {noun}" if least is None else f"it has fewer than {least} or more than {most} {noun}"
