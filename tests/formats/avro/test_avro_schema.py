"""Schemas are parsed by the rules of Avro, and derived from columns so that they parse and fit."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.avro.avro_fit import fit
from spark_kafka_sink.formats.avro.avro_format import derive
from spark_kafka_sink.formats.avro.avro_schema import Record, full_name, parse
from tests.every import every


def problem(schema: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        parse(schema if isinstance(schema, str) else json.dumps(schema))
    return caught.value.message


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{number}", "type": kind} for number, kind in enumerate(fields)],
        **more,
    }


@every(
    "schema, text",
    [
        ("{", "is not valid JSON"),
        ("text", "is not valid JSON"),
        (5, "5 is not a type"),
        ({}, "has no type"),
        ({"type": {"type": "string"}}, "must be the name of a type"),
        ("\"nothing\"", 'type "nothing" is not defined'),
        ([], "a union needs at least one type"),
        (["null", ["int"]], "a union is directly inside a union"),
        (["int", "int"], "a union has the type int twice"),
        ([{"type": "map", "values": "int"}, {"type": "map", "values": "long"}], "a union has the type map twice"),
        ({"type": "array"}, "has no attribute 'items'"),
        ({"type": "record", "name": "R"}, "has no attribute 'fields'"),
        ({"type": "record", "name": "R", "fields": {}}, "the fields of record R are not a list"),
        ({"type": "record", "fields": []}, "has no attribute 'name'"),
        ({"type": "record", "name": "a-b", "fields": []}, '"a-b" is not a valid name'),
        ({"type": "record", "name": "int", "fields": []}, "int is the name of a primitive type"),
        ({"type": "record", "name": "R", "namespace": "1a", "fields": []}, '"1a.R" is not a valid name'),
        ({"type": "record", "name": "R", "fields": [{"name": "a b", "type": "int"}]}, 'field a b: "a b" is not a valid name'),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "field a: record R has two fields"),
        ({"type": "record", "name": "R", "fields": [{"type": "int"}]}, "field 0 of record R has no name"),
        (record(record("int", name="I"), record("int", name="I")), "field f1: I is defined twice"),
        (record({"type": "array", "items": "X"}), 'field f0[]: type "X" is not defined'),
        ({"type": "enum", "name": "E", "symbols": ["a-b"]}, "must be a list of names"),
        ({"type": "enum", "name": "E", "symbols": ["a", "a"]}, "an enum has a symbol twice"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, 'the default of an enum is "B", must be one'),
        ({"type": "fixed", "name": "F", "size": -1}, "the size of a fixed is -1"),
        ("[" * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_a_schema_that_is_not_valid_is_refused_with_the_place(schema: Any, text: str) -> None:
    assert text in problem(schema)


def test_many_fields_and_types_take_linear_time() -> None:
    """With quadratic time each would take many minutes."""
    many = 50_000
    found = parse(json.dumps(record(*["int"] * many)))
    assert isinstance(found, Record)
    assert len(found.fields) == many
    parse(json.dumps([{"type": "fixed", "name": f"F{number}", "size": 1} for number in range(many)]))


def test_names_take_the_namespace_around_them() -> None:
    schema = record(record("a.R", name="I"), "I", "a.b.J", record(name="K", namespace="c"), name="R", namespace="a")
    schema["fields"][2]["type"] = ["null", "R"]

    parsed = parse(json.dumps(schema))

    assert isinstance(parsed, Record)
    assert full_name(parsed) == "a.R"
    assert [full_name(field.type) for field in parsed.fields] == ["a.I", "a.I", None, "c.K"]
    assert full_name(parse('"int"')) is None


def test_references_are_defined_once() -> None:
    shared = json.dumps({"type": "enum", "name": "E", "namespace": "x", "symbols": ["A"]})
    middle = json.dumps(record("x.E", name="M", namespace="y"))
    top = json.dumps(record("y.M", "x.E"))

    parsed = parse(top, {"x.E": shared, "y.M": middle})

    assert isinstance(parsed, Record)
    inner = parsed.fields[0].type
    assert isinstance(inner, Record)
    assert inner.fields[0].type is parsed.fields[1].type
    with pytest.raises(SchemaError, match=r'type "y\.M" is not defined'):
        parse(top, {"y.M": shared})


def test_types_are_known_by_their_own_names_whatever_a_reference_is_called() -> None:
    shared = json.dumps({"type": "enum", "name": "E", "namespace": "x", "symbols": ["A"]})
    middle = json.dumps(record("x.E", name="M", namespace="y"))
    top = json.dumps(record("y.M", "x.E"))

    for named in ({"enum.avsc": shared, "middle": middle}, {"middle": middle, "enum.avsc": shared}):
        parsed = parse(top, named)
        assert isinstance(parsed, Record)
        assert [full_name(field.type) for field in parsed.fields] == ["y.M", "x.E"]
    with pytest.raises(SchemaError, match=r'reference "middle": the Avro schema is not valid: field f0: type "x.E" is not'):
        parse(top, {"middle": middle})
    with pytest.raises(SchemaError, match=r"x\.E is defined twice"):
        parse(top, {"one": shared, "two": f"{shared} "})
    assert full_name(parse('"x.E"', {"one": shared, "two": shared})) == "x.E"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 10**12}, "a decimal of 1,000,000,000,000 digits is not supp"),
        ({"type": "fixed", "name": "F", "size": 10**12}, "the size of a fixed is 1,000,000,000,000, must be at most"),
        (
            {"type": "fixed", "name": "F", "size": 10**9, "logicalType": "decimal", "precision": 10**9},
            "a decimal of 1,000,000,000 digits",
        ),
        (
            {"type": "fixed", "name": "F", "size": 10**9, "logicalType": "decimal", "precision": 9},
            "a decimal in a fixed of 1,000,000,000 bytes is not supported; the most is 1,024",
        ),
    ],
)
def test_numbers_of_a_schema_that_would_take_all_memory_are_refused(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        parse(json.dumps(schema))


@every(
    "schema",
    [
        {"type": "string", "logicalType": "decimal", "precision": 4},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5},
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 3},
        {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
        {"type": "string", "logicalType": "date"},
        {"type": "string", "logicalType": "unknown"},
    ],
)
def test_a_logical_type_that_does_not_suit_is_ignored(schema: dict[str, Any]) -> None:
    assert str(parse(json.dumps(schema))) == (f"fixed({schema['size']})" if "size" in schema else schema["type"])


def test_a_derived_schema_has_names_docs_logical_types_and_unions() -> None:
    inner = pa.struct([pa.field("c", pa.date32(), nullable=False)])
    kind = pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"comment": "the number"}),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("b", pa.list_(pa.field("element", inner, nullable=False)), nullable=False),
        ]
    )

    assert json.loads(derive(kind, "shop.order")) == {
        "type": "record",
        "name": "shop.order",
        "fields": [
            {"name": "id", "type": "long", "doc": "the number"},
            {
                "name": "price",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
                "default": None,
            },
            {
                "name": "b",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "shop.order_b",
                        "fields": [{"name": "c", "type": {"type": "int", "logicalType": "date"}}],
                    },
                },
            },
        ],
    }
    assert derive(pa.string(), "x") == '"string"'


KINDS = [
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
    pa.binary(5), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.decimal128(38, 10),
    pa.decimal256(60, 2), pa.dictionary(pa.int8(), pa.string()), pa.map_(pa.string(), pa.int8()), pa.large_list(pa.int8()),
    pa.list_(pa.int8(), 2), pa.struct([]),
]  # fmt: skip


def test_derived_schemas_fit_their_columns() -> None:
    kind = pa.struct([(f"c{number}", one) for number, one in enumerate(KINDS)])
    twice = pa.struct([("a_b", pa.struct([("c", pa.struct([]))])), ("a", pa.struct([("b_c", pa.struct([]))])), ("whole", kind)])

    text = derive(twice, "R")

    fit(parse(text), twice)
    fastavro.parse_schema(json.loads(text))


def test_all_columns_that_avro_cannot_hold_are_listed() -> None:
    inner = pa.struct([("ok", pa.int8()), ("two words", pa.int8()), ("1st", pa.int8())])
    kind = pa.struct(
        [("a", inner), ("b", pa.duration("us")), ("c", pa.map_(pa.int8(), pa.int8())), ("d", pa.int8()), ("d", pa.int8())]
    )

    with pytest.raises(SchemaError) as caught:
        derive(kind, "R")

    assert caught.value.message.splitlines() == [
        "Avro cannot hold the columns:",
        "  a.two words: is not a valid Avro name: rename it, for example to two_words",
        "  a.1st: is not a valid Avro name: rename it, for example to _1st",
        "  b: Avro has no type for duration[us]: cast it, for example to string",
        "  c: the keys of a map are int8, must be string",
        "  d: two columns have this name",
    ]
    with pytest.raises(SchemaError, match="'a-b' is not a valid Avro name"):
        derive(kind, "a-b")
