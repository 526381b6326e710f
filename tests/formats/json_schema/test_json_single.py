"""Single values are written like those of columns, and validated; tasks write columns without jsonschema."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections import namedtuple
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.formats.json_schema.json_document import DIALECTS
from spark_kafka_sink.formats.json_schema.json_schema_format import JsonSchemaFormat
from spark_kafka_sink.formats.json_schema.json_single import Validator
from spark_kafka_sink.verify.json_values import validated_json
from tests.every import every
from tests.examples import examples
from tests.planted_secrets import MARK

JSON_SCHEMA = JsonSchemaFormat()
ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "day": {"$ref": "days.json"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id"],
    "additionalProperties": False,
}
DAYS = {"type": "string", "format": "date"}


def encoded(value: Any) -> bytes | None:
    texts = JSON_SCHEMA.prepared(json.dumps(ORDER), {"days.json": json.dumps(DAYS)}, None)
    return JSON_SCHEMA.load(*texts).encode_value(value, b"\0\0\0\0\1")


def test_values_are_written_as_json_behind_the_prefix() -> None:
    row = namedtuple("row", ["id", "day"])
    assert encoded({"id": 1, "day": datetime.date(2026, 1, 2)}) == b'\0\0\0\0\1{"id":1,"day":"2026-01-02"}'
    assert encoded(row(2, None)) == b'\0\0\0\0\1{"id":2}'
    assert encoded({"id": Decimal("2.0")}) == b'\0\0\0\0\1{"id":2.0}'
    assert encoded(None) is None


def refused(schema: Any, value: Any, **named: Any) -> str:
    """Returns the text of the error about a value."""
    texts = {name.replace("__", "."): json.dumps(one) for name, one in named.items()}
    with pytest.raises(SerializationError) as caught:
        JSON_SCHEMA.load(*JSON_SCHEMA.prepared(json.dumps(schema), texts, None)).encode_value(value)
    assert MARK not in f"{caught.value} {caught.value.facts}"
    path = caught.value.facts["path"]
    assert caught.value.message.startswith(f"{path or 'the value'}: ")
    return caught.value.message


@every(
    "value, expected",
    [
        ({"id": MARK}, "id: it is a string, must be integer (JSON Schema at #/properties/id/type)"),
        ({"id": 1, "tags": ["a", None, MARK]}, "tags[1]: it is null, and the schema does not allow null (JSON Schema at #/"),
        ({"id": 1, "day": "2026-02-30"}, "day: it does not have the format date (JSON Schema at #/properties/day/format)"),
        ({MARK: 1, "id": 1}, "the value: it has a property that the schema does not name (JSON Schema at #/additional"),
        ({"tags": []}, "id: it is missing, and the schema requires it (JSON Schema at #/required)"),
        ({"id": None}, "id: it is null, and the schema does not allow null (JSON Schema at #/properties/id/type)"),
        ([MARK], "the value: it is an array, must be object (JSON Schema at #/type)"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_its_path_and_the_keyword(value: Any, expected: str) -> None:
    assert refused(ORDER, value, days__json=DAYS).startswith(expected)


@every(
    "schema, value, expected",
    [
        ({"minimum": 2.5}, 1, "it is below 2.5"),
        ({"maximum": 3}, 4, "it is above 3"),
        ({"exclusiveMinimum": 3}, 3, "it is not above 3"),
        ({"exclusiveMaximum": 3}, 3, "it is not below 3"),
        ({"multipleOf": 3}, 4, "it is not a multiple of 3"),
        ({"minLength": 99}, MARK, "it has fewer than 99 characters"),
        ({"maxLength": 2}, MARK, "it has more than 2 characters"),
        ({"minItems": 2}, [MARK], "it has fewer than 2 elements"),
        ({"maxItems": 1}, [MARK, 1], "it has more than 1 elements"),
        ({"minProperties": 2}, {MARK: 1}, "it has fewer than 2 properties"),
        ({"maxProperties": 1}, {MARK: 1, "b": 2}, "it has more than 1 properties"),
        ({"pattern": "^[0-9]$"}, MARK, "it does not match the pattern ^[0-9]$"),
        ({"enum": ["eu", "us"]}, MARK, 'it is not one of ["eu", "us"]'),
        ({"const": "eu"}, MARK, "it is not eu"),
        ({"type": ["integer", "null"]}, MARK, "it is a string, must be integer or null"),
        ({"uniqueItems": True}, [MARK, MARK], "it does not fit the keyword uniqueItems true"),
        ({"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 2}]}, MARK, "it has more than 2 characters"),
    ],
)
def test_the_limit_of_the_schema_is_named(schema: Any, value: Any, expected: str) -> None:
    whole = {"type": "object", "properties": {"a/b": schema}}
    assert refused(whole, {"a/b": value}).startswith(f"a/b: {expected} (JSON Schema at #/properties/a~1b")


def test_a_schema_that_allows_nothing_is_named() -> None:
    assert refused(False, MARK) == "the value: the schema allows no value (JSON Schema at #)"


@every("fragment", ["", "#"])
@every("dialect", sorted(DIALECTS))
def test_each_spelling_of_a_draft_that_columns_accept_is_the_draft(dialect: str, fragment: str) -> None:
    """A schema under an `$id` is found by a reference only if the draft's own keyword has it."""
    keyword = "id" if "draft-04" in dialect else "$id"
    schema = {"$schema": dialect + fragment, keyword: "http://a/b", "properties": {"a": {"$ref": "other"}, "b": {"$ref": "b#/c"}}}
    schema["c"] = {"type": "string", "format": "date"}
    other = {"$schema": dialect + fragment, "minimum": 1}
    if "draft-04" in dialect:
        other["exclusiveMinimum"] = True
    else:
        other["exclusiveMinimum"] = 1
    loaded = JSON_SCHEMA.load(*JSON_SCHEMA.prepared(json.dumps(schema), {"http://a/other": json.dumps(other)}, None))
    assert loaded.encode_value({"a": 2, "b": "2026-01-02"}) == b'{"a":2,"b":"2026-01-02"}'
    with pytest.raises(SerializationError, match="it is not above 1"):
        loaded.encode_value({"a": 1})
    with pytest.raises(SerializationError, match="it does not have the format date"):
        loaded.encode_value({"b": "x"})


def doubled(levels: int, keyword: str = "allOf") -> dict[str, Any]:
    """Returns a schema that refers twice to the next one, and that again, until one of arrays of whole numbers."""
    named: Any = {f"s{level}": {keyword: [{"$ref": f"#/$defs/s{level + 1}"}] * 2} for level in range(levels)}
    item = {"type": "integer"}
    last = {"type": "array", "items": {"$ref": "#/$defs/item"}}
    return {"$ref": "#/$defs/s0", "$defs": {**named, f"s{levels}": last, "item": item}}


@pytest.mark.parametrize(
    ("keyword", "problem"),
    [
        ("allOf", "[1]: it is a string, must be integer (JSON Schema at #/allOf/0/"),
        ("anyOf", "the value: it does not fit the key"),
    ],
)
def test_references_that_double_take_no_exponential_time(keyword: str, problem: str) -> None:
    schema = doubled(60, keyword)
    loaded = JSON_SCHEMA.load(*JSON_SCHEMA.prepared(json.dumps(schema), {}, None))
    assert loaded.encode_value([1, 1]) == b"[1,1]"
    assert refused(schema, [1, MARK]).startswith(problem)
    assert loaded.encode_value([2]) == b"[2]"
    assert validated_json(json.dumps(schema), {})(b"[1, 2]") == [1, 2]


def test_a_dynamic_reference_leads_where_the_references_before_it_say() -> None:
    text = {"$id": "http://a/text", "$dynamicAnchor": "x", "$ref": "list", "type": ["array", "string"]}
    number = {"$id": "http://a/number", "$dynamicAnchor": "x", "$ref": "list", "type": ["array", "integer"]}
    items = {"$id": "http://a/list", "$dynamicAnchor": "x", "items": {"$dynamicRef": "#x"}}
    schema = {"anyOf": [{"$ref": "http://a/text"}, {"$ref": "http://a/number"}], "$defs": {"a": text, "b": number, "c": items}}
    loaded = JSON_SCHEMA.load(*JSON_SCHEMA.prepared(json.dumps(schema), {}, None))
    assert loaded.encode_value(["x"]) == b'["x"]'
    assert loaded.encode_value([1]) == b"[1]"
    with pytest.raises(SerializationError):
        loaded.encode_value([1.5])


REFERENCE = st.sampled_from(["a", "b", "c"]).map(lambda name: {"$ref": f"#/$defs/{name}"})
LEAF = st.sampled_from([{"type": "integer"}, {"type": "array"}, {"minimum": 2}, {"maxItems": 1}, True, False])
INNER = st.recursive(
    LEAF | REFERENCE,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).flatmap(
            lambda some: st.sampled_from([{key: some} for key in ("allOf", "anyOf", "oneOf")])
        )
        | inner.map(lambda one: {"not": one})
        | inner.map(lambda one: {"items": one})
    ),
    max_leaves=6,
)
VALUES = st.recursive(st.integers(0, 3), lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@settings(max_examples=examples(100))
@given(INNER, INNER, LEAF, VALUES)
def test_a_value_is_valid_as_the_library_judges_it_without_merging(root: Any, a: Any, b: Any, value: Any) -> None:
    """The definition a may refer to b and c, and those to nothing, so that no value leads into a circle."""
    text = json.dumps({"allOf": [root, root], "$defs": {"a": a, "b": b, "c": {"allOf": [{"$ref": "#/$defs/b"}] * 2}}})
    if '"#/$defs/a"' in json.dumps(a):
        return
    schema = json.loads(text)
    wanted = sorted(str(list(one.absolute_path)) for one in Draft202012Validator(schema).iter_errors(value))
    found = sorted(str(list(one.absolute_path)) for one in Validator(schema, ()).errors(value))
    assert set(found) <= set(wanted)
    assert bool(found) == bool(wanted)


def test_a_key_that_the_schema_does_not_name_is_shown_by_its_position() -> None:
    schema = {"additionalProperties": {"properties": {"x": {"type": "array", "items": {"minimum": 2}}}}}
    where = "#/additionalProperties/properties/x/items/minimum"
    assert refused(schema, {"a": {}, MARK: {"x": [2, 1]}}) == f"[1].x[1]: it is below 2 (JSON Schema at {where})"


@every("dialect", ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#", None])
@every(
    "name, good, bad",
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("date-time", "2024-02-29T01:02:03+01:00", "2024-02-30T01:02:03Z"),
        ("time", "01:02:03.5Z", "01:02:03"),
        ("email", "a.b@example.com", "a@b@c"),
        ("ipv4", "127.0.0.1", "127.0.0.1\n"),
        ("uuid", "01234567-89ab-cdef-fedc-ba9876543210", "0123456789abcdeffedcba9876543210"),
        ("phone-number", "x", None),
    ],
)
def test_a_format_is_checked_without_optional_libraries(dialect: str | None, name: str, good: str, bad: str | None) -> None:
    schema = {"properties": {"a": {"format": name}}} | ({"$schema": dialect} if dialect else {})
    loaded = JSON_SCHEMA.load(json.dumps(schema), {})
    assert loaded.encode_value({"a": good}) is not None
    assert loaded.encode_value({"a": 1}) == b'{"a":1}'
    if bad is not None:
        assert refused(schema, {"a": bad}).startswith(f"a: it does not have the format {name}")


@every(
    "schema, place",
    [
        ({"properties": {"a/b": {"type": ["string", "null"], "format": "uri"}}}, "uri at #/properties/a~1b"),
        ({"items": {"anyOf": [True, {"$ref": "#/$defs/x"}]}, "$defs": {"x": {"format": "hostname"}}}, "hostname at #/$defs/x"),
        ({"$ref": "other.json#/definitions/x"}, "iri at other.json#/definitions/x/additionalProperties"),
        ({"properties": {"a": {"$ref": "#"}}, "patternProperties": {"^x": {"format": "regex"}}}, "regex at #/patternProp"),
        (
            {
                "properties": {"format": {"type": "string"}, "b": {"type": "integer", "format": "uri"}},
                "default": {"format": "uri"},
            },
            None,
        ),
        ({"definitions": {"unused": {"format": "uri"}}}, None),
    ],
)
def test_a_format_that_cannot_be_checked_is_refused_with_the_first_value(schema: Any, place: str | None) -> None:
    other = {"definitions": {"x": {"additionalProperties": {"format": "iri"}}, "unused": {"format": "uri"}}}
    loaded = JSON_SCHEMA.load(*JSON_SCHEMA.prepared(json.dumps(schema), {"other.json": json.dumps(other)}, None))
    if place is None:
        assert loaded.encode_value({}) == b"{}"
        return
    with pytest.raises(SchemaError, match="the JSON Schema has formats that are not supported") as caught:
        loaded.encode_value({})
    assert place in caught.value.message


@every(
    "schema, problem",
    [
        ({"properties": {"a": {"pattern": "(?=x)"}}}, "the pattern (?=x) at #/properties/a: groups that begin with (?"),
        ({"patternProperties": {r"^\p{L}": {}}}, r"the pattern ^\p{L} at #: \p is not supported"),
        (
            {"patternProperties": {"^a": {}}, "unevaluatedProperties": False},
            "unevaluatedProperties beside patternProperties",
        ),
    ],
)
@every("dialect", ["http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2020-12/schema"])
def test_a_pattern_that_columns_do_not_support_is_refused(schema: Any, problem: str, dialect: str) -> None:
    loaded = JSON_SCHEMA.load(json.dumps({"$schema": dialect, **schema}), {})
    with pytest.raises(SchemaError) as caught:
        loaded.encode_value({})
    assert problem in caught.value.message


@every("text, is_valid", [("12345", True), ("1234x", False), ("\u0661\u0662\u0663\u0664\u0665", False), ("12345\n", False)])
def test_a_pattern_means_the_same_for_single_values_and_columns(text: str, is_valid: bool) -> None:
    pattern = r"^\d{5}$"
    named = {"type": "object", "patternProperties": {pattern: {}}, "additionalProperties": False}
    for schema, value in (({"properties": {"a": {"type": "string", "pattern": pattern}}}, {"a": text}), (named, {text: 1})):
        loaded = JSON_SCHEMA.load(json.dumps(schema), {})
        if is_valid:
            assert loaded.encode_value(value) is not None
        else:
            with pytest.raises(SerializationError):
                loaded.encode_value(value)
    column = pa.array([{"a": text}], pa.struct([("a", pa.string())]))
    plan = JSON_SCHEMA.load(json.dumps({"properties": {"a": {"type": "string", "pattern": pattern}}}), {}).fit(column.type)
    if is_valid:
        plan.encode(column)
    else:
        with pytest.raises(SerializationError):
            plan.encode(column)


@settings(max_examples=examples(100))
@given(
    st.sampled_from(["date", "date-time", "time", "email", "ipv4", "uuid"]),
    st.from_regex(r"[0-9]{4}-[01][0-9]-[0-3][0-9](T[012][0-9]:[0-6][0-9]:[0-6][0-9](\.\d{1,2})?(Z|z|[+-][012]\d:[0-6]\d))?\n?")
    | st.from_regex(r"[012][0-9]:[0-6][0-9]:[0-6][0-9](\.\d{1,2})?(Z|z|[+-][012]\d:[0-6]\d)?")
    | st.from_regex(r"([0-9]{1,3}\.){3}[0-9]{1,3}")
    | st.text(st.sampled_from("a0.@-é٣\n"), max_size=6)
    | st.uuids().map(str),
)
def test_single_values_and_columns_agree_on_formats(name: str, text: str) -> None:
    loaded = JSON_SCHEMA.load(json.dumps({"format": name}), {})
    outcomes = []
    for write in (lambda: loaded.encode_value(text), lambda: loaded.fit(pa.string()).encode(pa.array([text])).to_pylist()[0]):
        try:
            outcomes.append(write())
        except SerializationError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("depth", [450, 100_000])
def test_a_value_that_is_nested_too_deeply_is_refused(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    with pytest.raises(SerializationError, match="nested too deeply"):
        JSON_SCHEMA.load('{"items": {"$ref": "#"}}', {}).encode_value(value)


WITHOUT_LIBRARY = """
import sys
for name in ("jsonschema", "referencing", "rpds"):
    sys.modules[name] = None
import pyarrow as pa
from spark_kafka_sink.errors import InstallationError
from spark_kafka_sink.formats.json_schema.json_schema_format import JsonSchemaFormat

schema = '{"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}, "required": ["a"]}'
loaded = JsonSchemaFormat().load(schema, {})
column = pa.array([{"a": "x"}])
print(loaded.fit(column.type).encode(column).to_pylist())
try:
    JsonSchemaFormat().prepared(schema, {}, None)
except InstallationError as error:
    print(error.message)
"""


def test_columns_are_written_and_checked_without_jsonschema() -> None:
    found = subprocess.run([sys.executable, "-c", WITHOUT_LIBRARY], capture_output=True, text=True, timeout=120, check=True)
    written, refused = found.stdout.splitlines()
    assert written == """[b'{"a":"x"}']"""
    assert (
        refused
        == "format json-schema needs jsonschema, and jsonschema is not installed: pip install 'spark-kafka-sink[json-schema]'"
    )
