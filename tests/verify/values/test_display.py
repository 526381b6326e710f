"""Decoded values become JSON that is valid and loses nothing."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import struct_pb2, timestamp_pb2

from spark_kafka_sink.verify.values.display import as_json, plain
from spark_kafka_sink.verify.values.json_values import json_value

NUMBERS = '{"id": 1, "price": 0.12345678901234567890, "tags": [1.50, -2E+400, true, null]}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (json_value(NUMBERS.encode()), NUMBERS),
        ({"x": [float("nan"), float("inf"), -float("inf"), 0.1]}, '{"x": ["NaN", "Infinity", "-Infinity", 0.1]}'),
        ({1: (Decimal("1.50"), uuid.UUID(int=1))}, '{"1": ["1.50", "00000000-0000-0000-0000-000000000001"]}'),
        ([b"a", b"\xff", datetime.date(2026, 1, 2)], '["a", "0xff", "2026-01-02"]'),
        (struct_pb2.Value(string_value="ü\n"), '"ü\\n"'),
        (timestamp_pb2.Timestamp(seconds=1), '"1970-01-01T00:00:01Z"'),
    ],
    ids=str,
)
def test_values_are_shown_as_json(value: Any, text: str) -> None:
    assert as_json(plain(value)) == text


def test_programs_get_ascii() -> None:
    assert as_json(plain({"ü": "\u202e"}), ascii_only=True) == '{"\\u00fc": "\\u202e"}'


def test_a_time_that_protobufs_json_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="Timestamp"):
        plain(timestamp_pb2.Timestamp(seconds=10**15))
