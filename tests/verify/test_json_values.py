"""JSON keeps its digits, is compared with a schema by exact numbers, and is refused where readers differ."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from spark_kafka_sink.formats.json_schema.json_document import DIALECTS
from spark_kafka_sink.verify.json_values import json_value, validated_json
from spark_kafka_sink.verify.record_errors import UndecodableError


def test_every_digit_is_kept() -> None:
    value = json_value(b'\xef\xbb\xbf{"a": 0.10000000000000000001, "b": [1e-2, 12345678901234567890], "c": "\\ud83d\\ude00"}')
    assert value == {"a": Decimal("0.10000000000000000001"), "b": [Decimal("0.01"), 12345678901234567890], "c": "\U0001f600"}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"a": NaN}', "NaN is not a JSON value"),
        (b"[Infinity]", "Infinity is not a JSON value"),
        (b"-Infinity", "-Infinity is not a JSON value"),
        (b'{"b": {"a": 1, "a": 1}}', "an object has the name 'a' twice"),
        (b'"\\ud800"', "it has half of a surrogate pair"),
        (b'{"\\udc00": 1}', "it has half of a surrogate pair"),
        (b'"\xed\xa0\x80"', "'utf-8' codec can't decode byte 0xed"),
        ('"a"'.encode("utf-16"), "'utf-8' codec can't decode byte 0xff"),
        (b'{"a": 1', "Expecting ',' delimiter"),
        (b"1" * 5000, "Exceeds the limit (4300 digits)"),
        (b"1e99999999999999999999", "InvalidOperation"),
        (b"[" * 100_000, "maximum recursion depth exceeded"),
    ],
    ids=lambda one: str(one)[:30],
)
def test_json_that_readers_do_not_agree_on_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(UndecodableError) as error:
        json_value(data)
    assert str(error.value).startswith("is not valid JSON: ")
    assert problem in str(error.value)
    assert str(error.value).encode()


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"enum": [0.1]}, ["0.1", "0.10", "1e-1"], ["0.2", "0.1000000000000000055511151231257827"]),
        ({"const": 0.1}, ["0.1"], ["0.10000000000000001"]),
        ({"minimum": 0.1}, ["0.1", "0.11", "1"], ["0.09999999999999999999"]),
        ({"exclusiveMaximum": 0.1}, ["0.09999999999999999999"], ["0.1"]),
        ({"multipleOf": 0.1}, ["0.1", "0.3", "-0.7", "1e300", "3"], ["0.30000000000000004", "0.05"]),
        ({"multipleOf": 2}, ["4", "4.0"], ["4.5"]),
        ({"type": "integer"}, ["5", "5.0", "5e3", "-0.0"], ["5.1", '"5"', "true"]),
        ({"type": "number"}, ["5", "5.1"], ["true", "null"]),
        ({"uniqueItems": True}, ["[0.1, 0.2, 1]", '[1, "1", true, [1], [true], {}]'], ["[1, 1.0]", '[{"a": [1]}, {"a": [1.0]}]']),
        ({"type": "string", "minLength": 2.0}, ['"ab"'], ['"a"']),
        ({"properties": {"a": {"$ref": "other"}}}, ['{"a": 5.0}', '{"a": 1.5}'], ['{"a": 2.5}', '{"a": 0.7}']),
    ],
    ids=str,
)
@pytest.mark.parametrize("draft", ["http://json-schema.org/draft-07/schema#", None])
def test_numbers_are_compared_with_a_schema_exactly(schema: Any, good: list[str], bad: list[str], draft: str | None) -> None:
    named = {"$schema": "http://json-schema.org/draft-07/schema#", "anyOf": [{"type": "integer"}, {"enum": [1.5]}]}
    text = json.dumps(schema if draft is None else {"$schema": draft, **schema})
    parsed = validated_json(text, {"other": json.dumps(named)})
    for one in good:
        assert parsed(one.encode()) == json.loads(one, parse_float=Decimal)
    for one in bad:
        with pytest.raises(UndecodableError):
            parsed(one.encode())


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, '{"a": "' + "a" * 10_000 + '!"}'),
        ({"patternProperties": {"^(a+)+$": False}, "additionalProperties": False}, '{"' + "a" * 10_000 + '!": 1}'),
        ({"uniqueItems": True}, "[" + ",".join(f'{{"a": {number}}}' for number in range(50_000)) + ", {}, {}]"),
        ({}, "{" + ",".join(f'"{number}": 1' for number in range(200_000)) + ', "199999": 1}'),
    ],
    ids=["pattern", "names", "unique", "twice"],
)
def test_what_a_stranger_wrote_takes_linear_time(schema: Any, data: str) -> None:
    """With the engine of Python, or comparisons of all with all, each would take an hour or never end."""
    with pytest.raises(UndecodableError):
        validated_json(json.dumps(schema), {})(data.encode())


def test_a_pattern_that_is_not_supported_keeps_nobody_from_reading() -> None:
    assert validated_json('{"patternProperties": {"(?=x)": {"pattern": "(?=y)"}}}', {})(b'{"a": "b"}') == {"a": "b"}


def test_a_value_that_does_not_fit_is_named_by_its_path() -> None:
    parsed = validated_json('{"properties": {"a": {"items": {"maximum": 0.5}}}}', {})
    with pytest.raises(UndecodableError, match=r"^a\[1\]: 0\.75 is greater than the maximum of 0\.5$"):
        parsed(b'{"a": [0.5, 0.75]}')


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_each_spelling_of_a_draft_that_the_sink_accepts_is_the_draft(dialect: str) -> None:
    exclusive = True if "draft-04" in dialect else 1
    parsed = validated_json(json.dumps({"$schema": dialect, "minimum": 1, "exclusiveMinimum": exclusive}), {})
    assert parsed(b"2") == 2
    with pytest.raises(UndecodableError):
        parsed(b"1")
