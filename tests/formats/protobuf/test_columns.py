"""What is written by column is what Protobuf's own runtime writes, for any message and any column that fits it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import ptars
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.formats import nodes
from spark_kafka_sink.formats.protobuf.message_types import from_json
from spark_kafka_sink.formats.protobuf.proto_files import base64_of
from spark_kafka_sink.formats.protobuf.protobuf_fit import fit
from spark_kafka_sink.formats.protobuf.protobuf_format import message_types
from spark_kafka_sink.records import concat
from tests.examples import examples
from tests.formats.protobuf.compiling import NEEDS_EDITIONS, file_set, message_class, message_of, reader
from tests.formats.protobuf.random_messages import ENUM, HEAD, PLAIN, Sample, column_of, tables

PREFIX = b"\0\0\0\1\2\0"
SLOW_TO_DRAW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def encoded(text: str, column: pa.Array, prefix: bytes = b"", message: str | None = None) -> list[bytes | None]:
    """Encodes with what travels to a task."""
    schema = from_json(message_types(text, {}, message).to_json())
    found: list[bytes | None] = fit(schema, column.type).encode(column, prefix).to_pylist()
    return found


@settings(max_examples=examples(30), deadline=None, suppress_health_check=SLOW_TO_DRAW)
@given(tables(depth=2))
def test_the_runtime_writes_the_same(table: tuple[str, Sample, list[Any], pa.Array]) -> None:
    check_written(*table)


@pytest.mark.whole("14 s; the same with two levels is in make test")
@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None, suppress_health_check=SLOW_TO_DRAW)
@given(tables(depth=3))
def test_the_runtime_writes_the_same_with_three_levels(table: tuple[str, Sample, list[Any], pa.Array]) -> None:
    check_written(*table)


def check_written(text: str, sample: Sample, rows: list[Any], column: pa.Array) -> None:
    files = file_set(text)
    name = f"random.messages.{sample.text}"
    own = message_class(files, name)

    found = encoded(base64_of(files.SerializeToString()), column, PREFIX, name)

    wanted = [None if row is None else message_of(own, sample.read(row)) for row in rows]
    assert [None if one is None else one[:6] for one in found] == [None if row is None else PREFIX for row in rows]
    assert [None if one is None else own.FromString(one[6:]) for one in found] == wanted
    if not sample.has_map:
        assert [None if one is None else one[6:] for one in found] == [
            None if one is None else one.SerializeToString(deterministic=True) for one in wanted
        ]


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_each_plain_type_with_and_without_presence(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(PLAIN) - 1))
    sample = PLAIN[place]
    rows = data.draw(st.lists(st.none() | sample.values, min_size=1, max_size=30).filter(any))
    numbers = "a = 1; optional {0} b = 2; repeated {0} c = 3; oneof d {{ {0} e = 4; }} "
    text = f'syntax = "proto3";{HEAD}{ENUM}message M {{ {sample.text} {numbers.format(sample.text)} }}'
    own = reader(text, "random.messages.M")
    values = column_of(rows, sample.kind)
    filler = next(row for row in rows if row is not None)
    always = column_of([filler if row is None else row for row in rows], sample.kind)
    offsets = np.cumsum([0, *(0 if row is None else 2 for row in rows)])
    twice = column_of([one for row in rows if row is not None for one in (row, row)], sample.kind)
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), twice)

    found = encoded(text, pa.StructArray.from_arrays([lists, always, values, values], ["c", "a", "e", "b"]))

    wanted = [
        {"a": sample.read(filler)} if row is None else {**dict.fromkeys("abe", sample.read(row)), "c": [sample.read(row)] * 2}
        for row in rows
    ]
    assert found == [own(**row).SerializeToString(deterministic=True) for row in wanted]


def message(body: str, more: str = "") -> str:
    return f'syntax = "proto3"; message M {{ {body} }} {more}'


def struct(**columns: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def test_a_null_may_be_among_the_values_of_a_dictionary() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), pa.array(["a", None]))
    text = message("optional string a = 1;")

    assert encoded(text, struct(a=values)) == [b"", b"\x0a\1a", b""]
    rows = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), pa.array([{"a": "a"}, None]))
    assert encoded(text, rows) == [None, b"\x0a\1a", None]


def test_minus_zero_is_not_the_default() -> None:
    column = pa.array([0.0, -0.0])
    found = encoded(message("double a = 1; float b = 2;"), struct(a=column, b=column.cast(pa.float32())))
    assert found == [b"", b"\x09" + bytes(7) + b"\x80\x15" + bytes(3) + b"\x80"]


def test_an_entry_of_a_map_has_its_key_and_value_even_if_they_are_the_default() -> None:
    column = pa.array([[("", 0), ("a", 1)]], pa.map_(pa.string(), pa.int32()))
    assert encoded(message("map<string, int32> a = 6;"), struct(a=column)) == [b"\x32\4\x0a\0\x10\0\x32\5\x0a\1a\x10\1"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_around_zero(unit: str) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    values = [-per_second - 1, -per_second, -1, 0, 1, per_second]
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";'
    text += "message M { google.protobuf.Timestamp a = 1; google.protobuf.Duration b = 2; }"
    column = struct(a=pa.array(values, pa.timestamp(unit, "UTC")), b=pa.array(values, pa.duration(unit)))
    nanos = [value * 10**9 // per_second for value in values]

    found = encoded(text, column)

    wanted = [reader(text, "M")() for _ in values]
    for one, each in zip(wanted, nanos, strict=True):
        one.a.FromNanoseconds(each)
        one.b.FromNanoseconds(each)
        one.a.SetInParent()
        one.b.SetInParent()
    assert found == [one.SerializeToString(deterministic=True) for one in wanted]


@NEEDS_EDITIONS
def test_an_edition_decides_about_presence_and_packing() -> None:
    text = """edition = "2023"; message M {
    int32 a = 1; int32 b = 2 [features.field_presence = IMPLICIT]; repeated int32 c = 3;
    repeated int32 d = 4 [features.repeated_field_encoding = EXPANDED];
    int32 e = 5 [features.field_presence = LEGACY_REQUIRED]; }"""
    own = reader(text, "M")
    zero, lists = pa.array([0], pa.int32()), pa.array([[1, 2]])

    found = encoded(text, struct(a=zero, b=zero, c=lists, d=lists, e=zero))

    assert found == [own(a=0, c=[1, 2], d=[1, 2], e=0).SerializeToString(deterministic=True)]
    with pytest.raises(SerializationError, match="row 0: e: is null, and the field is required"):
        encoded(text, struct(e=pa.array([None], pa.int32())))
    with pytest.raises(SerializationError, match="row 1: e: is null, and the field is required"):
        encoded(text, struct(e=pa.array([1, None], pa.int32())))


def test_a_uuid_is_its_text() -> None:
    column = pa.array([bytes(16), None, bytes(range(16))], pa.uuid())

    found = encoded(message("optional string a = 1;"), struct(a=column))

    texts = (b"00000000-0000-0000-0000-000000000000", b"00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert found == [b"\x0a\x24" + texts[0], b"", b"\x0a\x24" + texts[1]]


def test_a_recursive_message_is_as_deep_as_the_columns() -> None:
    text = message("int32 value = 1; M left = 2; repeated M rest = 3;")
    leaf = pa.struct([("value", pa.int32())])
    kind = pa.struct([("value", pa.int32()), ("left", leaf), ("rest", pa.list_(pa.struct([("left", leaf)])))])
    rows = [{"value": 1, "left": {"value": 2}, "rest": [{"left": {"value": 3}}, {"left": None}]}]

    (found,) = encoded(text, pa.array(rows, kind))

    wanted = reader(text, "M")(value=1, left={"value": 2}, rest=[{"left": {"value": 3}}, {}])
    assert found == wanted.SerializeToString(deterministic=True)


def test_columns_without_values_and_fields_without_columns() -> None:
    text = message("repeated int32 b = 2; map<string, int32> c = 3; M d = 4; optional string e = 5; string f = 6;")
    nothing = pa.nulls(2)
    lists = pa.array([[], None], pa.list_(pa.null()))

    assert encoded(text, struct(b=nothing, c=nothing, d=nothing, e=nothing)) == [b"", b""]
    assert encoded(text, struct(b=lists)) == [b"", b""]
    assert encoded(text, pa.array([{}, None], pa.struct([]))) == [b"", None]
    assert encoded(text, pa.array([], pa.struct([("f", pa.string())]))) == []
    assert encoded(text, pa.nulls(3, pa.struct([("f", pa.string())])), b"ab") == [None] * 3


def test_large_columns_have_all_rows() -> None:
    text = message("int64 a = 1; repeated int64 b = 2; repeated string c = 3;")
    own = reader(text, "M")
    rows = [{"a": number, "b": list(range(number % 5)), "c": ["x" * (number % 20)]} for number in range(25_000)]
    kind = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64())), ("c", pa.list_(pa.string()))])

    found = encoded(text, pa.array(rows, kind))

    assert found == [own(**row).SerializeToString(deterministic=True) for row in rows]


def test_above_2_gib_columns_become_large(monkeypatch: pytest.MonkeyPatch) -> None:
    text = message("repeated N a = 1;", "message N { repeated string b = 1; }")
    rows = [{"a": [{"b": ["abc" * 5] * 3}, {}]}, {"a": []}, {"a": [{"b": ["d"]}]}] * 10_000
    column = pa.array(rows, pa.struct([("a", pa.list_(pa.struct([("b", pa.list_(pa.string()))])))]))
    expected = encoded(text, column)

    for module in (concat, nodes):  # memory for 2 GiB is not everywhere
        monkeypatch.setattr(module, "INT32_MAX", 100)
    schema = message_types(text, {}, None)
    found = fit(schema, column.type).encode(column)

    assert found.type == pa.large_binary()
    assert found.to_pylist() == expected


def test_ptars_reads_the_same() -> None:
    """A second reader of the kinds that it knows."""
    text = message(
        "int32 a = 1; optional int64 b = 2; string c = 3; double d = 4; bytes e = 5; repeated int32 f = 6; bool g = 7;"
        "sint64 h = 8; fixed32 i = 9; repeated string j = 10; N k = 11; repeated N l = 12;",
        "message N { string x = 1; uint64 y = 2; }",
    )
    inner = pa.struct([("x", pa.string()), ("y", pa.uint64())])
    kind = pa.struct(
        [
            ("a", pa.int32()), ("b", pa.int64()), ("c", pa.string()), ("d", pa.float64()), ("e", pa.binary()),
            ("f", pa.list_(pa.int32())), ("g", pa.bool_()), ("h", pa.int64()), ("i", pa.uint32()), ("j", pa.list_(pa.string())),
            ("k", inner), ("l", pa.list_(inner)),
        ]
    )  # fmt: skip
    rows = [
        {
            "a": number - 50, "b": None if number % 3 else number * 2**40, "c": "ü" * number, "d": number / 3, "e": bytes(number),
            "f": list(range(-2, number % 7)), "g": number % 2 == 0, "h": -number, "i": number, "j": ["a", ""] * (number % 3),
            "k": {"x": "y", "y": number}, "l": [{"x": "z", "y": 0}] * (number % 4),
        }
        for number in range(200)
    ]  # fmt: skip
    files = file_set(text)
    own = message_class(files, "M")
    column = fit(message_types(text, {}, None), kind).encode(pa.array(rows, kind))

    handler = ptars.HandlerPool([own.DESCRIPTOR.file]).get_for_message(own.DESCRIPTOR)

    assert handler.array_to_record_batch(column).to_pylist() == rows


def test_executors_need_no_library_of_protobuf() -> None:
    """What the driver prepares is enough for columns and for single values."""
    text = message("int32 a = 1; google.protobuf.Timestamp b = 2;").replace(";", '; import "google/protobuf/timestamp.proto";', 1)
    prepared = message_types(text, {}, None).to_json()
    program = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("google", "grpc", "grpc_tools"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
import datetime
import pyarrow as pa
from spark_kafka_sink.formats.schema_format import schema_format
schema = schema_format("protobuf").load({prepared!r}, {{}})
kind = pa.struct([("a", pa.int32()), ("b", pa.timestamp("us", "UTC"))])
value = {{"a": 7, "b": datetime.datetime(1970, 1, 1, 0, 0, 2, tzinfo=datetime.UTC)}}
print(schema.fit(kind).encode(pa.array([value], kind), b"p").to_pylist(), schema.encode_value(value, b"p"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    written = b"p\x08\x07\x12\x02\x08\x02"
    assert (done.stdout.strip(), done.stderr) == (f"[{written!r}] {written!r}", "")
