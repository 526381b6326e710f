"""Schemas and columns that are nested too deeply are refused with an error that says so."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.formats.avro.avro_format import AvroFormat
from tests.every import every

AVRO = AvroFormat()
DEEP = "nested too deeply"


def nested(form: str, depth: int) -> str:
    if form == "record":
        opened = "".join(f'{{"type":"record","name":"r{level}","fields":[{{"name":"a","type":' for level in range(depth))
        return f'{opened}"long"{"}]}" * depth}'
    opening, closing = {
        "array": ('{"type":"array","items":', "}"),
        "map": ('{"type":"map","values":', "}"),
        "union": ('["null",{"type":"array","items":', "}]"),
    }[form]
    return opening * depth + '"long"' + closing * depth


def lists(depth: int) -> pa.DataType:
    kind = pa.int64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


@every("form", ["array", "map", "union", "record"])
@every("depth", [150, 400, 900, 5_000, 100_000])
def test_a_schema_that_is_nested_too_deeply_never_ends_in_another_error(form: str, depth: int) -> None:
    text = nested(form, depth)
    for kind in (pa.int64(), lists(3), pa.struct([("a", pa.int64())])):
        with pytest.raises(SchemaError, match=f"{DEEP}|do not fit"):
            AVRO.load(text, {}).fit(kind)
    assert AVRO.differences('"int"', text) is not None
    assert AVRO.differences(text, text) == []
    assert AVRO.inline_rules(text) == []
    if depth >= 5_000:
        with pytest.raises(SchemaError, match=DEEP):
            AVRO.load(text, {})


def test_columns_that_are_nested_too_deeply_are_refused() -> None:
    with pytest.raises(SchemaError, match=DEEP):
        AVRO.derive(lists(900), "R")
    value: Any = 1
    for _ in range(400):
        value = [value]
    column = pa.array([value], lists(400))
    with pytest.raises((SchemaError, SerializationError), match=DEEP):
        AVRO.load(nested("array", 400), {}).fit(column.type).encode(column)


def test_a_default_that_contains_itself_is_refused() -> None:
    fields = [{"name": "a", "type": "long"}, {"name": "next", "type": "R", "default": {"a": 1}}]
    loaded = AVRO.load(json.dumps({"type": "record", "name": "R", "fields": fields}), {})
    expected = "its default is nested too deeply, or contains itself"
    with pytest.raises(SchemaError, match=f"next: column missing, schema record R: {expected}"):
        loaded.fit(pa.struct([("a", pa.int64())]))
    with pytest.raises(SerializationError, match=f"next: {expected}"):
        loaded.encode_value({"a": 1})


@pytest.mark.parametrize(
    ("default", "problem"),
    [("0123456789", "with those of the fields inside, has more than 100,000 bytes"), (5, "is not a value")],
)
def test_defaults_that_double_take_no_exponential_time_or_memory(default: Any, problem: str) -> None:
    """A record doubles 99 times. If the default is not valid, all types of all unions are tried."""
    kind: dict[str, Any] = {"type": "record", "name": "R0", "fields": [{"name": "v", "type": "string", "default": default}]}
    for number in range(1, 100):
        again: Any = ["int", f"R{number - 1}"]
        fields = [{"name": "a", "type": ["int", kind], "default": {}}, {"name": "b", "type": again, "default": {}}]
        kind = {"type": "record", "name": f"R{number}", "fields": fields}
    fields = [{"name": "k", "type": "int"}, {"name": "d", "type": kind, "default": {}}]
    loaded = AVRO.load(json.dumps({"type": "record", "name": "T", "fields": fields}), {})
    with pytest.raises(SerializationError, match=f"d: its default,? {problem}"):
        loaded.encode_value({"k": 1})


def test_a_default_that_is_nested_too_deeply_is_refused() -> None:
    depth = 480
    kind, default = nested("array", depth), "[" * depth + "]" * depth
    field = f'{{"name": "d", "type": {kind}, "default": {default}}}'
    text = f'{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": "long"}}, {field}]}}'
    with pytest.raises(SchemaError, match=DEEP):
        AVRO.load(text, {}).fit(pa.struct([("a", pa.int64())]))
