"""The schema that is derived from columns, and what two schemas differ in."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.json_schema.json_schema_format import JsonSchemaFormat

JSON_SCHEMA = JsonSchemaFormat()


def test_each_type_has_its_schema() -> None:
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    kind = pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"comment": "Who ördered"}),
            pa.field("flag", pa.bool_()),
            pa.field("ratio", pa.float32()),
            pa.field("amount", pa.decimal128(9, 2)),
            pa.field("count", pa.decimal128(9, 0)),
            pa.field("name", pa.string()),
            pa.field("blob", pa.binary()),
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("local", pa.timestamp("us")),
            pa.field("time", pa.time64("us")),
            pa.field("uuid", pa.uuid()),
            pa.field("word", pa.dictionary(pa.int8(), pa.string())),
            pa.field("inner", inner),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("codes", pa.list_(pa.field("element", pa.int8(), nullable=False))),
            pa.field("by_name", pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False))),
        ]
    )
    found = json.loads(JSON_SCHEMA.derive(kind, "orders_value"))
    assert found == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "orders_value",
        "type": "object",
        "properties": {
            "id": {"type": "integer", "description": "Who ördered"},
            "flag": {"type": "boolean"},
            "ratio": {"type": "number"},
            "amount": {"type": "number"},
            "count": {"type": "integer"},
            "name": {"type": "string"},
            "blob": {"type": "string", "contentEncoding": "base64"},
            "day": {"type": "string", "format": "date"},
            "at": {"type": "string", "format": "date-time"},
            "local": {"type": "string"},
            "time": {"type": "string"},
            "uuid": {"type": "string", "format": "uuid"},
            "word": {"type": "string"},
            "inner": {
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
                "additionalProperties": False,
            },
            "tags": {"type": "array", "items": {"oneOf": [{"type": "null"}, {"type": "string"}]}},
            "codes": {"type": "array", "items": {"type": "integer"}},
            "by_name": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["id"],
        "additionalProperties": False,
    }
    assert JSON_SCHEMA.load(*JSON_SCHEMA.prepared(json.dumps(found), {}, None)).record_name == "orders_value"


def test_another_type_than_a_struct_has_a_schema_too() -> None:
    assert json.loads(JSON_SCHEMA.derive(pa.string(), "key")) == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "key",
        "type": "string",
    }


def test_all_columns_that_json_cannot_hold_are_named() -> None:
    kind = pa.struct(
        [
            ("a", pa.duration("us")),
            ("b", pa.list_(pa.null())),
            ("c", pa.map_(pa.int32(), pa.int32())),
            ("d", pa.struct([("x", pa.int8()), ("x", pa.int8())])),
        ]
    )
    with pytest.raises(SchemaError) as caught:
        JSON_SCHEMA.derive(kind, "x")
    assert caught.value.message.splitlines() == [
        "JSON cannot hold the columns:",
        "  a: JSON has no type for duration[us]: cast it, for example to string",
        "  b[]: JSON has no type for null: cast it, for example to string",
        "  c: the keys of a map are int32, must be string",
        "  d.x: two columns have this name",
    ]
    assert caught.value.facts["fields"] == ("a", "b[]", "c", "d.x")


def differences(old: Any, new: Any) -> list[str]:
    return JSON_SCHEMA.differences(json.dumps(old), json.dumps(new))


def test_each_property_that_differs_has_both_types() -> None:
    old = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "gone": {"type": "string"},
            "at": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "inner": {"oneOf": [{"type": "null"}, {"type": "object", "properties": {"x": {"type": "integer"}}}]},
            "same": {"$ref": "#/definitions/s", "description": "old"},
            "by_name": {"additionalProperties": {"type": "integer"}},
        },
        "required": ["id"],
        "definitions": {"s": {"type": "string", "maxLength": 3}},
    }
    new = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": ["string", "null"], "enum": ["a", None]}},
            "inner": {"oneOf": [{"type": "null"}, {"type": "object", "properties": {"x": {"type": "string"}}}]},
            "same": {"$ref": "#/definitions/s", "description": "new"},
            "by_name": {"additionalProperties": True},
            "added": {},
        },
        "required": ["added"],
        "additionalProperties": False,
        "definitions": {"s": {"type": "string", "maxLength": 2}},
    }
    assert differences(old, new) == [
        "the value: was object, is object, no other properties",
        "id: was integer, required, is integer, not required",
        "at: was string, format date, not required, is string, format date-time, not required",
        'tags[]: was string, is string or null, enum ["a", null]',
        "inner.x: was integer, not required, is string, not required",
        "added: new, any type, required",
        "#/definitions/s: was string, maxLength 3, is string, maxLength 2",
        "gone: was string, not required, is missing",
        "by_name{}: was integer, is missing",
    ]
    assert differences(new, new) == []
    assert JSON_SCHEMA.differences("{", "{}") == []


def test_rules_of_properties_are_found() -> None:
    schema = {
        "properties": {"a": {"type": "string"}, "b": {"items": {"properties": {"c": {"confluent:rules": [{"name": "x"}]}}}}},
        "confluent:tags": ["PII"],
    }
    assert JSON_SCHEMA.inline_rules(json.dumps(schema)) == ["b.c (confluent:rules)"]
    assert JSON_SCHEMA.inline_rules(json.dumps({"confluent:tags": ["PII"]})) == []
