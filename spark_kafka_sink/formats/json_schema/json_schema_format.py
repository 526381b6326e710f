"""JSON Schema as a format of schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.json_schema.json_document import Documents, differences, official
from spark_kafka_sink.formats.json_schema.json_fit import JsonPlan, fit, json_type
from spark_kafka_sink.formats.json_schema.json_single import MODULE, USED_BY, SingleValues
from spark_kafka_sink.formats.nodes import Derivation, comment_of
from spark_kafka_sink.formats.schema_format import Latest, LoadedSchema, SchemaFormat
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.producer.serializers.arrays import is_binary, is_list, is_text, is_uuid
from spark_kafka_sink.producer.serializers.json_serializer import json_bytes

_INLINE: Final = "confluent:rules"


class JsonSchemaFormat(SchemaFormat):
    """JSON Schema. References have the URI that `$ref` has."""

    name = "json-schema"
    kind = "JSON"
    differences = staticmethod(differences)

    def prepared(self, text: str, named: Mapping[str, str], message: str | None) -> tuple[str, Mapping[str, str]]:
        Documents(text, named)
        for name, one in {"the schema": text, **named}.items():
            _check_schema(json.loads(one), name)
        return text, named

    def derived(self, kind: pa.DataType, name: str, latest: Latest) -> str:
        return derive(kind, name)

    def inline_rules(self, text: str) -> list[str]:
        try:
            return _inline_rules(json.loads(text), "")
        except (ValueError, RecursionError):
            return [_INLINE] if _INLINE in text else []


class LoadedJsonSchema(LoadedSchema):
    """A JSON Schema. Columns do not need the library jsonschema, single values do."""

    def __init__(self, text: str, named: Mapping[str, str]) -> None:
        self._text, self._named = text, dict(named)
        self._documents = Documents(text, named)
        root = self._documents.root.value
        title = root.get("title") if isinstance(root, dict) else None
        self.record_name = title if isinstance(title, str) and title else None
        self._single_values: SingleValues | None = None

    def fit(self, kind: pa.DataType) -> JsonPlan:
        return fit(self._documents, kind)

    def encode_value(self, value: Any, prefix: bytes = b"") -> bytes | None:
        if value is None:
            return None
        data = json_bytes(value)
        if self._single_values is None:
            self._single_values = SingleValues(self._text, self._named)
        self._single_values.check(json.loads(data))
        return prefix + data


def _check_schema(schema: Any, name: str) -> None:
    check_extra(MODULE, USED_BY)
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError as InvalidError
    from jsonschema.validators import validator_for

    schema = official(schema)
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except InvalidError as error:
        where = "".join(f"/{step}" for step in error.absolute_path)
        raise SchemaError(f"{name} is not a valid JSON Schema: #{where}: {error.message}") from None
    except RecursionError:
        raise SchemaError(f"{name} is nested too deeply") from None


def _inline_rules(schema: Any, path: str) -> list[str]:
    if isinstance(schema, list):
        return [rule for one in schema for rule in _inline_rules(one, path)]
    if not isinstance(schema, dict):
        return []
    found = [f"{path or 'the schema'} ({_INLINE})"] if schema.get(_INLINE) else []
    for name, inner in schema.items():
        if name == "properties" and isinstance(inner, dict):
            found += [rule for key, one in inner.items() for rule in _inline_rules(one, f"{path}.{key}".lstrip("."))]
        else:
            found += _inline_rules(inner, path)
    return found


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
    walk.end("JSON")
    return json.dumps({"$schema": DIALECT, "title": name, **found}, ensure_ascii=False)


class _Walk(Derivation):
    def type_of(self, kind: pa.DataType, path: str) -> dict[str, Any]:
        if pa.types.is_dictionary(kind):
            return self.type_of(kind.value_type, path)
        if pa.types.is_struct(kind):
            return self._object(kind, path)
        if is_list(kind):
            return {"type": "array", "items": self._element(kind.value_field, f"{path}[]")}
        if pa.types.is_map(kind):
            if not is_text(kind.key_type):
                self.problem(path, f"the keys of a map are {kind.key_type}, must be string")
            return {"type": "object", "additionalProperties": self._element(kind.item_field, f"{path}[]")}
        written = json_type(kind)
        if written is None or written == "null":
            self.problem(path, f"JSON has no type for {kind}: cast it, for example to string")
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
                self.problem(inside, "two columns have this name")
            properties[field.name] = self.type_of(field.type, inside)
            if comment := comment_of(field):
                properties[field.name]["description"] = comment
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
