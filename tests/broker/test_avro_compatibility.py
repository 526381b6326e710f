"""Which schemas of a reader and a writer go together, as fastavro's own reader sees it."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from fastavro.read import SchemaResolutionError

from spark_kafka_sink.broker.avro_compatibility import misfits
from tests.every import every


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


X = {"name": "x", "type": "int"}
INNER = {"type": "record", "name": "Inner", "fields": [X]}

# reader, writer, a value of the writer, the type of the misfit
CASES: dict[str, tuple[Any, Any, Any, str]] = {
    "the same": (record(X), record(X), {"x": 1}, ""),
    "a field less": (record(X), record(X, {"name": "y", "type": "int"}), {"x": 1, "y": 2}, ""),
    "a field more": (record(X, {"name": "y", "type": "int"}), record(X), {"x": 1}, "READER_FIELD_MISSING_DEFAULT_VALUE"),
    "a field more with a default": (record(X, {"name": "y", "type": "int", "default": 0}), record(X), {"x": 1}, ""),
    "an alias": (record({"name": "z", "type": "int", "aliases": ["x"]}), record(X), {"x": 1}, ""),
    "a wider type": (record({"name": "x", "type": "double"}), record(X), {"x": 1}, ""),
    "a narrower type": (record(X), record({"name": "x", "type": "long"}), {"x": 1}, "TYPE_MISMATCH"),
    "another type": (record({"name": "x", "type": "string"}), record(X), {"x": 1}, "TYPE_MISMATCH"),
    "nullable now": (record({"name": "x", "type": ["null", "int"]}), record(X), {"x": 1}, ""),
    "no longer nullable": (record(X), record({"name": "x", "type": ["null", "int"]}), {"x": None}, "TYPE_MISMATCH"),
    "no branch": (["null", "string"], "boolean", True, "MISSING_UNION_BRANCH"),
    "an element": ({"type": "array", "items": "string"}, {"type": "array", "items": "int"}, [1], "TYPE_MISMATCH"),
    "a value of a map": ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, {"k": 1}, ""),
    "a symbol less": (
        {"type": "enum", "name": "E", "symbols": ["A"]},
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        "B",
        "MISSING_ENUM_SYMBOLS",
    ),
    "a size": ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 1}, b"x", "FIXED_SIZE_MISMATCH"),
    "a type by its name": (
        record({"name": "a", "type": INNER}, {"name": "b", "type": "Inner"}),
        record({"name": "a", "type": INNER}, {"name": "b", "type": "Inner"}),
        {"a": {"x": 1}, "b": {"x": 2}},
        "",
    ),
    "a recursive record": (
        record(X, {"name": "next", "type": ["null", "R"]}),
        record(X, {"name": "next", "type": ["null", "R"]}),
        {"x": 1, "next": {"x": 2, "next": None}},
        "",
    ),
}


@every("case", CASES)
def test_a_reader_can_read_what_fastavro_reads(case: str) -> None:
    reader, writer, value, problem = CASES[case]

    found = misfits(reader, writer)

    assert bool(found) is bool(problem), found
    assert all(f"errorType:'{problem}'" in text for text in found)
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(writer), value)
    data.seek(0)
    if problem:
        with pytest.raises((SchemaResolutionError, ValueError)):
            fastavro.schemaless_reader(data, fastavro.parse_schema(writer), fastavro.parse_schema(reader))
    else:
        fastavro.schemaless_reader(data, fastavro.parse_schema(writer), fastavro.parse_schema(reader))


def test_the_name_of_a_record_counts() -> None:
    assert "NAME_MISMATCH" in misfits(record(X, name="A"), record(X, name="B"))[0]
