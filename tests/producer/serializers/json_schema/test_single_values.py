"""Single values are written like those of columns, and validated; tasks write columns without jsonschema."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections import namedtuple
from decimal import Decimal
from typing import Any

import pytest

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.producer.serializers.json_schema.json_schema_format import JsonSchemaFormat
from tests.planted_secrets import MARK

JSON_SCHEMA = JsonSchemaFormat()
ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "day": {"$ref": "days.json"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id"],
    "additionalProperties": False,
}
DAYS = {"type": "string", "format": "date"}


def encoded(value: Any) -> bytes | None:
    texts = JSON_SCHEMA.prepared(json.dumps(ORDER), {"days.json": json.dumps(DAYS)}, None)
    return JSON_SCHEMA.load(*texts).encode_value(value, b"\0\0\0\0\1")


def test_values_are_written_as_json_behind_the_prefix() -> None:
    row = namedtuple("row", ["id", "day"])
    assert encoded({"id": 1, "day": datetime.date(2026, 1, 2)}) == b'\0\0\0\0\1{"id":1,"day":"2026-01-02"}'
    assert encoded(row(2, None)) == b'\0\0\0\0\1{"id":2}'
    assert encoded({"id": Decimal("2.0")}) == b'\0\0\0\0\1{"id":2.0}'
    assert encoded(None) is None


@pytest.mark.parametrize(
    ("value", "path", "where"),
    [
        ({"id": MARK}, "id", "/properties/id/type"),
        ({"id": 1, "tags": ["a", None, MARK]}, r"tags\[1\]", "/properties/tags/items/type"),
        ({"id": 1, "day": "2026-02-30"}, "day", "/properties/day/format"),
        ({MARK: 1, "id": 1}, "the value", "/additionalProperties"),
        ({}, "the value", "/required"),
        ({"id": None}, "id", "/properties/id/type"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_its_path_alone(value: Any, path: str, where: str) -> None:
    with pytest.raises(SerializationError, match=rf"{path}: it does not fit the JSON Schema at #{where}") as caught:
        encoded(value)
    assert MARK not in f"{caught.value} {caught.value.facts}"


def test_a_reference_that_leads_to_nothing_is_an_error_of_the_schema() -> None:
    loaded = JSON_SCHEMA.load('{"$ref": "none.json"}', {})
    with pytest.raises(SchemaError, match=r"\$ref 'none\.json' of the JSON Schema leads to nothing"):
        loaded.encode_value(1)


WITHOUT_LIBRARY = """
import sys
for name in ("jsonschema", "referencing", "rpds"):
    sys.modules[name] = None
import pyarrow as pa
from spark_kafka_sink.errors import InstallationError
from spark_kafka_sink.producer.serializers.json_schema.json_schema_format import JsonSchemaFormat

schema = '{"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}, "required": ["a"]}'
loaded = JsonSchemaFormat().load(schema, {})
column = pa.array([{"a": "x"}])
print(loaded.fit(column.type).encode(column).to_pylist())
try:
    JsonSchemaFormat().prepared(schema, {}, None)
except InstallationError as error:
    print(error.message)
"""


def test_columns_are_written_and_checked_without_jsonschema() -> None:
    found = subprocess.run([sys.executable, "-c", WITHOUT_LIBRARY], capture_output=True, text=True, timeout=120, check=True)
    written, refused = found.stdout.splitlines()
    assert written == """[b'{"a":"x"}']"""
    assert (
        refused
        == "format json-schema needs jsonschema, and jsonschema is not installed: pip install 'spark-kafka-sink[json-schema]'"
    )
