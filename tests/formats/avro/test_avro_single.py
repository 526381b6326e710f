"""A single value has the bytes of a column of one row, and values that have no type in Arrow are read back by fastavro."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.formats.avro.avro_schema import parse
from spark_kafka_sink.formats.avro.avro_single import encode_value
from tests.every import every
from tests.examples import examples
from tests.formats.avro.random_columns import Sample, decimals, tables
from tests.formats.avro.test_columns import encoded, read

TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "value", "type": "int"}, {"name": "below", "type": {"type": "array", "items": "Tree"}}],
}
UTC = datetime.UTC


class Swapped(NamedTuple):
    b: int
    a: int


def one(schema: Any, value: Any) -> bytes:
    found = encode_value(parse(json.dumps(schema)), value)
    assert found is not None
    return found


def failure(schema: Any, value: Any) -> SerializationError:
    with pytest.raises(SerializationError) as caught:
        one(schema, value)
    return caught.value


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(tables(depth=2))
def test_a_value_is_read_back_as_from_a_column(table: tuple[Sample, list[Any], pa.Array]) -> None:
    sample, rows, column = table
    written = encoded(sample.schema, column)

    for row, data in zip(rows, written, strict=True):
        if row is not None and data is not None:
            value = read(sample.schema, data)
            if "-nanos" not in json.dumps(sample.schema):  # fastavro reads these as ints
                assert read(sample.schema, one(sample.schema, value)) == value or has_records_to_choose_from(sample.schema)


@every(
    "branches, value, expected",
    [
        (["null", "float", "double"], 0.1, 2),
        (["float", "long"], 5, 1),
        ([{"type": "bytes", "logicalType": "decimal", "precision": 4}, "long"], 5, 1),
        ([{"type": "enum", "name": "E", "symbols": ["A"]}, "string"], "A", 1),
        ([{"type": "enum", "name": "E", "symbols": ["A"]}, "long"], "A", 0),
        (["int", "long"], 2**40, 1),
    ],
)
def test_a_union_takes_the_type_that_a_column_would_have(branches: list[Any], value: object, expected: int) -> None:
    assert one(branches, value)[0] == 2 * expected


@pytest.mark.parametrize("schema", ["float", "double"])
def test_a_whole_number_loses_no_digits(schema: str) -> None:
    assert "more digits" in failure(schema, 2**53 + 1).message
    assert one(schema, 2**20) == one(schema, float(2**20))


def has_records_to_choose_from(schema: Any) -> bool:
    """Returns whether a union has two records. A value may fit the first one, too, with its defaults."""
    return '}, {"type": "record"' in json.dumps(schema)


@given(st.data())
def test_decimals_are_those_of_a_column(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, precision))
    value = data.draw(decimals(precision, scale))
    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    assert [one(schema, value)] == encoded(schema, pa.array([value], pa.decimal128(precision, scale)))


@every(
    "schema, value",
    [
        (TREE, {"value": 1, "below": [{"value": 2, "below": []}, {"value": 3, "below": [{"value": 4, "below": []}]}]}),
        (["null", "int", "string", "double"], "text"),
        (["null", "int", "string", "double"], 7),
        (["null", "double", "long"], 7),
        (["null", "double", "long"], 7.5),
        ("long", 2**40),
        ({"type": "map", "values": ["null", "long"]}, {"a": None, "b": 2}),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=5)),
        ({"type": "long", "logicalType": "timestamp-micros"}, datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Decimal("12.50")),
    ],
)
def test_fastavro_reads_the_value(schema: Any, value: Any) -> None:
    assert read(schema, one(schema, value)) == value


def test_none_is_a_null_and_the_prefix_comes_first() -> None:
    assert encode_value(parse("string"), None, b"\0\1") is None
    assert encode_value(parse("string"), "a", b"\0\1") == b"\0\1\2a"


def test_a_record_is_a_dict_or_a_tuple_with_names_and_takes_defaults() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 7}]}

    assert one(schema, {"a": 1}) == one(schema, Swapped(b=7, a=1)) == b"\2\x0e"


A = {"name": "a", "type": "int"}
SMALL = {"type": "record", "name": "Small", "fields": [A]}
WIDE = {"type": "record", "name": "Wide", "fields": [A, {"name": "b", "type": "int"}]}


@every(
    "schema, value, text",
    [
        ("int", 2**31, "2147483648 is out of range for int"),
        ("int", True, "a value of type bool is not supported, must be int"),
        ("int", 1.0, "a value of type float is not supported, must be int"),
        ("float", 1e300, "the number is out of range for float"),
        ("string", "\ud800", "text with a lone surrogate at 0"),
        ("string", b"a", "must be str"),
        ({"type": "enum", "name": "E", "symbols": ["A", "C"]}, "B", "the text is not a symbol of enum E: A, C"),
        ({"type": "enum", "name": "E", "symbols": list("ABCDEFGHIJKL")}, "Z", "enum E: A, B, C, D, E, F, G, H, I, J and 2 more"),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc", "has 3 bytes, must have 2"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1},
            Decimal("1.25"),
            "1.25 does not fit decimal(3, 1)",
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}, Decimal(100), "100 does not fit decimal(3, 1)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}, Decimal("NaN"), "NaN does not fit"),
        ({"type": "string", "logicalType": "uuid"}, "5", "text is not a valid UUID"),
        ({"type": "int", "logicalType": "time-millis"}, datetime.time(1, 2, 3, 4), "more digits than time-millis can hold"),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            datetime.datetime(2500, 1, 1, tzinfo=UTC),
            "out of range for timestamp-nanos",
        ),
        (
            {"type": "array", "items": {"type": "map", "values": "int"}},
            [{}, {"k": None}],
            "[1][0]: is None, and the schema does not",
        ),
        ({"type": "map", "values": "int"}, {1: 1}, "[0]: a key of type int is not supported, must be str"),
        (["null", "int"], "x", "a value of type str is not supported, must be int"),
        (["null", "int", "string"], b"x", "a value of type bytes is not supported, must be a value of [null, int, string]"),
        (["null", SMALL, WIDE], {"a": 1, "b": 2, "extra": 3}, "extra: record Wide has no such field; no type of"),
        (["null", SMALL, WIDE], {"a": 1, "b": "x"}, "b: a value of type str is not supported, must be int; no type of"),
        (TREE, {"value": 1}, "below: is missing, and the schema has no default"),
        (TREE, {"value": 1, "below": [], "More": 1}, "More: record Tree has no such field"),
        (TREE, {"value": 1, "below": [{"value": None, "below": []}]}, "below[0].value: is None"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(schema: Any, value: Any, text: str) -> None:
    assert text in str(failure(schema, value))


def test_a_value_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {"value": 1, "below": []}
    value["below"].append(value)

    assert "contains itself" in str(failure(TREE, value))
