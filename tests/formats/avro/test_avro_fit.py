"""All differences between a schema and the columns are listed with both types; what has a default or another order fits."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.avro.avro_fit import fit
from spark_kafka_sink.formats.avro.avro_schema import parse
from tests.every import every
from tests.formats.avro.test_columns import encoded, read


def record(*fields: tuple[str, Any], **defaults: Any) -> dict[str, Any]:
    made = [{"name": name, "type": kind, **({"default": defaults[name]} if name in defaults else {})} for name, kind in fields]
    return {"type": "record", "name": "R", "fields": made}


def misfits(schema: Any, kind: pa.DataType) -> list[tuple[str, str, str, str]]:
    with pytest.raises(SchemaError) as caught:
        fit(parse(json.dumps(schema)), kind)
    again = pickle.loads(pickle.dumps(caught.value))  # it reaches the driver
    assert str(again) == str(caught.value)
    return list(caught.value.facts["misfits"])


def reason(schema: Any, kind: pa.DataType) -> str:
    (found,) = misfits(record(("a", schema)), pa.struct([("a", kind)]))
    assert found[0] == "a"
    return found[3]


def test_all_misfits_are_listed_with_both_types() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}
    schema = record(
        ("a", "string"), ("b", ["null", "long"]), ("c", {"type": "array", "items": inner}), ("Case", "int"), ("gone", "int")
    )
    kind = pa.struct(
        [
            ("case", pa.int32()),
            ("extra", pa.bool_()),
            ("c", pa.list_(pa.struct([("y", pa.binary()), ("x", pa.int32())]))),
            ("b", pa.float64()),
            ("a", pa.int32()),
        ]
    )

    with pytest.raises(SchemaError) as caught:
        fit(parse(json.dumps(schema)), kind)

    assert str(caught.value).splitlines() == [
        "[SCHEMA] 6 fields of the Avro schema and the columns do not fit:",
        "  a: column int32, schema string: it must be string",
        "  b: column double, schema long: it must be a whole number",
        "  c[].y: column binary, schema string: it must be string",
        "  Case: column missing, schema int: the column case differs in case: rename it to Case",
        "  gone: column missing, schema int: the schema has no default: add the column",
        "  extra: column bool, schema missing: drop the column, or add it to the schema",
    ]
    assert caught.value.facts["fields"] == ("a", "b", "c[].y", "Case", "gone", "extra")


@every(
    "schema, kind, text",
    [
        ("float", pa.float64(), "it would lose digits: cast it to float"),
        ("double", pa.int64(), "it must be double or float"),
        ("long", pa.timestamp("us", "UTC"), "the schema has no logical type for dates and times"),
        ("boolean", pa.int8(), "it must be boolean"),
        ("bytes", pa.int8(), "it must be binary"),
        ("null", pa.int8(), "null holds no values"),
        ("int", pa.null(), "it has only nulls, and the schema does not allow null"),
        (["int"], pa.null(), "it has only nulls, and the schema does not allow null"),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us"), "is in UTC: use a timestamp with a time zone"),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            pa.timestamp("us", "UTC"),
            "has no time zone: use timestamp_ntz",
        ),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.int64(), "it must be timestamp"),
        ({"type": "int", "logicalType": "date"}, pa.timestamp("us"), "it must be date"),
        ({"type": "long", "logicalType": "time-micros"}, pa.int64(), "it must be time"),
        ({"type": "string", "logicalType": "uuid"}, pa.binary(), "it must be string, fixed_size_binary[16] or arrow.uuid"),
        ({"type": "fixed", "name": "F", "size": 3}, pa.binary(4), "it has 4 bytes, and the schema has 3"),
        ({"type": "fixed", "name": "F", "size": 3}, pa.string(), "it must be binary"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.int8(), "it must be string"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5}, pa.float64(), "it must be decimal"),
        ({"type": "array", "items": "int"}, pa.int32(), "it must be an array"),
        ({"type": "map", "values": "int"}, pa.struct([]), "it must be a map"),
        (record(("b", "int")) | {"name": "I"}, pa.int8(), "it must be a struct"),
        (["null", "int", "boolean"], pa.string(), "no type of the union fits; a struct with the fields member0 to member1 fits"),
        (["null", "bytes", {"type": "enum", "name": "E", "symbols": ["A"]}], pa.string(), "several types of the union fit"),
    ],
)
def test_a_type_that_does_not_fit(schema: Any, kind: pa.DataType, text: str) -> None:
    assert text in reason(schema, kind)


def test_keys_of_a_map_must_be_text() -> None:
    assert misfits({"type": "map", "values": "int"}, pa.map_(pa.int32(), pa.int32())) == [
        ("[]", "int32", "string", "the keys of a map must be string")
    ]


def test_fields_whose_names_differ_only_in_case() -> None:
    schema = record(("a", "long"), ("A", "long"), A=7)
    both = pa.array([{"a": 1, "A": 2}], pa.struct([("a", pa.int64()), ("A", pa.int64())]))

    assert encoded(schema, pa.array([{"a": 1}], pa.struct([("a", pa.int64())]))) == [b"\2\x0e"]
    assert encoded(schema, both) == [b"\2\4"]
    assert misfits(schema, pa.struct([("A", pa.int64())])) == [
        ("a", "missing", "long", "the schema has no default: add the column")
    ]


def test_two_columns_of_one_name() -> None:
    kind = pa.struct([("a", pa.int32()), ("a", pa.int64())])

    assert misfits(record(("a", "int")), kind) == [("a", "twice", "int", "two columns have this name")]


@pytest.mark.parametrize("default", [float("nan"), float("inf"), 1.5])
def test_a_default_of_a_whole_number_that_is_none_is_a_misfit(default: float) -> None:
    assert misfits(record(("there", "int"), ("d", "int"), d=default), pa.struct([("there", pa.int32())]))


@every(
    "schema, default",
    [
        (["null", "int"], None),
        (["int", "null"], 300),
        ("boolean", True),
        ("long", -(2**40)),
        ("float", 1.5),
        ("double", 2),
        ("string", "é" * 40),
        ({"type": "array", "items": "int"}, [1, 2, 3]),
        ({"type": "map", "values": "string"}, {"a": "b"}),
        ({"type": "map", "values": "string"}, {}),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        (record(("x", "int"), ("y", "int"), y=5) | {"name": "I"}, {"x": 1}),
    ],
)
def test_a_missing_column_takes_the_default_also_inside_a_null(schema: Any, default: Any) -> None:
    inner = record(("there", "int"), ("d", schema), d=default) | {"name": "Inner"}
    outer = {"type": "record", "name": "O", "fields": [{"name": "a", "type": ["null", inner]}]}
    column = pa.array([{"a": {"there": 1}}, {"a": None}], pa.struct([("a", pa.struct([("there", pa.int32())]))]))
    expected = {**default, "y": 5} if isinstance(schema, dict) and schema["type"] == "record" else default

    assert [read(outer, row or b"") for row in encoded(outer, column)] == [{"a": {"there": 1, "d": expected}}, {"a": None}]


def test_bytes_of_a_default_are_characters() -> None:
    schema = record(("x", "bytes"), ("y", {"type": "fixed", "name": "F", "size": 2}), x="\u00ff\0", y="ab")

    assert encoded(schema, pa.array([{}], pa.struct([]))) == [b"\4\xff\0ab"]


@every(
    "schema, default",
    [
        ("int", "1"), ("int", 2**31), ("int", True), ("boolean", 0), ("string", None), ("bytes", "\u0100"), ("float", 1e300),
        ({"type": "fixed", "name": "F", "size": 2}, "a"), ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "array", "items": "int"}, ["a"]), ({"type": "map", "values": "int"}, []), (["null", "int"], "a"),
        (record(("x", "int")) | {"name": "I"}, {}),
    ],
)  # fmt: skip
def test_a_default_that_is_not_of_its_type_does_not_stand_for_a_column(schema: Any, default: Any) -> None:
    (found,) = misfits(record(("a", schema), a=default), pa.struct([]))

    assert "its default" in found[3]


def test_a_column_may_fit_one_type_of_a_larger_union() -> None:
    union = ["null", "string", "long", "int", "double"]
    schema = record(("a", union), ("b", union), ("c", union))
    kind = pa.struct([("a", pa.int32()), ("b", pa.dictionary(pa.int8(), pa.string())), ("c", pa.float32())])
    rows = [{"a": 1, "b": "x", "c": 1.5}, {"a": None, "b": None, "c": None}]

    assert [read(schema, row or b"") for row in encoded(schema, pa.array(rows, kind))] == rows
    assert (encoded(schema, pa.array(rows[:1], kind))[0] or b"")[0] == 6  # int, and not long


def test_a_recursive_schema_fits_a_column_of_any_depth() -> None:
    schema = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "value", "type": "int"}, {"name": "next", "type": ["null", "Node"], "default": None}],
    }
    kind = pa.struct([("value", pa.int32())])
    rows: list[Any] = [{"value": 3}]
    for _ in range(3):
        kind = pa.struct([("value", pa.int32()), ("next", kind)])
        rows = [{"value": 1, "next": row} for row in rows] + [{"value": 2, "next": None}]

    def whole(row: Any) -> Any:
        return None if row is None else {"value": row["value"], "next": whole(row.get("next"))}

    assert [read(schema, row or b"") for row in encoded(schema, pa.array(rows, kind))] == [whole(row) for row in rows]


def test_a_column_of_another_type_is_fitted_again() -> None:
    """Tasks may get other types than the driver has seen: nullable fields, or another order."""
    plan = fit(parse(json.dumps(record(("a", "int"), ("b", "int")))), pa.struct([("a", pa.int32()), ("b", pa.int32())]))
    other = pa.struct([("b", pa.int64()), pa.field("a", pa.int32(), nullable=False)])

    assert plan.encode(pa.array([{"a": 1, "b": 2}], other)).to_pylist() == [b"\2\4"]
    with pytest.raises(SchemaError, match="b: column string, schema int"):
        plan.encode(pa.array([{"a": 1, "b": "2"}], pa.struct([("a", pa.int32()), ("b", pa.string())])))
