"""Single values in the types of a schema: fastavro reads back what was given, and errors name the place but not the value."""

from __future__ import annotations

import datetime
import io
import json
from collections import namedtuple
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.serializers.schemas.resolved_schema import ResolvedSchema
from spark_kafka_sink.producer.serializers.schemas.schema_serializer import SchemaSerializer

SECRET = "hunter2"
UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)


def record(*fields: tuple[str, Any] | tuple[str, Any, Any]) -> dict[str, Any]:
    names = ("name", "type", "default")
    return {"type": "record", "name": "R", "fields": [dict(zip(names, field, strict=False)) for field in fields]}


def written(schema: Any, value: Any) -> bytes | None:
    resolved = ResolvedSchema("value", "events-value", 7, json.dumps(schema))
    return SchemaSerializer(resolved).serialize("events", value)


def read(schema: Any, value: Any) -> Any:
    data = written(schema, value)
    assert data is not None
    assert data[:5] == b"\0\0\0\0\7"
    return fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, None)


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("string", "ü"),
        ("boolean", True),
        ("long", 2**40),
        ("float", 0.5),
        ("double", 0.1),
        ("bytes", b"\0\xff"),
        (logical("bytes", "decimal", precision=50, scale=2), Decimal("12345678901234567890123456789012345678901.25")),
        (logical("bytes", "decimal", precision=9, scale=2), Decimal("-1.5")),
        (logical("int", "date"), datetime.date(2026, 1, 2)),
        (logical("long", "time-micros"), datetime.time(1, 2, 3, 4)),
        (logical("long", "timestamp-micros"), MOMENT.replace(tzinfo=UTC)),
        (logical("long", "local-timestamp-micros"), MOMENT),
        (logical("string", "uuid"), UUID(int=5)),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
        ({"type": "array", "items": ["null", "int"]}, [1, None]),
        ({"type": "array", "items": "string"}, []),
        ({"type": "map", "values": "long"}, {"a": 1}),
        (record(("a", "int"), ("b", ["null", record(("c", "string")) | {"name": "I"}], None)), {"a": 1, "b": {"c": "x"}}),
    ],
    ids=str,
)
def test_fastavro_reads_the_value(schema: Any, value: Any) -> None:
    assert read(schema, value) == value


def test_a_key_that_is_missing_has_the_fields_default() -> None:
    schema = record(("a", "int", 5), ("b", ["null", "string"], None), ("c", "long"))
    assert read(schema, {"c": 1}) == {"a": 5, "b": None, "c": 1}
    assert read({"type": "array", "items": schema}, [{"c": 1, "a": 2}]) == [{"a": 2, "b": None, "c": 1}]


def test_a_named_tuple_is_a_record_and_none_is_a_tombstone() -> None:
    point = namedtuple("point", ["x", "y"])
    assert read(record(("y", "int"), ("x", "int")), point(1, 2)) == {"x": 1, "y": 2}
    assert written("string", None) is None


def test_a_time_without_a_zone_is_local_time() -> None:
    assert read(logical("long", "timestamp-micros"), MOMENT) == MOMENT.astimezone(UTC)


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ("int", SECRET, "a value of type str is not supported, must be a value of int"),
        ("int", 2**31, "a value of type int is not supported, must be a value of int"),
        ("long", True, "a value of type bool is not supported"),
        (record(("a", record(("b", "int")) | {"name": "I"})), {"a": {"b": SECRET}}, "a.b: a value of type str"),
        (record(("a", "int")), {"a": 1, "secret": SECRET}, "secret: record R has no such field; it has a"),
        (record(("a", "int")), {}, "a: column missing, schema int"),
        (record(("a", "int")), {"a": None}, "a: "),
        (record(("a", "int")), SECRET, "must be a dict, a Row or a named tuple, because the schema is a record"),
        ({"type": "array", "items": "int"}, [1, SECRET], r"\[1\]: a value of type str"),
        ({"type": "map", "values": "int"}, {"k": SECRET}, r"\[k\]: a value of type str"),
        (logical("long", "local-timestamp-micros"), MOMENT.replace(tzinfo=UTC), "a datetime with a time zone is not"),
        ("long", MOMENT, "a value of type datetime"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_named_by_its_place_alone(schema: Any, value: Any, problem: str) -> None:
    with pytest.raises(SerializationError, match=problem) as caught:
        written(schema, value)
    assert SECRET not in str(caught.value)
    assert "row" not in caught.value.facts
