"""A message that is derived from columns is text that people can read, and its own columns fit it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.protobuf.protobuf_derive import derive
from spark_kafka_sink.formats.protobuf.protobuf_fit import fit
from spark_kafka_sink.formats.protobuf.protobuf_format import message_types
from tests.every import every


def struct(**kinds: pa.DataType) -> pa.DataType:
    return pa.struct(list(kinds.items()))


def test_the_text_of_a_message() -> None:
    inner = pa.struct([pa.field("x", pa.int16(), False), pa.field("deep_one", struct(y=pa.string()))])
    kind = pa.struct(
        [
            pa.field("id", pa.int64(), False, {b"comment": b"The number.\n*/ } \xc3\xbc"}),
            pa.field("home_address", inner),
            pa.field("tags", pa.list_(pa.string()), False),
            pa.field("by_name", pa.map_(pa.string(), inner)),
            pa.field("days", pa.list_(pa.date32())),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("local", pa.timestamp("us"), False),
        ]
    )

    text = derive(kind, "shop.v1.Order")

    assert text.splitlines() == [
        'syntax = "proto3";',
        "package shop.v1;",
        'import "google/protobuf/timestamp.proto";',
        "",
        "message Order {",
        "  message HomeAddress {",
        "    message DeepOne {",
        "      optional string y = 1;",
        "    }",
        "    int32 x = 1;",
        "    optional DeepOne deep_one = 2;",
        "  }",
        "  message ByName {",
        "    message DeepOne {",
        "      optional string y = 1;",
        "    }",
        "    int32 x = 1;",
        "    optional DeepOne deep_one = 2;",
        "  }",
        "  // The number.",
        "  // */ } ü",
        "  int64 id = 1;",
        "  optional HomeAddress home_address = 2;",
        "  repeated string tags = 3;",
        "  map<string, ByName> by_name = 4;",
        "  // Days since 1970-01-01.",
        "  repeated int32 days = 5;",
        "  optional google.protobuf.Timestamp at = 6;",
        "  // Microseconds since 1970-01-01T00:00:00, without a time zone.",
        "  int64 local = 7;",
        "}",
    ]
    fit(message_types(text, {}, None), kind)


@every(
    "kind, text",
    [
        (pa.bool_(), "bool"),
        (pa.int8(), "int32"),
        (pa.int32(), "int32"),
        (pa.int64(), "int64"),
        (pa.uint16(), "uint32"),
        (pa.uint64(), "uint64"),
        (pa.float16(), "float"),
        (pa.float32(), "float"),
        (pa.float64(), "double"),
        (pa.decimal128(10, 2), "string"),
        (pa.string(), "string"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.uuid(), "string"),
        (pa.binary(), "bytes"),
        (pa.binary(4), "bytes"),
        (pa.date32(), "int32"),
        (pa.time64("ns"), "int64"),
        (pa.timestamp("ns", "UTC"), "google.protobuf.Timestamp"),
        (pa.timestamp("us"), "int64"),
        (pa.duration("us"), "google.protobuf.Duration"),
    ],
)
def test_each_type_fits_what_is_derived_from_it(kind: pa.DataType, text: str) -> None:
    found = derive(struct(a=kind), "M")
    assert f"  optional {text} a = 1;" in found.splitlines()
    fit(message_types(found, {}, None), struct(a=kind))


def test_names_that_clash() -> None:
    kind = struct(
        Address=pa.string(),
        address=struct(address=struct(x=pa.int32())),
        google=struct(at=pa.timestamp("us", "UTC")),
        message=pa.int32(),
        optional=pa.int32(),
        M=pa.int32(),
        userid=pa.int32(),
        user_id=pa.int32(),
        foo=pa.map_(pa.string(), pa.int32()),
        foo_entry=struct(x=pa.int32()),
    )
    found = message_types(derive(kind, "M"), {}, None)

    fit(found, kind)
    types = [field.type_name for field in found.root.fields]
    assert types == ["", "M.Address2", "M.Google", *[""] * 5, "M.FooEntry", "M.FooEntry2"]


A_MAP = pa.map_(pa.string(), pa.int32())


@every(
    "kind, path, problem",
    [
        (struct(**{"a-b": pa.int32()}), "a-b", "is not a valid Protobuf name: rename it, for example to a_b"),
        (struct(**{"1": pa.int32()}), "1", "is not a valid Protobuf name: rename it, for example to _1"),
        (pa.struct([("a", pa.int32()), ("a", pa.int32())]), "a", "two columns have this name"),
        (struct(a_b=pa.int32(), aB=pa.int32()), "aB", "its name in JSON is that of a_b"),
        (struct(foo_=pa.int32(), foo=pa.int32()), "foo", "its name in JSON is that of foo_"),
        (struct(FooEntry=pa.int32(), foo=A_MAP), "FooEntry", "the message of the entries of foo has this name: rename one"),
        (struct(foo=A_MAP, Foo=A_MAP), "Foo", "the messages of the entries of foo and of this map have one name: rename one"),
        (struct(_1=A_MAP), "_1", "1Entry, the message of its entries, is not a valid Protobuf name: rename it"),
        (struct(a=pa.list_(pa.list_(pa.int32()))), "a", "no arrays of arrays or maps: wrap the inner ones in a struct"),
        (struct(a=pa.list_(pa.map_(pa.string(), pa.int32()))), "a", "no arrays of arrays or maps"),
        (struct(a=pa.map_(pa.string(), pa.list_(pa.int32()))), "a", "no maps of arrays or maps: wrap the inner ones in a struct"),
        (struct(a=pa.map_(pa.float64(), pa.int32())), "a", "the keys of a map are double, must be string"),
        (struct(a=struct(b=pa.month_day_nano_interval())), "a.b", "Protobuf has no type for month_day_nano_interval: cast it"),
        (struct(a=pa.null()), "a", "Protobuf has no type for null"),
    ],
)
def test_what_protobuf_cannot_hold(kind: pa.DataType, path: str, problem: str) -> None:
    with pytest.raises(SchemaError) as caught:
        derive(kind, "M")
    assert problem in caught.value.message
    assert caught.value.facts["fields"] == (path,)


def test_only_a_struct_becomes_a_message() -> None:
    with pytest.raises(SchemaError, match="a Protobuf value is a message: use a struct or several columns instead of string"):
        derive(pa.string(), "M")
    with pytest.raises(SchemaError, match=r"'a\.1' is not a valid Protobuf name"):
        derive(struct(a=pa.int32()), "a.1")


def test_numbers_that_protobuf_keeps_are_left_out() -> None:
    kind = pa.struct([(f"f{number}", pa.bool_()) for number in range(19_001)])
    text = derive(kind, "M")
    assert "optional bool f18998 = 18999;" in text
    assert "optional bool f18999 = 20000;" in text
