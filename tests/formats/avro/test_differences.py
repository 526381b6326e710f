"""The lines about two schemas that differ."""

from __future__ import annotations

import json
from typing import Any

from spark_kafka_sink.formats.avro.avro_format import differences


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def test_each_field_that_differs_has_both_types() -> None:
    inner = [field("x", "int"), field("y", ["null", "string"], default=None)]
    old = record(
        field("id", "long"),
        field("gone", "string"),
        field("amount", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        field("tags", {"type": "array", "items": "string"}),
        field("inner", ["null", record(*inner, name="I")]),
    )
    new = record(
        field("id", "string"),
        field("amount", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}),
        field("tags", {"type": "array", "items": "int"}),
        field("inner", ["null", record(field("x", "long"), inner[1], name="I")]),
        field("added", "int"),
        field("free", "int", default=0),
    )
    assert differences(json.dumps(old), json.dumps(new)) == [
        "id: was long, is string",
        "amount: was decimal(9, 2) in bytes, is decimal(12, 2) in bytes",
        "tags: was array of string, is array of int",
        "inner.x: was int, is long",
        "added: new, int, without a default",
        "free: new, int, with a default",
        "gone: was string, is missing",
    ]


def test_another_name_of_the_record_comes_first() -> None:
    """Readers find a record by its name, so a registry refuses another one, whatever its fields are."""
    old = json.dumps({**record(field("id", "int")), "namespace": "shop"})
    assert differences(old, json.dumps(record(field("id", "long")))) == [
        "the name of the record: was shop.R, is R",
        "id: was int, is long",
    ]
    assert differences(old, json.dumps({**record(field("id", "int")), "name": "shop.R"})) == []


def test_recursive_schemas_end() -> None:
    node = json.dumps(record(field("next", ["null", "R"]), field("id", "int")))
    assert differences(node, node) == []
    assert differences(node, json.dumps(record(field("id", "int")))) == ["next: was null or R, is missing"]


def test_what_is_no_avro_has_no_differences() -> None:
    assert differences('syntax = "proto3";', '"string"') == []
    assert differences('"string"', '"long"') == []
