"""Derives a JSON Schema from the type of a column."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.json_schema.json_fit import json_type
from spark_kafka_sink.producer.serializers.arrays import is_binary, is_list, is_text, is_uuid

DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""Draft 7, which Confluent's serializers use by default."""


def derive(kind: pa.DataType, name: str) -> str:
    """Derives a schema, as JSON text.

    A field that may be null is not required. The field metadata `comment` becomes `description`.

    Args:
        kind: type of the column; a struct becomes an object without other properties.
        name: title of the schema.

    Raises:
        SchemaError: JSON has no such type. The text names each column.
    """
    walk = _Walk()
    found = walk.type_of(kind, "")
    if walk.problems:
        lines = "".join(f"\n  {path}: {problem}" for path, problem in walk.problems)
        raise SchemaError(f"JSON cannot hold the columns:{lines}", fields=tuple(path for path, _ in walk.problems))
    return json.dumps({"$schema": DIALECT, "title": name, **found}, ensure_ascii=False)


class _Walk:
    """Walks over a type. It keeps the columns that JSON cannot hold."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str]] = []

    def type_of(self, kind: pa.DataType, path: str) -> dict[str, Any]:
        if pa.types.is_dictionary(kind):
            return self.type_of(kind.value_type, path)
        if pa.types.is_struct(kind):
            return self._object(kind, path)
        if is_list(kind):
            return {"type": "array", "items": self._element(kind.value_field, f"{path}[]")}
        if pa.types.is_map(kind):
            if not is_text(kind.key_type):
                self._problem(path, f"the keys of a map are {kind.key_type}, must be string")
            return {"type": "object", "additionalProperties": self._element(kind.item_field, f"{path}[]")}
        written = json_type(kind)
        if written is None or written == "null":
            self._problem(path, f"JSON has no type for {kind}: cast it, for example to string")
        found: dict[str, Any] = {"type": written}
        if pa.types.is_date(kind):
            found["format"] = "date"
        elif pa.types.is_timestamp(kind) and kind.tz is not None:
            found["format"] = "date-time"
        elif is_uuid(kind):
            found["format"] = "uuid"
        elif is_binary(kind):
            found["contentEncoding"] = "base64"
        return found

    def _object(self, kind: pa.DataType, path: str) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required = []
        for index in range(kind.num_fields):
            field = kind.field(index)
            inside = f"{path}.{field.name}"
            if field.name in properties:
                self._problem(inside, "two columns have this name")
            properties[field.name] = self.type_of(field.type, inside)
            comment = (field.metadata or {}).get(b"comment")
            if comment:
                properties[field.name]["description"] = comment.decode(errors="replace")
            if not field.nullable:
                required.append(field.name)
        found: dict[str, Any] = {"type": "object", "properties": properties}
        if required:  # draft 4 does not allow an empty list
            found["required"] = required
        return {**found, "additionalProperties": False}

    def _element(self, field: pa.Field, path: str) -> dict[str, Any]:
        """Returns the schema of an element or of a map's value. Unlike fields, their nulls are written."""
        found = self.type_of(field.type, path)
        return {"oneOf": [{"type": "null"}, found]} if field.nullable else found

    def _problem(self, path: str, problem: str) -> None:
        self.problems.append((path.lstrip(".") or "the value", problem))
