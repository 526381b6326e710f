"""A single value has the bytes of a column of one row, and of Protobuf's own runtime."""

from __future__ import annotations

import datetime
from collections import namedtuple
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.formats.protobuf.proto_files import base64_of
from spark_kafka_sink.formats.protobuf.protobuf_format import message_types
from spark_kafka_sink.formats.protobuf.protobuf_single import encode_value
from tests.every import every
from tests.examples import examples
from tests.formats.protobuf.compiling import file_set, message_class, message_of, reader
from tests.formats.protobuf.random_messages import Sample, tables
from tests.formats.protobuf.test_bad_rows import proto3

SLOW_TO_DRAW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def encoded(text: str, value: Any) -> bytes | None:
    return encode_value(message_types(text, {}, None), value)


def problem(text: str, value: Any) -> str:
    with pytest.raises(SerializationError) as caught:
        encoded(text, value)
    return caught.value.message


@settings(max_examples=examples(20), deadline=None, suppress_health_check=SLOW_TO_DRAW)
@given(tables(depth=2))
def test_the_runtime_writes_the_same(table: tuple[str, Sample, list[Any], pa.Array]) -> None:
    text, sample, rows, _ = table
    files = file_set(text)
    name = f"random.messages.{sample.text}"
    own = message_class(files, name)
    schema = message_types(base64_of(files.SerializeToString()), {}, name)
    for row in rows:
        if row is None:
            assert encode_value(schema, row, b"prefix") is None
            continue
        wanted = message_of(own, sample.read(row))
        found = encode_value(schema, sample.read(row), b"prefix")
        assert found is not None
        assert found.startswith(b"prefix")
        assert own.FromString(found[6:]) == wanted
        if not sample.has_map:
            assert found[6:] == wanted.SerializeToString(deterministic=True)
        assert encode_value(schema, wanted) == wanted.SerializeToString(deterministic=True)


def test_values_of_python_become_what_columns_of_them_become() -> None:
    text = proto3(
        "google.protobuf.Timestamp a = 1; google.protobuf.Duration b = 2; google.protobuf.Timestamp c = 3; string d = 4;"
        "string e = 5; int32 f = 6; int64 g = 7; int64 h = 8; E i = 9; E j = 10; float k = 11;"
        "double l = 12; bytes m = 13; uint64 n = 14;"
    )
    value = {
        "a": datetime.datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=datetime.UTC),
        "b": datetime.timedelta(seconds=-1, microseconds=-500_000),
        "c": {"seconds": 5},
        "d": Decimal("1E-9"),
        "e": UUID(int=1),
        "f": datetime.date(1970, 1, 3),
        "g": datetime.time(0, 0, 1),
        "h": datetime.datetime(1970, 1, 1, 0, 0, 1),
        "i": "B",
        "j": 1,
        "k": np.float32(0.5),
        "l": 3,
        "m": bytearray(b"x"),
        "n": np.uint64(2**64 - 1),
    }
    wanted = reader(text, "M")(
        a={"seconds": -1, "nanos": 500_000_000},
        b={"seconds": -1, "nanos": -500_000_000},
        c={"seconds": 5},
        d="0.000000001",
        e=str(UUID(int=1)),
        f=2,
        g=10**9,
        h=10**6,
        i=5,
        j=1,
        k=0.5,
        l=3,
        m=b"x",
        n=2**64 - 1,
    )
    assert encoded(text, value) == wanted.SerializeToString(deterministic=True)


def test_rows_named_tuples_and_recursive_values() -> None:
    pair = namedtuple("pair", ["a", "m"])
    text = proto3("int32 a = 1; M m = 2;")

    assert encoded(text, pair(1, {"m": pair(2, None)})) == b"\x08\1\x12\4\x12\2\x08\2"
    value: dict[str, Any] = {}
    value["m"] = value
    assert problem(text, value) == "the value is nested too deeply, or contains itself"


LATEST = datetime.datetime.max.replace(tzinfo=datetime.timezone(-datetime.timedelta(hours=14)))
EARLIEST = datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=14)))


@every(
    "body, value, text",
    [
        ("int32 a = 1;", 5, "a value of type int is not supported, must be a dict, a named tuple or a Row"),
        ("int32 a = 1;", {"b": 1}, "b: message M has no such field"),
        ("int32 a = 1;", {"a": "1"}, "a: a value of type str is not supported, must be int"),
        ("int32 a = 1;", {"a": True}, "a: a value of type bool is not supported, must be int"),
        ("int32 a = 1;", {"a": 2**31}, "a: 2147483648 is out of range for int32"),
        ("uint32 a = 1;", {"a": -1}, "a: -1 is out of range for uint32"),
        ("bool a = 1;", {"a": 1}, "a: a value of type int is not supported, must be bool"),
        ("float a = 1;", {"a": 1e300}, "a: the number is out of range for float"),
        ("float a = 1;", {"a": 2**24 + 1}, "a: a whole number has more digits than float can hold"),
        ("float a = 1;", {"a": np.int64(2**24 + 1)}, "a: a whole number has more digits than float can hold"),
        ("float a = 1;", {"a": 2**1100}, "a: the number is out of range for float"),
        ("double a = 1;", {"a": np.uint64(2**64 - 1)}, "a: a whole number has more digits than double can hold"),
        ("double a = 1;", {"a": "x"}, "a: a value of type str is not supported, must be float"),
        ("string a = 1;", {"a": b"x"}, "a: a value of type bytes is not supported, must be str"),
        ("string a = 1;", {"a": "\ud800"}, "a: text with a lone surrogate at 0 cannot be encoded as UTF-8"),
        ("bytes a = 1;", {"a": "x"}, "a: a value of type str is not supported, must be bytes"),
        ("E a = 1;", {"a": "C"}, "a: the text is not a name of enum E"),
        ("E a = 1;", {"a": 2}, "a: 2 is not a number of enum E"),
        ("E a = 1;", {"a": 1.0}, "a: a value of type float is not supported, must be str or int"),
        ("repeated int32 a = 1;", {"a": 1}, "a: a value of type int is not supported, must be a list"),
        ("repeated int32 a = 1;", {"a": [1, None]}, "a[1]: is null, and a repeated field cannot hold null"),
        ("repeated M a = 1;", {"a": [{}, {"a": [3]}]}, "a[1].a[0]: a value of type int is not supported, must be a dict"),
        ("map<string, int32> a = 1;", {"a": [1]}, "a: a value of type list is not supported, must be a dict"),
        ("map<string, int32> a = 1;", {"a": {"x": None}}, "a[0].value: is null, and a map cannot hold null"),
        ("map<string, int32> a = 1;", {"a": {1: 1}}, "a[0].key: a value of type int is not supported, must be str"),
        ("oneof c { int32 a = 1; int32 b = 2; }", {"a": 1, "b": 1}, "b: a and b have a value, and the oneof c can hold only one"),
        ("google.protobuf.Timestamp a = 1;", {"a": 1}, "a: a value of type int is not supported, must be datetime"),
        ("google.protobuf.Timestamp a = 1;", {"a": LATEST}, "a: the value is out of range for google.protobuf.Timestamp"),
        ("google.protobuf.Timestamp a = 1;", {"a": EARLIEST}, "a: the value is out of range for google.protobuf.Timestamp"),
        ("google.protobuf.Timestamp a = 1;", {"a": pd.NaT}, "a: NaT is not supported: use None"),
        ("google.protobuf.Duration a = 1;", {"a": pd.NaT}, "a: a value of type NaTType is not supported, must be timedelta"),
        ("int64 a = 1;", {"a": pd.NaT}, "a: NaT is not supported: use None"),
        ("google.protobuf.Duration a = 1;", {"a": datetime.timedelta.max}, "a: the value is out of range"),
    ],
)  # fmt: skip
def test_a_value_that_the_message_cannot_hold(body: str, value: Any, text: str) -> None:
    assert problem(proto3(body), value).startswith(text)


def test_none_in_a_field_that_cannot_be_null() -> None:
    schema = message_types('syntax = "proto3"; message M { int32 a = 1; M m = 2; oneof o { string b = 3; M c = 4; } }', {}, None)
    assert encode_value(schema, {}) == encode_value(schema, {"m": None, "b": None, "c": None}) == b""
    assert encode_value(schema, {"b": "", "c": None}) == b"\x1a\0"
    with pytest.raises(SerializationError) as caught:
        encode_value(schema, {"m": {"a": None}})
    assert caught.value.message.startswith("m.a: is null, and the field cannot be null: declare it as optional")
    assert caught.value.facts == {"path": "m.a"}


def test_times_of_pandas_keep_their_nanoseconds() -> None:
    text = proto3("google.protobuf.Timestamp a = 1; google.protobuf.Duration b = 2;")
    wanted = reader(text, "M")
    for nanos in (1_700_000_000_123_456_789, -1, 0):
        own = wanted()
        own.a.FromNanoseconds(nanos)
        own.b.FromNanoseconds(nanos)
        local = pd.Timestamp(nanos, tz="UTC").tz_convert("Europe/Berlin")
        assert encoded(text, {"a": local, "b": pd.Timedelta(nanos)}) == own.SerializeToString(deterministic=True)
    naive = pd.Timestamp(1_700_000_000_123_456_789)
    seconds = int(naive.to_pydatetime(warn=False).timestamp())
    own = wanted(a={"seconds": seconds, "nanos": 123_456_789})
    assert encoded(text, {"a": naive}) == own.SerializeToString(deterministic=True)


def test_a_required_field_and_objects_of_other_classes() -> None:
    text = 'syntax = "proto2"; message M { required int32 a = 1; } message N { }'
    assert problem(text, {}) == "a: is null, and the field is required"
    assert problem(text, reader(text, "M")()) == "the object lacks required fields"
    assert problem(text, reader(text, "N")()) == "a N is not supported, must be M"
