"""One value and a column of it become the same bytes, and those are what Python's own struct and codecs make."""

from __future__ import annotations

import datetime
import struct
from array import array
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import SerializationError
from tests.every import every
from tests.examples import examples
from tests.producer.serializers.making import column_bytes, key_serializer, serializer, single_bytes, slices

few = settings(max_examples=examples(40), deadline=None)  # a busy machine is no failure


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


NUMBERS: dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any]]] = {
    "short": (">h", pa.int16(), integers(16)),
    "integer": (">i", pa.int32(), integers(32)),
    "int": (">i", pa.int32(), integers(32)),
    "long": (">q", pa.int64(), integers(64)),
    "float": (">f", pa.float32(), st.floats(width=32)),
    "double": (">d", pa.float64(), st.floats()),
    "boolean": (">?", pa.bool_(), st.booleans()),
}


def packed(form: str, value: Any) -> bytes | None:
    if value is None:
        return None
    return struct.pack(form, float("nan") if form == ">d" and value != value else value)  # noqa: PLR0124


@every(
    "name, narrow, form",
    [
        ("short", pa.int8(), ">h"),
        ("short", pa.uint8(), ">h"),
        ("integer", pa.int16(), ">i"),
        ("integer", pa.uint16(), ">i"),
        ("long", pa.int32(), ">q"),
        ("long", pa.uint32(), ">q"),
        ("float", pa.float16(), ">f"),
        ("double", pa.float32(), ">d"),
        ("double", pa.float16(), ">d"),
    ],
)
def test_narrower_columns_are_widened(name: str, narrow: pa.DataType, form: str) -> None:
    numbers = [1, None, 100] if pa.types.is_integer(narrow) else [np.float16(1.5), None, np.float16(-2)]
    column = pa.array(numbers, narrow)
    assert column_bytes(serializer(name), column) == [packed(form, value) for value in column.to_pylist()]


@every(
    "name, wide, wanted",
    [
        ("short", pa.int32(), "int16 or narrower; cast it to int16"),
        ("integer", pa.int64(), "int32 or narrower; cast it to int32"),
        ("integer", pa.uint32(), "int32 or narrower"),
        ("long", pa.uint64(), "int64 or narrower"),
        ("long", pa.string(), "int64 or narrower"),
        ("long", pa.timestamp("us"), "int64 or narrower"),
        ("float", pa.float64(), "float or narrower; cast it to float"),
        ("double", pa.int32(), "double or narrower"),
        ("boolean", pa.int8(), "bool; cast it to bool"),
        ("string", pa.binary(), "string; cast it to string"),
        ("bytearray", pa.string(), "binary; cast it to binary"),
        ("uuid", pa.binary(), "string, fixed_size_binary[16] or arrow.uuid"),
        ("list", pa.int32(), "a list of a 64-bit integer"),
        ("list", pa.list_(pa.string()), "elements: a column of type string is not supported, must be int64 or narrower"),
    ],
)
def test_a_column_of_another_type_is_refused_before_any_row(name: str, wide: pa.DataType, wanted: str) -> None:
    made = serializer(name, default__list__value__serde__inner="long")
    for refuse in (lambda: made.accepts(wide), lambda: made.serialize_column("topic", pa.array([], wide))):
        with pytest.raises(SerializationError) as caught:
            refuse()
        assert f"{wide.value_type if pa.types.is_list(wide) else wide} is not supported, must be " in str(caught.value)
        assert wanted in str(caught.value)


@every(
    "name, value, wanted",
    [
        ("short", 2**15, "32768 is out of range: must be a 16-bit integer"),
        ("integer", -(2**31) - 1, "out of range"),
        ("long", 2**63, "out of range"),
        ("float", 1e39, "1e+39 is out of range"),
        ("long", True, "a value of type bool is not supported, must be a 64-bit integer"),
        ("long", 1.0, "a value of type float"),
        ("long", "1", "a value of type str"),
        ("long", datetime.datetime(2026, 1, 1), "a value of type datetime"),
        ("double", 1, "a value of type int is not supported, must be a float"),
        ("boolean", 1, "a value of type int is not supported, must be a bool"),
        ("string", b"a", "a value of type bytes is not supported, must be str"),
        ("bytearray", "a", "a value of type str is not supported, must be bytes"),
        ("bytes", 5, "a value of type int"),
        ("bytebuffer", "a", "a value of type str is not supported, must be an object with the buffer protocol"),
        ("uuid", "no uuid", "a value of type str is not supported, must be a UUID, its text of 36 characters, or its 16 bytes"),
        ("uuid", f"{UUID(int=5)}\n", "a value of type str"),
        ("uuid", b"15 bytes long..", "a value of type bytes"),
        ("void", 0, "a value of type int is not supported, must be None"),
        ("list", "ab", "a value of type str is not supported, must be a list of"),
        ("list", [1, "b"], "element 1: a value of type str"),
        ("json", float("nan"), "nan, which JSON cannot represent"),
        ("json", {1: 2}, "a value of type int is not supported, must be text for a JSON key"),
        ("json", object(), "a value of type object is not supported, must be a type that JSON can represent"),
    ],
)
def test_a_value_of_another_type_or_out_of_range_is_refused(name: str, value: Any, wanted: str) -> None:
    with pytest.raises(SerializationError) as caught:
        serializer(name, default__list__value__serde__inner="long").serialize("topic", value)
    assert wanted in str(caught.value)


@every(
    "name",
    ["short", "long", "float", "boolean", "string", "uuid", "list", "bytes", "bytebuffer", "void", "json"],
)
def test_null_becomes_null_also_in_a_column_that_has_nothing_else(name: str) -> None:
    made = serializer(name, default__list__value__serde__inner="long")
    assert made.serialize("topic", None) is None
    assert column_bytes(made, pa.nulls(3)) == [None, None, None]
    assert column_bytes(made, pa.nulls(0)) == []


@pytest.mark.parametrize("number", [np.int64(5), np.int8(5), np.uint32(5)])
def test_numbers_of_numpy_are_numbers(number: Any) -> None:
    assert serializer("long").serialize("topic", number) == struct.pack(">q", 5)
    assert serializer("double").serialize("topic", np.float32(0.5)) == struct.pack(">d", 0.5)


@pytest.mark.parametrize("name", ["bytearray", "bytes", "bytebuffer"])
def test_bytes_stay_as_they_are(name: str) -> None:
    made = serializer(name)
    assert single_bytes(made, [b"a", bytearray(b"b"), memoryview(b"xcx")[1:2], b""]) == [b"a", b"b", b"c", b""]
    column = pa.array([b"a", None, b""])
    assert made.serialize_column("topic", column) is column
    assert column_bytes(made, column.cast(pa.binary_view())) == [b"a", None, b""]
    assert column_bytes(made, pa.array([b"ab", None], pa.binary(2))) == [b"ab", None]


def test_a_buffer_is_written_in_its_order_in_memory() -> None:
    assert serializer("bytebuffer").serialize("topic", array("h", [1, 2])) == array("h", [1, 2]).tobytes()
    assert serializer("bytebuffer").serialize("topic", memoryview(b"abcdef")[::2]) == b"ace"


def test_nulls_alone_are_void() -> None:
    assert column_bytes(serializer("void"), pa.array([None, None], pa.string())) == [None, None]
    with pytest.raises(SerializationError, match="row 1: is not null") as caught:
        serializer("void").serialize_column("topic", pa.array([None, 5, 6]))
    assert caught.value.facts["row"] == 1


@every("name", ["UTF-16", "UTF-32", "US-ASCII", "ISO-8859-1"])
@few
@given(values=st.lists(st.none() | st.text(st.characters(max_codepoint=0x1F6FF, exclude_categories=["Cs"]), max_size=8)))
def test_a_column_of_text_is_its_single_values(name: str, values: list[str | None]) -> None:
    made = serializer("string", serializer__encoding=name)
    for column in slices(pa.array(values, pa.string())):
        assert column_bytes(made, column) == single_bytes(made, column.to_pylist())


def test_the_encoding_of_keys_or_of_values_wins_over_that_of_both() -> None:
    settings = {"serializer__encoding": "UTF-16LE", "key__serializer__encoding": "US-ASCII"}
    assert key_serializer("string", **settings).serialize("topic", "ü") == b"?"
    assert serializer("string", **settings).serialize("topic", "ü") == b"\xfc\0"


def test_utf8_text_is_not_looked_at() -> None:
    column = pa.array(["a", None])
    assert serializer("string").serialize_column("topic", column) is column
    assert column_bytes(serializer("string"), column.cast(pa.string_view())) == [b"a", None]


def broken_text(*rows: bytes) -> pa.Array:
    """What cast(binary as string) makes in Spark."""
    column = pa.array(rows)
    return pa.Array.from_buffers(pa.string(), len(column), column.buffers())


@pytest.mark.parametrize("name", ["UTF-16", "ISO-8859-1", "UTF-32LE"])
def test_text_that_is_no_utf8_names_its_row(name: str) -> None:
    # The second and third row are whole only together.
    column = broken_text(b"good", b"\xe2\x82", b"\xac", b"\xff")
    with pytest.raises(SerializationError, match="row 1: text is not valid UTF-8") as caught:
        serializer("string", serializer__encoding=name).serialize_column("topic", column)
    assert caught.value.facts["row"] == 1


def test_what_lies_under_a_null_is_not_looked_at() -> None:
    rows = pa.array([b"a", b"\xff", b"b"])
    valid = pa.py_buffer(np.packbits([True, False, True], bitorder="little"))
    column = pa.Array.from_buffers(pa.string(), 3, [valid, *rows.buffers()[1:]])
    assert column_bytes(serializer("string", serializer__encoding="US-ASCII"), column) == [b"a", None, b"b"]


UUIDS = [UUID(int=0), None, UUID(int=2**128 - 1), UUID("01234567-89ab-cdef-fedc-ba9876543210"), UUID(int=7)]


@every("encoding", ["UTF-8", "UTF-16"])
def test_uuids_are_written_from_text_from_bytes_and_from_arrows_uuid(encoding: str) -> None:
    made = serializer("uuid", serializer__encoding=encoding)
    as_bytes = pa.array([None if one is None else one.bytes for one in UUIDS], pa.binary(16))
    as_text = pa.array([None if one is None else str(one).upper() for one in UUIDS])
    columns = [as_bytes, as_text, as_text.cast(pa.large_string())]
    if hasattr(pa, "uuid"):
        columns.append(pa.ExtensionArray.from_storage(pa.uuid(), as_bytes))
    for column in columns:
        for part, values in zip(slices(column), (UUIDS, UUIDS[1:], UUIDS[:4], UUIDS[3:7], []), strict=True):
            assert column_bytes(made, part) == single_bytes(made, values), column.type
    assert single_bytes(made, [str(UUIDS[3]).upper(), UUID(int=7).bytes]) == single_bytes(made, UUIDS[3:])


INNERS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    **{name: (kind, numbers) for name, (_, kind, numbers) in NUMBERS.items()},
    "string": (pa.string(), st.text(max_size=5)),
    "uuid": (pa.string(), st.uuids().map(str)),
    "bytes": (pa.binary(), st.binary(max_size=5)),
    "json": (pa.string(), st.text(max_size=5)),
}


@every("inner", INNERS)
@few
@given(data=st.data())
def test_a_column_of_lists_is_its_single_lists(inner: str, data: st.DataObject) -> None:
    kind, elements = INNERS[inner]
    values = data.draw(st.lists(st.none() | st.lists(st.none() | elements, max_size=5), max_size=9))
    made = serializer("list", default__list__value__serde__inner=inner)
    for column in slices(pa.array(values, pa.list_(kind))):
        assert column_bytes(made, column) == single_bytes(made, column.to_pylist())
        assert column_bytes(made, column.cast(pa.large_list(kind))) == column_bytes(made, column)


def test_lists_of_a_fixed_size_are_lists() -> None:
    values = [[1, 2], None, [3, None]]
    made = serializer("list", default__list__value__serde__inner="long")
    assert column_bytes(made, pa.array(values, pa.list_(pa.int64(), 2))) == single_bytes(made, values)


def test_an_element_that_cannot_be_written_names_row_and_place() -> None:
    made = serializer("list", default__list__value__serde__inner="uuid")
    column = pa.array([[], [str(UUID(int=5))], None, [str(UUID(int=5)), None, "x"]])
    with pytest.raises(SerializationError, match="row 3: element 2: text is not a valid UUID") as caught:
        made.serialize_column("topic", column)
    assert caught.value.facts["row"] == 3
