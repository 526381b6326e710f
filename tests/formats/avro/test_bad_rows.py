"""A row that a schema cannot hold is refused with its number and the path to the value, and nothing is written."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import SerializationError
from tests.every import every
from tests.formats.avro.random_columns import hiding
from tests.formats.avro.test_columns import encoded, read


def record(kind: Any, name: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": f"R_{name}", "fields": [{"name": name, "type": kind, **more}]}


def logical(base: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


def failure(schema: Any, column: pa.Array) -> SerializationError:
    with pytest.raises(SerializationError) as caught:
        encoded(schema, column)
    return caught.value


def refused(schema: Any, good: Any, bad: Any, kind: pa.DataType) -> str:
    """Returns the problem of a bad value in row 2, which is behind a null; good values are written."""
    field = record(["null", schema])
    assert all(encoded(field, pa.array([{"a": good}], pa.struct([("a", kind)]))))
    # A bad value in a row that is not written does not matter.
    values = hiding(pa.array([good, bad, good, bad], kind), [True, False, True, True]).slice(1)
    error = failure(field, pa.StructArray.from_arrays([values], ["a"]))
    assert (error.facts["row"], error.facts["path"]) == (2, "a")
    return error.message.removeprefix("row 2: a: ")


DECIMAL_5_2 = logical("bytes", "decimal", precision=5, scale=2)
DECIMAL_IN_FIXED = {**DECIMAL_5_2, "type": "fixed", "size": 3, "name": "F"}
ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}


@every(
    "schema, kind, good, bad, problem",
    [
        ("int", pa.int64(), 1, 2**31, "2147483648 is out of range for int"),
        ("int", pa.int64(), 1, -(2**31) - 1, "-2147483649 is out of range for int"),
        ("int", pa.uint32(), 1, 2**31, "2147483648 is out of range for int"),
        ("long", pa.uint64(), 1, 2**63, "9223372036854775808 is out of range for long"),
        (DECIMAL_5_2, pa.decimal128(10, 2), Decimal("1.25"), Decimal("1000.00"), "1000.00 does not fit decimal(5, 2)"),
        (DECIMAL_5_2, pa.decimal128(10, 3), Decimal("1.25"), Decimal("1.255"), "1.255 does not fit decimal(5, 2)"),
        (DECIMAL_5_2, pa.int64(), 100, 1000, "1000 does not fit decimal(5, 2)"),
        (DECIMAL_IN_FIXED, pa.decimal256(60, 2), Decimal(1), Decimal(10) ** 40, "does not fit decimal(5, 2)"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B", "C", "the text is not a symbol of enum E: A, B"),
        (ENUM, pa.dictionary(pa.int8(), pa.string()), "A", "", "the text is not a symbol of enum E"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"ab", b"abc", "has 3 bytes, must have 2"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"ab", b"", "has 0 bytes, must have 2"),
        (logical("string", "uuid"), pa.string(), "0" * 8 + "-0000" * 3 + "-" + "0" * 12, "0" * 36, "is not a valid UUID"),
        (logical("int", "time-millis"), pa.time64("us"), datetime.time(1), datetime.time(1, 2, 3, 4), "more digits"),
        (logical("int", "date"), pa.date64(), datetime.date(2026, 1, 1), 2**62, "is out of range for a date"),
        (logical("long", "timestamp-nanos"), pa.timestamp("us", "UTC"), 1, 2**60, "is out of range for timestamp-nanos"),
        (logical("long", "timestamp-nanos"), pa.timestamp("s", "UTC"), 1, -(2**40), "is out of range for timestamp-nanos"),
    ],
)  # fmt: skip
def test_a_value_that_the_type_cannot_hold(schema: Any, kind: pa.DataType, good: Any, bad: Any, problem: str) -> None:
    assert problem in refused(schema, good, bad, kind)


@pytest.mark.parametrize("schema", ["string", logical("string", "uuid"), {"type": "enum", "name": "E", "symbols": ["A"]}])
def test_text_that_is_not_utf8(schema: Any) -> None:
    values = pa.array([None, b"\xff\xfe"], pa.binary()).view(pa.string())
    error = failure(record(["null", schema]), pa.StructArray.from_arrays([values], ["a"]))

    assert (error.facts["row"], error.facts["path"]) == (1, "a")
    assert "valid U" in error.message or "is not a symbol" in error.message


def test_a_null_that_the_schema_does_not_allow_at_each_depth() -> None:
    field = record("int", "d")
    inner = pa.struct([("d", pa.int32())])
    nested = record({"type": "array", "items": {"type": "map", "values": ["null", record(["null", field], "c")]}}, "b")
    kind = pa.struct([("b", pa.list_(pa.map_(pa.string(), pa.struct([("c", inner)]))))])
    rows: list[Any] = [
        None,
        {"b": []},
        {"b": [[], [("k", None), ("l", {"c": None}), ("m", {"c": {"d": 1}})]]},
    ]
    assert len(encoded(nested, pa.array(rows, kind))) == 3

    for bad, path, problem in (
        ({"b": None}, "b", "is null, and the schema does not allow null"),
        ({"b": [[], None]}, "b[1]", "is null, and the schema does not allow null"),
        (
            {"b": [[], [("k", None), ("l", {"c": {"d": None}})]]},
            "b[1][1].value.c.d",
            "is null, and the schema does not allow null",
        ),
    ):
        error = failure(nested, pa.array([*rows, bad], kind).slice(1))
        assert (error.facts["row"], error.facts["path"]) == (2, path)
        assert error.message == f"row 2: {path}: {problem}"


def test_members_of_a_union() -> None:
    union = [record("int", "x"), record("string", "y")]
    kind = pa.struct([("member0", pa.struct([("x", pa.int32())])), ("member1", pa.struct([("y", pa.string())]))])
    rows = [{"a": {"member0": {"x": 1}, "member1": None}}, {"a": {"member0": {"x": 1}, "member1": {"y": "b"}}}]
    column = pa.array(rows, pa.struct([("a", kind)]))
    nothing = pa.array([{"a": {"member0": None, "member1": None}}], pa.struct([("a", kind)]))

    assert "a: more than one member of the union has a value" in failure(record(union), column).message
    assert "a: no member of the union has a value" in failure(record(union), nothing).message
    assert [read(record(["null", *union]), one or b"") for one in encoded(record(["null", *union]), nothing)] == [{"a": None}]


def test_a_bad_row_far_into_a_large_column_keeps_its_number() -> None:
    values = np.ones(25_000, np.int64)
    values[23_456] = 2**40

    assert failure(record("int"), pa.StructArray.from_arrays([pa.array(values)], ["a"])).facts == {"row": 23_456, "path": "a"}
    lists = pa.ListArray.from_arrays(pa.array([0, 12_000, 25_000], pa.int32()), pa.array(values))
    error = failure(record({"type": "array", "items": "int"}), pa.StructArray.from_arrays([lists], ["a"]))
    assert error.facts == {"row": 1, "path": f"a[{23_456 - 12_000}]"}


def test_large_columns_empty_structs_and_no_rows() -> None:
    empty = {"type": "record", "name": "E", "fields": []}

    assert encoded(empty, pa.array([{}, None], pa.struct([]))) == [b"", None]
    assert encoded("long", pa.array([], pa.int64())) == []
    assert encoded("long", pa.nulls(3, pa.int64()), b"ab") == [None] * 3
    assert encoded("int", pa.array(range(25_000), pa.int32()))[24_999] == encoded("int", pa.array([24_999], pa.int32()))[0]


def test_the_edges_of_decimals() -> None:
    """Where a number needs one byte more, and where it no longer fits in 64 bits."""
    values = [sign * (2**bits) + more for bits in range(126) for sign in (1, -1) for more in (-1, 0, 1)]
    schema = logical("bytes", "decimal", precision=38, scale=0)
    for some in (values, [value for value in values if abs(value) < 2**62]):
        found = encoded(schema, pa.array(map(Decimal, some), pa.decimal128(38, 0)))
        sizes = [next(size for size in range(1, 17) if -(1 << (8 * size - 1)) <= one < 1 << (8 * size - 1)) for one in some]
        expected = [bytes([2 * size]) + one.to_bytes(size, "big", signed=True) for one, size in zip(some, sizes, strict=True)]
        assert found == expected


@pytest.mark.parametrize("more", [0, 100], ids=["few keys", "many keys"])
def test_a_map_that_has_a_key_twice(more: int) -> None:
    kind = pa.struct([("a", pa.list_(pa.map_(pa.string(), pa.int32())))])
    good = [(f"k{number}", 1) for number in range(2 + more)]
    rows: list[Any] = [{"a": [good, []]}, None, {"a": [good[:1]]}]
    schema = record({"type": "array", "items": {"type": "map", "values": "int"}})
    assert len(encoded(schema, pa.array(rows, kind))) == 3

    error = failure(schema, pa.array([*rows, {"a": [good, [*good, ("k1", 2)]]}], kind))

    assert error.message == "row 3: a[1]: a map has a key twice"
