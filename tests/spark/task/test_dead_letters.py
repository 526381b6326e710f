"""Dead letters as records: what they hold, and what is left out of them."""

from __future__ import annotations

import datetime
import json
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from spark_kafka_sink.errors import BrokerError, KafkaSinkError, RecordError, SerializationError
from spark_kafka_sink.options.producer_options import ProducerConfig, producer_config
from spark_kafka_sink.producer.base.bad_rows import BadRows
from spark_kafka_sink.records.columns import NO_TIMESTAMP, RecordColumns
from spark_kafka_sink.records.encoder import size_upper_bounds
from spark_kafka_sink.spark.task.dead_letters import (
    MAX_MESSAGE_CHARS,
    Letter,
    Place,
    amended,
    columns_of,
    fitted,
    letters_from,
    letters_of,
    smaller,
)
from spark_kafka_sink.spark.task.letter_text import part_of_value, parts_of
from spark_kafka_sink.spark.task.refused_rows import RefusedRows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PREFIX = "__connect.errors."
PLACE = Place(3, "query", "7")


def letter(error: KafkaSinkError | None = None, reason: str = "record", **columns: Any) -> Letter:
    """The letter of one row."""
    made = RecordColumns(1, **columns)
    refused = RefusedRows(made, ["events"], [error or RecordError("no")], [12])
    (found,) = letters_of(refused, [reason], PLACE, PREFIX)
    return found


def headers_of(made: Letter) -> dict[str, bytes | None]:
    (headers,) = columns_of([made], PREFIX).headers.to_pylist()  # type: ignore[union-attr]
    return {each["key"]: each["value"] for each in headers}


def value_of(array: pa.Array) -> tuple[bytes | None, bytes | None]:
    """The value of a letter, and the header that says how it was made."""
    made = letter(value=array)
    return made.value, made.why.get("value.format")


# The row itself


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_keys_and_values_of_bytes_are_kept(kind: pa.DataType) -> None:
    made = letter(key=pa.array(["k"]).cast(kind), value=pa.array([None], kind))
    assert (made.key, made.value) == (b"k", None)
    assert not made.why.keys() & {"key.format", "value.format"}


def test_text_that_is_not_utf8_is_kept_byte_for_byte() -> None:
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")])
    assert value_of(text) == (b"\xff\xfe", None)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (pa.array([7]), b"7"),
        (pa.array([True]), b"true"),
        (pa.array([Decimal("1.50")]), b"1.50"),
        (pa.array([datetime.date(2026, 1, 2)]), b'"2026-01-02"'),
        (pa.array([{"a": 1, "b": [None, "x"]}]), b'{"a":1,"b":[null,"x"]}'),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), b'{"a":1}'),
    ],
)
def test_other_keys_and_values_become_json(array: pa.Array, text: bytes) -> None:
    assert value_of(array) == (text, b"json")


NOT_UTF8 = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"a\xff")])
NAN = pa.array([float("nan")])


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (pa.array([float("nan")]), b"NaN"),
        (pa.array([{"a": float("-inf"), "b": b"\0\1", "c": None}]), b'{"a":-Infinity,"b":"AAE=","c":null}'),
        (pa.StructArray.from_arrays([NOT_UTF8], ["a"]), b'{"a":"a\\\\xff"}'),
        (pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())), b'{"a":1,"a":2}'),
        (pa.array([[(1, "x")]], pa.map_(pa.int64(), pa.string())), b'{"1":"x"}'),
        (pa.array([datetime.timedelta(seconds=1)], pa.duration("us")), b'"0:00:01"'),
        (pa.array([[datetime.timedelta(0)]], pa.list_(pa.duration("us"))), b'["0:00:00"]'),
        (pa.StructArray.from_arrays([pa.array([datetime.time(1, 2)]), NAN], ["t", "n"]), b'{"t":"01:02:00","n":NaN}'),
        (pa.StructArray.from_arrays([pa.array([np.float16(1.5)]), NAN], ["h", "n"]), b'{"h":1.5,"n":NaN}'),
        (pa.array([np.float16("-inf")]), b"-Infinity"),
    ],
)
def test_what_has_no_json_becomes_a_lenient_text(array: pa.Array, text: bytes) -> None:
    assert value_of(array) == (text, b"text")


def test_a_good_row_beside_one_without_json_stays_json() -> None:
    found = parts_of(pa.array([1.0, float("nan"), None]), 3)
    assert found == [(b"1.0", "json"), (b"NaN", "text"), (None, "")]


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (None, (None, "")),
        (b"b", (b"b", "")),
        (bytearray(b"b"), (b"b", "")),
        ("ü", ("ü".encode(), "")),
        ("\ud800", (b"\\ud800", "text")),
        (Row(a=1, b=Row(c="x")), (b'{"a": 1, "b": {"c": "x"}}', "json")),
        (float("nan"), (b"nan", "text")),
        (Row(a=Decimal(1)), (b"Row(a=Decimal('1'))", "text")),
    ],
)
def test_values_of_rows_are_kept_or_become_text(value: object, part: tuple[bytes | None, str]) -> None:
    assert part_of_value(value) == part


def test_a_value_whose_repr_raises_has_a_text() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert part_of_value(Broken()) == (b"a Broken without a text", "text")


def test_valid_headers_are_kept_and_fixed_ones_follow() -> None:
    headers = pa.array([[{"key": "a", "value": b"1"}, None, {"key": None, "value": b"2"}, {"key": "a", "value": None}]], HEADERS)
    made = letter(headers=headers, fixed_headers=(("f", b"x"),))
    assert made.own == ((b"a", b"1"), (b"a", None), (b"f", b"x"))
    assert made.why["headers.omitted"] == b"2"


def test_a_header_name_that_is_not_utf8_is_left_out() -> None:
    pair = pa.StructArray.from_arrays([NOT_UTF8, pa.array([b"v"])], ["key", "value"])
    made = letter(headers=pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pair))
    assert (made.own, made.why["headers.omitted"]) == ((), b"1")


def test_headers_of_an_earlier_letter_are_replaced() -> None:
    headers = pa.array([[{"key": f"{PREFIX}topic", "value": b"old"}, {"key": "mine", "value": b"1"}]], HEADERS)
    found = columns_of([letter(headers=headers)], PREFIX).headers.to_pylist()[0]  # type: ignore[union-attr]
    assert [each["value"] for each in found if each["key"] == f"{PREFIX}topic"] == [b"events"]
    assert found[0] == {"key": "mine", "value": b"1"}


# Why it is there


def test_headers_say_why_with_the_names_of_kafka_connect() -> None:
    made = letter(SerializationError("topic events: value: no", part="value"), "serialization", partition=np.array([4], np.int32))
    assert headers_of(made) == {
        PREFIX + name: value
        for name, value in {
            "topic": b"events",
            "partition": b"4",
            "stage": b"VALUE_CONVERTER",
            "exception.class.name": b"spark_kafka_sink.errors.SerializationError",
            "exception.message": b"topic events: value: no",
            "reason": b"serialization",
            "query.id": b"query",
            "batch.id": b"7",
            "spark.partition": b"3",
            "row": b"12",
        }.items()
    }


def test_bytes_that_a_serializer_made_are_named_as_such() -> None:
    bad = BadRows("events", RecordColumns(1, value=pa.array([b"v"])), BrokerError("no", error="INVALID_RECORD"), None, 5)
    (made,) = letters_of(RefusedRows.of(bad), ["INVALID_RECORD"], Place(), PREFIX, frozenset({"key", "value"}))
    assert made.why["value.format"] == b"serialized"
    assert "key.format" not in made.why


def test_the_message_names_the_row_of_the_task() -> None:
    error = RecordError("topic events: row 3 of 17 takes 3 bytes", row=3)
    bad = BadRows("events", RecordColumns(1), error, np.array([3]))
    (made,) = letters_of(RefusedRows.of(bad, lambda row: row + 100), ["too-large"], PLACE, PREFIX)
    assert made.why["exception.message"] == b"topic events: row 103 of the data takes 3 bytes"


def test_a_long_message_is_cut() -> None:
    assert len(letter(RecordError("x" * 5000)).why["exception.message"]) == MAX_MESSAGE_CHARS


# Letters that are too large, or refused

WHOLE = Letter(b"k" * 50, b"v" * 400, ((b"h", b"x" * 100),), {"reason": b"too-large", "exception.message": b"m" * 60})


def test_a_letter_loses_the_value_first_then_the_key_then_its_headers() -> None:
    made = [WHOLE]
    while (less := smaller(made[-1])) is not None:
        made.append(less)
    value, key, own, bare = made[1:]
    assert (value.key, value.value) == (WHOLE.key, None)
    assert (value.why["value.format"], value.why["value.size"]) == (b"omitted", b"400")
    assert (key.key, key.why["key.size"]) == (None, b"50")
    assert (own.own, own.why["headers.omitted"]) == ((), b"1")
    assert "exception.message" not in bare.why


def limited(max_request_size: int, **settings: object) -> ProducerConfig:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return producer_config({"bootstrap.servers": "localhost:1", "max.request.size": max_request_size} | given)


@given(st.integers(0, 2000))
def test_a_letter_keeps_what_fits(limit: int) -> None:
    found = fitted(WHOLE, PREFIX, limited(limit))
    if found is None:
        smallest = WHOLE
        while (less := smaller(smallest)) is not None:
            smallest = less
        assert smallest.size(PREFIX) > limit
        return
    assert found.size(PREFIX) <= limit
    if found != WHOLE:
        assert WHOLE.size(PREFIX) > limit


@given(
    st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=9))),
)
def test_the_size_of_a_letter_is_no_less_than_the_producers(
    key: bytes, value: bytes | None, own: list[tuple[bytes, bytes]]
) -> None:
    names = [(b"n" + name.hex().encode(), data) for name, data in own]
    made = Letter(key, value, tuple(names), {"reason": b"x"}, 5)
    (bound,) = size_upper_bounds(columns_of([made], PREFIX))
    assert made.size(PREFIX) >= int(bound) + 61


def test_the_limit_is_also_that_of_the_memory() -> None:
    large = replace(WHOLE, value=b"v" * 40_000)
    assert fitted(large, PREFIX, limited(10**6, buffer_memory=49_152)) == large
    found = fitted(large, PREFIX, limited(10**6, buffer_memory=40_000, batch_size=100, compression_type="gzip"))
    assert found is not None
    assert found.value is None


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_letter_keeps_a_value_that_fits_when_it_is_compressed(codec: str) -> None:
    large = replace(WHOLE, value=b"v" * 100_000)
    assert fitted(large, PREFIX, limited(10_000, compression_type=codec)) == large
    noise = replace(WHOLE, value=random.Random(1).randbytes(100_000))
    found = fitted(noise, PREFIX, limited(10_000, compression_type=codec))
    assert found is not None
    assert (found.key, found.value) == (WHOLE.key, None)


def test_a_letter_whose_timestamp_brokers_refuse_gets_the_time_of_writing() -> None:
    error = BrokerError("no", error="INVALID_TIMESTAMP")
    (sent,) = letters_from(columns_of([letter(timestamp=np.array([5]))], PREFIX), PREFIX)
    found = amended(sent, error)
    assert found is not None
    assert (found.timestamp, found.why["timestamp"]) == (NO_TIMESTAMP, b"5")
    assert amended(found, error) is None


@pytest.mark.parametrize("prefix", [PREFIX, "why-", "ü."])
def test_the_prefix_is_an_option(prefix: str) -> None:
    refused = RefusedRows(RecordColumns(1), ["events"], [RecordError("no")], None)
    (made,) = letters_of(refused, ["record"], PLACE, prefix)
    (headers,) = columns_of([made], prefix).headers.to_pylist()  # type: ignore[union-attr]
    assert all(each["key"].startswith(prefix) for each in headers)
    assert json.loads(b'{"a":"%s"}' % headers[0]["value"]) == {"a": "events"}
