"""A row that a message cannot hold is refused with its number and the path to the value, and nothing is written."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import SerializationError
from tests.every import every
from tests.formats.avro.random_columns import hiding
from tests.formats.protobuf.test_columns import encoded, struct

IMPORTS = 'import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto"; enum E { Z = 0; A = 1; B = 5; }'


def proto3(body: str, more: str = "") -> str:
    return f'syntax = "proto3"; {IMPORTS} message M {{ {body} }} {more}'


def failure(text: str, column: pa.Array) -> SerializationError:
    with pytest.raises(SerializationError) as caught:
        encoded(text, column)
    return caught.value


@every("label", ["optional", "repeated"])
@every(
    "kind, arrow, good, bad, problem",
    [
        ("int32", pa.int64(), 1, 2**31, "2147483648 is out of range for int32"),
        ("sint32", pa.int64(), 1, -(2**31) - 1, "-2147483649 is out of range for sint32"),
        ("sfixed32", pa.uint32(), 1, 2**31, "2147483648 is out of range for sfixed32"),
        ("uint32", pa.int32(), 1, -1, "-1 is out of range for uint32"),
        ("fixed64", pa.int64(), 1, -5, "-5 is out of range for fixed64"),
        ("int64", pa.uint64(), 1, 2**63, "9223372036854775808 is out of range for int64"),
        ("int64", pa.timestamp("s"), 1, 2**60, "the value is out of range for microseconds in 64 bits"),
        ("E", pa.string(), "B", "C", "the text is not a name of enum E: Z = 0, A = 1, B = 5"),
        ("E", pa.dictionary(pa.int8(), pa.string()), "A", "", "the text is not a name of enum E: Z = 0, A = 1, B = 5"),
        ("E", pa.int32(), 5, 2, "2 is not a number of enum E: Z = 0, A = 1, B = 5"),
        ("google.protobuf.Timestamp", pa.timestamp("s", "UTC"), 1, 2**40, "out of range for google.protobuf.Timestamp"),
        ("google.protobuf.Duration", pa.duration("s"), 1, -(2**40), "out of range for google.protobuf.Duration"),
    ],
)  # fmt: skip
def test_a_value_that_the_type_cannot_hold(label: str, kind: str, arrow: pa.DataType, good: Any, bad: Any, problem: str) -> None:
    """The bad value in row 2 is behind a null. One in a row that is not written does not matter."""
    values = hiding(pa.array([good, bad, good, bad], arrow), [True, False, True, True]).slice(1)
    path = "a"
    if label == "repeated":
        values, path = pa.array([[], None, [good, bad]], pa.list_(arrow)), "a[1]"

    error = failure(proto3(f"{label} {kind} a = 1;"), struct(a=values))

    assert error.facts == {"row": 2, "path": path}
    assert error.message.startswith(f"row 2: {path}: ")
    assert error.message.endswith(problem)


def test_text_that_is_not_utf8() -> None:
    values = pa.array([None, b"\xff\xfe"], pa.binary()).view(pa.string())

    assert failure(proto3("optional string a = 1;"), struct(a=values)).message == "row 1: a: text is not valid UTF-8"
    assert "the text is not a name of enum E" in failure(proto3("optional E a = 1;"), struct(a=values)).message
    assert encoded(proto3("optional bytes a = 1;"), struct(a=values)) == [b"", b"\x0a\2\xff\xfe"]


def test_a_null_that_the_message_cannot_hold_at_each_depth() -> None:
    body = "repeated N b = 1; map<string, N> c = 2; repeated int32 d = 3; repeated string e = 4;"
    text = proto3(body, "message N { repeated M m = 1; }")
    inner = pa.struct([("m", pa.list_(pa.struct([("d", pa.list_(pa.int32()))])))])
    kind = pa.struct(
        [("b", pa.list_(inner)), ("c", pa.map_(pa.string(), inner)), ("d", pa.list_(pa.int32())), ("e", pa.list_(pa.string()))]
    )
    nothing = {"b": None, "c": None, "d": None, "e": None}
    rows: list[Any] = [None, {**nothing, "b": []}, {**nothing, "b": [{"m": None}, {"m": [{"d": None}]}]}]
    assert len(encoded(text, pa.array(rows, kind))) == 3

    element = "is null, and a repeated field cannot hold null"
    for bad, path, problem in (
        ({"b": [{}, None]}, "b[1]", element),
        ({"b": [{}, {"m": [None]}]}, "b[1].m[0]", element),
        ({"b": [{"m": [{"d": [1, None]}]}]}, "b[0].m[0].d[1]", element),
        ({"c": [("k", {}), ("l", None)]}, "c[1].value", "is null, and a map cannot hold null"),
        ({"c": [("k", {"m": [{}, None]})]}, "c[0].value.m[1]", element),
        ({"d": [None]}, "d[0]", element),
        ({"e": ["a", None]}, "e[1]", element),
    ):
        error = failure(text, pa.array([*rows, {**nothing, **bad}], kind).slice(1))
        assert error.facts == {"row": 2, "path": path}
        assert error.message == f"row 2: {path}: {problem}"


def test_nulls_without_a_type_inside_lists_and_maps() -> None:
    text = proto3("repeated int32 a = 1; map<string, int32> b = 2;")

    assert failure(text, struct(a=pa.array([[], [None]]))).facts == {"row": 1, "path": "a[0]"}
    maps = pa.array([[], [("k", None)]], pa.map_(pa.string(), pa.null()))
    assert failure(text, struct(b=maps)).facts == {"row": 1, "path": "b[0].value"}


def test_a_required_field_of_proto2() -> None:
    text = 'syntax = "proto2"; message M { optional N n = 1; } message N { required int32 a = 1; required Q b = 2; } message Q {}'
    kind = pa.struct([("n", pa.struct([("a", pa.int32()), ("b", pa.struct([]))]))])
    for bad, path in (({"a": None, "b": {}}, "n.a"), ({"a": 1, "b": None}, "n.b")):
        error = failure(text, pa.array([{"n": None}, {"n": {"a": 0, "b": {}}}, {"n": bad}], kind))
        assert error.message == f"row 2: {path}: is null, and the field is required"


@every(
    "values",
    [
        pa.array([0, 7, None], pa.int32()),
        pa.array([0, 7, None]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 0, 1], pa.int8()), pa.array([5, None])),
    ],
)
@every("kind", ["int32", "E", "sfixed64"])
def test_a_null_in_a_field_of_proto3_that_is_not_optional(values: pa.Array, kind: str) -> None:
    if kind == "E":
        values = pa.array([None if one is None else 0 for one in values.to_pylist()], pa.int32())
    problem = "is null, and the field cannot be null: declare it as optional in the schema, or replace the nulls"
    text = proto3(f"{kind} a = 1; M m = 2; repeated M r = 3;")

    assert failure(text, struct(a=values)).message == f"row 2: a: {problem}"
    inner = hiding(struct(a=values), [True, False, True])
    assert failure(text, struct(m=inner)).message == f"row 2: m.a: {problem}"
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), struct(a=values))
    assert failure(text, struct(r=lists)).message == f"row 1: r[0].a: {problem}"
    hidden = hiding(struct(a=values), [True, True, False])
    assert encoded(text, hidden) == [*encoded(text, struct(a=values.slice(0, 2))), None]
    assert encoded(text, struct(m=hidden))[2] == b""
    nothing = hiding(struct(a=pa.nulls(2)), [False, True])
    assert failure(text, nothing).facts == {"row": 1, "path": "a"}
    wrapped = 'syntax = "proto3"; import "google/protobuf/wrappers.proto"; message M { google.protobuf.Int32Value a = 1; }'
    assert encoded(wrapped, struct(a=pa.array([None, 0]))) == [b"", b"\x0a\0"]
    assert failure(wrapped, struct(a=struct(value=pa.array([None, 1])))).facts == {"row": 0, "path": "a.value"}


def test_two_values_of_one_oneof() -> None:
    text = proto3("oneof choice { int32 a = 1; string b = 2; M c = 3; }")
    a, b = pa.array([1, None, 0]), pa.array([None, "x", ""])
    assert encoded(text, struct(a=a.slice(0, 2), b=b.slice(0, 2))) == [b"\x08\1", b"\x12\1x"]

    error = failure(text, struct(b=b, a=a))

    assert error.message == "row 2: a and b have a value, and the oneof choice can hold only one"


def test_a_null_among_the_values_of_a_dictionary_is_no_value_of_a_oneof() -> None:
    text = proto3("oneof choice { int32 a = 1; string b = 2; string c = 3; }")
    b = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), pa.array(["x", None]))
    a, c = pa.array([1, None, None]), pa.array([None, None, "y"])
    assert encoded(text, struct(a=a, b=b, c=c)) == [b"\x08\1", b"\x12\1x", b"\x1a\1y"]

    error = failure(text, struct(a=a, b=b, c=pa.array(["z", None, None])))

    assert error.message == "row 0: a and c have a value, and the oneof choice can hold only one"


def test_a_bad_row_far_into_a_large_column_keeps_its_number() -> None:
    values = np.ones(25_000, np.int64)
    values[23_456] = 2**40

    assert failure(proto3("int32 a = 1;"), struct(a=pa.array(values))).facts == {"row": 23_456, "path": "a"}
    lists = pa.ListArray.from_arrays(pa.array([0, 12_000, 25_000], pa.int32()), pa.array(values))
    assert failure(proto3("repeated int32 a = 1;"), struct(a=lists)).facts == {"row": 1, "path": f"a[{23_456 - 12_000}]"}
    strings = pa.ListArray.from_arrays(pa.array([0, 12_000, 25_000], pa.int32()), pa.array(["A"] * 23_456 + ["C"] * 1_544))
    assert failure(proto3("repeated E a = 1 [packed = false];"), struct(a=strings)).facts["path"] == f"a[{23_456 - 12_000}]"


def test_the_ends_of_time() -> None:
    text = proto3("google.protobuf.Timestamp a = 1;")
    ends = [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)]

    assert None not in encoded(text, struct(a=pa.array(ends, pa.timestamp("us", "UTC"))))


@pytest.mark.parametrize(
    ("key", "arrow", "keys"),
    [
        ("string", pa.string(), ["a", "b", "a"]),
        ("string", pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"]),
        ("int64", pa.int64(), [2**40, 2**41, 2**40]),
        ("fixed32", pa.uint32(), [*range(100), 7]),
        ("bool", pa.bool_(), [True, False, False]),
    ],
)
def test_a_map_that_has_a_key_twice(key: str, arrow: pa.DataType, keys: list[Any]) -> None:
    maps = pa.MapArray.from_arrays([0, 0, len(keys) - 1, len(keys)], pa.array(keys, arrow), pa.array(range(len(keys))))
    text = proto3(f"map<{key}, int64> a = 1; repeated M b = 2;")
    assert len(encoded(text, struct(a=maps))) == 3

    twice = pa.MapArray.from_arrays([0, 0, len(keys)], pa.array(keys, arrow), maps.items)
    assert failure(text, struct(a=twice)).message == "row 1: a: a map has a key twice"
    lists = pa.ListArray.from_arrays([0, 0, 2], struct(a=twice))
    assert failure(text, struct(b=lists)).message == "row 1: b[1].a: a map has a key twice"
