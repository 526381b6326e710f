"""All differences between a message and the columns are listed with both types."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.formats.protobuf.protobuf_fit import fit
from spark_kafka_sink.formats.protobuf.protobuf_format import message_types
from spark_kafka_sink.formats.protobuf.protobuf_single import encode_value
from tests.every import every
from tests.formats.protobuf.compiling import NEEDS_EDITIONS
from tests.formats.protobuf.test_columns import encoded, struct

IMPORTS = " ".join(f'import "google/protobuf/{name}.proto";' for name in ("timestamp", "duration", "wrappers", "struct", "any"))


def text(body: str, more: str = "", syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; {IMPORTS} message M {{ {body} }} enum E {{ Z = 0; }} {more}'


def misfits(schema: str, kind: pa.DataType) -> list[tuple[str, str, str, str]]:
    with pytest.raises(SchemaError) as caught:
        fit(message_types(schema, {}, None), kind)
    again = pickle.loads(pickle.dumps(caught.value))  # it reaches the driver
    assert str(again) == str(caught.value)
    return list(caught.value.facts["misfits"])


def test_all_misfits_are_listed_with_both_types() -> None:
    schema = text(
        "optional string a = 1; optional int64 b = 2; repeated I c = 3; required int32 Case = 4; required E gone = 5;"
        "repeated int32 d = 6; optional I e = 7; map<string, bool> f = 8;",
        "message I { optional int32 x = 1; optional string y = 2; }",
        "proto2",
    )
    kind = pa.struct(
        [
            ("case", pa.int32()),
            ("extra", pa.bool_()),
            ("c", pa.list_(pa.struct([("y", pa.binary()), ("x", pa.int32())]))),
            ("b", pa.float64()),
            ("a", pa.int32()),
            ("d", pa.int32()),
            ("e", pa.string()),
            ("f", pa.map_(pa.int32(), pa.string())),
        ]
    )

    with pytest.raises(SchemaError) as caught:
        fit(message_types(schema, {}, None), kind)

    assert str(caught.value).splitlines() == [
        "[SCHEMA] 10 fields of the Protobuf schema and the columns do not fit:",
        "  a: column int32, schema string: it must be string",
        "  b: column double, schema int64: it must be a whole number",
        "  c[].y: column binary, schema string: it must be string",
        "  Case: column missing, schema int32: the column case differs in case: rename it to Case",
        "  gone: column missing, schema enum E: the field is required: add the column",
        "  d: column int32, schema repeated int32: it must be an array",
        "  e: column string, schema message I: it must be a struct",
        "  f[]: column int32, schema string: it must be string",
        "  f[]: column string, schema bool: it must be boolean",
        "  extra: column bool, schema missing: drop the column, or add it to the schema",
    ]
    assert caught.value.facts["fields"] == ("a", "b", "c[].y", "Case", "gone", "d", "e", "f[]", "f[]", "extra")


@every(
    "schema, kind, reason",
    [
        ("float", pa.float64(), "it would lose digits: cast it to float"),
        ("double", pa.int64(), "it must be double or float"),
        ("int64", pa.timestamp("us", "UTC"), "use google.protobuf.Timestamp, or cast it to a whole number"),
        ("int32", pa.timestamp("us"), "it must be a whole number"),
        ("uint32", pa.date32(), "it must be a whole number"),
        ("int32", pa.decimal128(5, 0), "it must be a whole number"),
        ("bool", pa.int8(), "it must be boolean"),
        ("bytes", pa.int8(), "it must be binary"),
        ("string", pa.binary(), "it must be string"),
        ("string", pa.decimal128(5, -2), "a negative scale is not supported: cast it"),
        ("E", pa.float32(), "it must be string or a whole number"),
        ("M", pa.map_(pa.string(), pa.string()), "it must be a struct"),
        ("map<string, string>", pa.struct([]), "it must be a map"),
        ("google.protobuf.Timestamp", pa.timestamp("us"), "it is in UTC: use a timestamp with a time zone"),
        ("google.protobuf.Timestamp", pa.int64(), "it must be timestamp"),
        ("google.protobuf.Duration", pa.int64(), "it must be an interval of days to seconds"),
        ("google.protobuf.StringValue", pa.int64(), "it must be string"),
        *(
            (f"google.protobuf.{name}", pa.struct([]), "the message is not supported: use another one, or leave the column out")
            for name in ("Any", "Struct", "Value", "ListValue")
        ),
    ],
)
def test_a_type_that_does_not_fit(schema: str, kind: pa.DataType, reason: str) -> None:
    (found,) = misfits(text(f"{schema} a = 1;"), pa.struct([("a", kind)]))
    assert (found[0], found[3]) == ("a", reason)


def test_two_columns_of_one_name_and_a_value_that_is_no_struct() -> None:
    schema = text("int32 a = 1;")
    assert misfits(schema, pa.struct([("a", pa.int32()), ("a", pa.int32())]))[0][3] == "two columns have this name"
    assert misfits(schema, pa.int32()) == [("", "int32", "message M", "it must be a struct")]


@pytest.mark.parametrize(
    "schema",
    [
        text("optional group G = 1 { optional int32 x = 1; } optional int32 n = 2;", syntax="proto2"),
        pytest.param(
            'edition = "2023"; message M { G g = 1 [features.message_encoding = DELIMITED]; int32 n = 2; message G {} }',
            marks=NEEDS_EDITIONS,
        ),
    ],
    ids=["proto2", "edition"],
)
def test_a_group_needs_no_support_if_it_has_no_column(schema: str) -> None:
    assert encoded(schema, pa.array([{"n": 3}])) == [b"\x10\3"] == [encode_value(message_types(schema, {}, None), {"n": 3})]

    group = pa.struct([])
    reason = "groups are not supported: use a message, or leave the field out"
    assert [(one[0], one[3]) for one in misfits(schema, pa.struct([("g", group), ("n", pa.int32())]))] == [("g", reason)]
    with pytest.raises(SerializationError, match=f"g: {reason}"):
        encode_value(message_types(schema, {}, None), {"g": {}})


def test_fields_whose_names_differ_in_case() -> None:
    schema = text("optional int32 foo = 1; optional int32 Foo = 2;")
    assert encoded(schema, pa.array([{"foo": 3}])) == [b"\x08\3"]
    (found,) = misfits(schema, pa.struct([("FOO", pa.int32())]))[:1]
    assert found[3] == "the column FOO differs in case: rename it to foo"


def test_a_column_that_is_nested_too_deeply() -> None:
    kind = pa.struct([])
    for _ in range(1000):
        kind = pa.struct([("a", kind)])
    with pytest.raises(SchemaError, match="the type of the columns, is nested too deeply"):
        fit(message_types(text("M a = 1;"), {}, None), kind)


def test_protobufs_own_messages_also_fit_structs() -> None:
    schema = text("google.protobuf.Timestamp a = 1; google.protobuf.StringValue b = 2;")
    times = pa.array([{"seconds": 1, "nanos": 2}], pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())]))

    assert encoded(schema, struct(a=times, b=pa.array([{"value": "x"}]))) == [b"\x0a\4\x08\1\x10\2\x12\3\x0a\1x"]


def test_a_column_of_another_type_is_fitted_first() -> None:
    plan = fit(message_types(text("int64 a = 1;"), {}, None), pa.struct([("a", pa.int64())]))

    assert plan.encode(pa.array([{"a": 1}], pa.struct([("a", pa.int8())]))).to_pylist() == [b"\x08\1"]
    with pytest.raises(SchemaError, match="it must be a whole number"):
        plan.encode(pa.array([{"a": "1"}]))
