"""Which columns a JSON Schema fits: what is judged from types, what is checked by column, and what is refused."""

from __future__ import annotations

import datetime
import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.formats.json_schema.json_schema_format import JsonSchemaFormat
from tests.every import every

JSON_SCHEMA = JsonSchemaFormat()
UTC = datetime.UTC


def written(schema: Any, column: pa.Array, **named: Any) -> list[bytes | None]:
    texts = {name.replace("__", "."): json.dumps(one) for name, one in named.items()}
    found: list[bytes | None] = JSON_SCHEMA.load(json.dumps(schema), texts).fit(column.type).encode(column).to_pylist()
    return found


def misfits(schema: Any, kind: pa.DataType, **named: Any) -> list[tuple[str, str, str, str]]:
    with pytest.raises(SchemaError) as caught:
        written(schema, pa.nulls(1, kind), **named)
    assert all(one[3] in caught.value.message for one in caught.value.facts["misfits"])
    return list(caught.value.facts["misfits"])


def problem(schema: Any, column: pa.Array) -> str:
    """Returns the text of the error about a row."""
    with pytest.raises(SerializationError) as caught:
        written(schema, column)
    row, path = caught.value.facts["row"], caught.value.facts["path"]
    assert caught.value.message.startswith(f"row {row}: {path}: " if path else f"row {row}: ")
    return caught.value.message


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
IDS = pa.struct([pa.field("id", pa.int64())])


def test_columns_are_written_as_json_behind_the_prefix() -> None:
    column = pa.array([{"id": 1}, None, {"id": None}], IDS)
    plan = JSON_SCHEMA.load(json.dumps(of(id=INTEGER)), {}).fit(column.type)
    assert plan.encode(column, b"\0\0\0\0\7").to_pylist() == [b'\0\0\0\0\7{"id":1}', None, b"\0\0\0\0\7{}"]
    assert plan.encode(column.slice(2)).to_pylist() == [b"{}"]
    other = pa.array([{"id": 1}], pa.struct([pa.field("id", pa.int32(), nullable=False)]))
    assert plan.encode(other).to_pylist() == [b'{"id":1}']


def test_all_misfits_are_in_one_error() -> None:
    schema = {**of(id=INTEGER, tags={"type": "array", "items": TEXT}, name=TEXT, inner=of(x=TEXT)), "required": ["name", "id"]}
    kind = pa.struct(
        [("id", pa.string()), ("tags", pa.list_(pa.int8())), ("extra", pa.int8()), ("inner", pa.struct([("x", pa.bool_())]))]
    )
    assert misfits({**schema, "additionalProperties": False}, kind) == [
        ("id", "string", "integer", "it is written as a string"),
        ("tags[]", "int8", "string", "it is written as an integer"),
        ("extra", "int8", "missing", "drop the column, or add it to the schema"),
        ("inner.x", "bool", "string", "it is written as a boolean"),
        ("name", "missing", "string", "the schema requires it: add the column"),
    ]
    with pytest.raises(
        SchemaError, match=r"^\[SCHEMA\] 1 field of the JSON Schema and the columns do not fit:\n  id: column bool, "
    ):
        written(of(id=INTEGER), pa.array([{"id": True}]))


def test_names_that_differ_in_case_are_named() -> None:
    kind = pa.struct([("ID", pa.int64())])
    reason = "the column ID differs in case: rename it to id"
    assert misfits(of(id=INTEGER), kind) == [("id", "missing", "integer", reason)]
    assert misfits({**of(id=INTEGER), "additionalProperties": False}, kind) == [("id", "missing", "integer", reason)]
    both = pa.struct([("ID", pa.int64()), ("id", pa.int64())])
    assert [one[0] for one in misfits({**of(id=INTEGER), "additionalProperties": False}, both)] == ["ID"]


@pytest.mark.parametrize(
    ("schema", "column", "expected"),
    [
        ({**of(a=INTEGER), "required": ["a"]}, [{"a": 1}, {"a": None}], "row 1: a: it is null, and the schema requires it"),
        (of(a={"type": "array", "items": INTEGER}), [{"a": [1]}, {"a": [2, None]}], "row 1: a[1]: it is null, and the schema"),
        (
            of(a=of(b={"type": "array", "items": {**of(c=TEXT), "required": ["c"]}})),
            [{"a": {"b": []}}, {"a": {"b": [{"c": "x"}, {"c": None}]}}],
            "row 1: a.b[1].c: it is null, and the schema requires it",
        ),
    ],
)
def test_a_null_that_the_schema_does_not_allow_is_named_at_every_depth(schema: Any, column: list[Any], expected: str) -> None:
    assert problem(schema, pa.array(column)).startswith(expected)


def test_the_first_bad_row_is_named_whichever_field_it_is_in() -> None:
    schema = of(a={"maximum": 1}, b={"maximum": 1}, c={"type": "number"})
    rows = [(1, 1, 1.0), (1, 2, 1.0), (1, 3, float("nan")), (2, 1, 1.0)]
    column = pa.array([{"a": a, "b": b, "c": c} for a, b, c in rows])
    assert problem(schema, column) == "row 1: b: it is above 1"


def test_a_field_of_a_null_struct_is_not_missing() -> None:
    schema = of(a={**of(b=INTEGER), "required": ["b"]})
    assert written(schema, pa.array([{"a": {"b": 1}}, {"a": None}])) == [b'{"a":{"b":1}}', b"{}"]


@every(
    "schema, allowed",
    [
        ({"anyOf": [{"anyOf": [TEXT, INTEGER]}, {"type": "null"}]}, True),
        ({"anyOf": [{"anyOf": [TEXT, {"type": "null"}]}, INTEGER]}, True),
        ({"anyOf": [{"oneOf": [{"type": ["string", "null"]}, {"type": "null"}]}, INTEGER]}, False),
        ({"anyOf": [{"type": ["string", "null"]}, {"type": ["integer", "null"]}]}, True),
        ({"oneOf": [{"type": ["string", "null"]}, {"type": ["integer", "null"]}]}, False),
        ({"oneOf": [{"anyOf": [TEXT, {"type": "null"}]}, {"enum": [1, None]}]}, False),
        ({"oneOf": [{"anyOf": [TEXT, {"type": "null"}]}, {"enum": [1]}]}, True),
        ({"anyOf": [TEXT, INTEGER]}, False),
        ({"allOf": [{"anyOf": [TEXT, {"type": "null"}]}, {"oneOf": [{"type": "null"}, TEXT]}]}, True),
        ({"allOf": [{"anyOf": [TEXT, {"type": "null"}]}, TEXT]}, False),
        ({"$ref": "#/definitions/text"}, True),
        ({"$ref": "#/definitions/text", "type": ["string"]}, False),
        ({"anyOf": [{"$ref": "#/definitions/loop"}, {"type": ["string", "null"]}]}, None),
        ({"enum": ["x", None]}, True),
        ({"const": "x"}, False),
        (True, True),
    ],
)
def test_a_null_element_is_allowed_as_validators_do(schema: Any, allowed: bool | None) -> None:
    definitions = {"text": {"anyOf": [TEXT, {"type": "null"}]}, "loop": {"anyOf": [{"$ref": "#/definitions/loop"}]}}
    whole = {"type": "array", "items": schema, "definitions": definitions}
    if allowed is None:
        assert misfits(whole, pa.list_(TEXTS))
        return
    assert written(whole, pa.array([["x"]])) == [b'["x"]']
    assert Draft7Validator(whole).is_valid([None]) or not allowed
    assert Draft202012Validator(whole).is_valid([None]) is allowed
    if allowed:
        assert written(whole, pa.array([["x", None]])) == [b'["x",null]']
    else:
        assert problem(whole, pa.array([["x"], [None]])) == "row 1: [0]: it is null, and the schema does not allow null"


def test_a_column_fits_the_one_branch_that_nested_choices_leave() -> None:
    texts = {"anyOf": [TEXT, {"type": "null"}]}
    assert written({"anyOf": [texts, INTEGER]}, pa.array([1])) == [b"1"]
    assert written({"oneOf": [{"$ref": "#/definitions/texts"}, INTEGER], "definitions": {"texts": texts}}, pa.array([1])) == [
        b"1"
    ]
    with pytest.raises(SchemaError, match="has several schemas that may fit"):
        written({"anyOf": [texts, {"maxLength": 3}]}, pa.array(["x"]))


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_double_at_each_level_take_no_time(keyword: str) -> None:
    levels = 45
    twice = {f"d{level}": {"allOf": [{"$ref": f"#/definitions/d{level + 1}"}] * 2} for level in range(levels)}
    twice |= {f"x{level}": {keyword: [{"$ref": f"#/definitions/x{level + 1}"}] * 2} for level in range(levels)}
    definitions = {**twice, f"d{levels}": {"type": ["integer", "null"], "maximum": 1}, f"x{levels}": TEXT}
    choice = {"anyOf": [{"$ref": "#/definitions/x0"}, {"$ref": "#/definitions/d0"}]}
    schema = {"type": "array", "items": choice, "definitions": definitions}
    assert written(schema, pa.array([[1, 0, None]])) == [b"[1,0,null]"]
    assert problem(schema, pa.array([[1], [0, 2]])) == "row 1: [1]: it is above 1"


def test_columns_whose_joined_names_are_the_same_are_both_checked() -> None:
    small = {"$ref": "#/definitions/small"}
    schema = {**of(**{"a.b": small, "a": of(b=small)}), "definitions": {"small": {"maximum": 1}}}
    assert problem(schema, pa.array([{"a.b": 1, "a": {"b": 2}}])) == "row 0: a.b: it is above 1"
    assert problem(schema, pa.array([{"a.b": 2, "a": {"b": 1}}])) == "row 0: a.b: it is above 1"


def test_values_of_maps_are_checked() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    schema = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
    assert written(schema, pa.array([[("k", 1)], []], kind)) == [b'{"k":1}', b"{}"]
    assert problem(schema, pa.array([[], [("k", 1), ("l", -1)]], kind)) == "row 1: [1]: it is below 0"
    assert problem(schema, pa.array([[("k", None)]], kind)) == "row 0: [0]: it is null, and the schema does not allow null"
    named = misfits({**schema, "properties": {"k": INTEGER}}, kind)
    assert named[0][3] == "keyword properties at #/properties names properties, and a map may have any: use a struct"


INT, TEXTS = pa.int32(), pa.string()
AT, DAY = pa.timestamp("us", "UTC"), pa.date32()


@every(
    "schema, kind, good, bad, expected",
    [
        ({"minimum": 0.5}, INT, 1, 0, "it is below 0.5"),
        ({"maximum": 10}, INT, 10, 11, "it is above 10"),
        ({"exclusiveMinimum": 1}, INT, 2, 1, "it is not above 1"),
        ({"exclusiveMaximum": 1}, INT, 0, 1, "it is not below 1"),
        ({"minimum": 3e9}, pa.int64(), 2**32, 1, "it is below 3000000000"),
        ({"maximum": 0.1}, pa.float64(), 0.1, 0.2, "it is above 0.1"),
        ({"maximum": 0.1}, pa.float32(), 0.1, 0.2, "it is above 0.1"),
        ({"exclusiveMinimum": 0.1}, pa.decimal128(4, 2), Decimal("0.11"), Decimal("0.10"), "it is not above 0.1"),
        ({"maximum": 0.1}, pa.decimal128(30, 20), Decimal("0.1"), Decimal("0.10000000000000000001"), "it is above 0.1"),
        ({"minimum": 2**53 + 1}, pa.float64(), 2.0**53 + 2, 2.0**53, "it is below 9007199254740993"),
        ({"multipleOf": 3}, INT, 9, 10, "it is not a multiple of 3"),
        ({"multipleOf": 1000}, pa.int8(), 0, 100, "it is not a multiple of 1000"),
        ({"multipleOf": 128}, pa.int8(), -128, 64, "it is not a multiple of 128"),
        ({"multipleOf": 2**63}, pa.int64(), -(2**63), 2**62, "it is not a multiple of 9223372036854775808"),
        ({"multipleOf": 256}, pa.uint8(), 0, 128, "it is not a multiple of 256"),
        ({"multipleOf": 10**20}, pa.decimal128(18, 0), Decimal(0), Decimal(10**17), "it is not a multiple of 1000"),
        ({"multipleOf": 3}, pa.float64(), 9.0, 9.5, "it is not a multiple of 3"),
        ({"multipleOf": 3}, pa.decimal128(9, 0), Decimal(9), Decimal(10), "it is not a multiple of 3"),
        ({"enum": ["a", "b", None, 1]}, TEXTS, "b", "c", "it is not one of the values that the schema allows"),
        ({"enum": ["a"]}, pa.dictionary(pa.int8(), TEXTS), "a", "c", "it is not one of the values that the schema allows"),
        ({"enum": [0]}, pa.float64(), -0.0, 0.5, "it is not one of the values that the schema allows"),
        ({"const": -0.0}, pa.float32(), 0.0, 1.0, "it is not one of the values that the schema allows"),
        ({"enum": [-0.0, 3]}, pa.decimal128(5, -2), Decimal(0), Decimal(100), "it is not one of the values that the schema"),
        ({"const": -0.0}, INT, 0, 1, "it is not one of the values that the schema allows"),
        ({"const": 1}, INT, 1, 2, "it is not one of the values that the schema allows"),
        ({"const": False}, pa.bool_(), False, True, "it is not one of the values that the schema allows"),
        ({"enum": [0.5]}, pa.decimal128(4, 2), Decimal("0.50"), Decimal("0.51"), "it is not one of the values"),
        ({"const": "2026-01-02"}, DAY, datetime.date(2026, 1, 2), datetime.date(2026, 1, 3), "it is not one of the values"),
        ({"minLength": 2}, TEXTS, "éé", "é", "it has fewer than 2 characters"),
        ({"maxLength": 2}, TEXTS, "日本", "abc", "it has more than 2 characters"),
        ({"minLength": 1, "maxLength": 1}, pa.large_string(), '"', "", "it has fewer than 1 or more than 1 characters"),
        ({"maxLength": 4}, pa.binary(), b"abc", b"abcd", "it has more than 4 characters"),
        ({"minItems": 1}, pa.list_(INT), [1], [], "it has fewer than 1 elements"),
        ({"maxItems": 1}, pa.large_list(INT), [1], [1, 2], "it has more than 1 elements"),
        ({"minProperties": 1}, pa.struct([("a", INT)]), {"a": 1}, {"a": None}, "it has fewer than 1 properties"),
        ({"minProperties": 2}, pa.map_(TEXTS, INT), [("a", 1), ("b", 1)], [("a", 1)], "it has fewer than 2 properties"),
        ({"type": "object"}, pa.map_(TEXTS, INT), [("a", 1), ("b", 1)], [("a", 1), ("a", 1)], "a map has a key twice"),
        ({"pattern": "^a+$"}, TEXTS, "aa", "ab", "it does not match the pattern ^a+$"),
        ({"format": "date"}, TEXTS, "2024-02-29", "2023-02-29", "it does not have the format date"),
        ({"format": "date-time"}, TEXTS, "2024-02-29T01:02:03+01:00", "2024-02-29 01:02:03Z", "it does not have the format"),
        ({"format": "time"}, TEXTS, "01:02:03.5Z", "01:02:03", "it does not have the format time"),
        ({"format": "email"}, TEXTS, "a.b@example.com", "a.b", "it does not have the format email"),
        ({"format": "ipv4"}, TEXTS, "127.0.0.1", "127.0.0.256", "it does not have the format ipv4"),
        (
            {"format": "uuid"},
            TEXTS,
            "01234567-89ab-cdef-fedc-ba9876543210",
            "0123456789abcdeffedcba9876543210",
            "it does not have",
        ),
    ],
)
def test_what_depends_on_values_is_checked_by_column(schema: Any, kind: pa.DataType, good: Any, bad: Any, expected: str) -> None:
    assert len(written(schema, pa.array([None, good, good], kind))) == 3
    assert problem(schema, pa.array([None, good, bad, bad], kind)).startswith(f"row 2: {expected}")
    nested = pa.array([{"a": [good]}, None, {"a": [good, bad]}], pa.struct([("a", pa.list_(kind))]))
    inner = of(a={"type": "array", "items": schema})
    assert problem(inner, nested.slice(1)).startswith(f"row 1: a[1]: {expected}")


def test_dates_beyond_the_years_of_rfc_3339_are_refused() -> None:
    far = pa.array([0, 2_932_897], pa.int32()).cast(pa.date32())
    assert problem({"format": "date"}, far) == "row 1: its year is not from 1 to 9999"
    early = pa.array([0, -(2**62)], pa.int64()).cast(AT)
    assert problem({"format": "date-time"}, early) == "row 1: its year is not from 1 to 9999"


@every(
    "schema, kind",
    [
        (True, INT),
        ({"type": ["integer", "null"]}, INT),
        ({"type": "number"}, pa.decimal128(9, 0)),
        ({"oneOf": [{"type": "null"}, TEXT]}, TEXTS),
        ({"anyOf": [TEXT, INTEGER]}, TEXTS),
        ({"allOf": [TEXT, {"description": "x"}]}, TEXTS),
        ({"minimum": 3}, TEXTS),
        ({"uniqueItems": False, "patternProperties": {}}, pa.list_(INT)),
        ({"type": "string", "contentEncoding": "base64"}, pa.binary()),
        ({"type": "string", "format": "date-time"}, AT),
        ({"type": "string", "format": "uuid"}, pa.uuid()),
        ({"type": "integer", "format": "int64"}, INT),
        ({"type": "string", "format": "phone-number"}, TEXTS),
        ({"format": "date", "pattern": "(?=a)"}, INT),
        ({"title": "t", "default": 1, "examples": [1], "connect.index": 3, "confluent:tags": ["PII"]}, INT),
        ({"type": "string", "contentEncoding": "base64"}, TEXTS),
    ],
)
def test_what_types_alone_decide(schema: Any, kind: pa.DataType) -> None:
    assert written(schema, pa.nulls(2, kind)) == [None, None]


@every(
    "schema, kind, reason",
    [
        ({"if": {}, "then": {}}, INT, "keyword if at #/properties/a/if is not supported"),
        ({"not": {"type": "null"}}, INT, "keyword not at #/properties/a/not is not supported"),
        (
            {"patternProperties": {"^x": {}}},
            pa.struct([]),
            "keyword patternProperties at #/properties/a/patternProperties is not",
        ),
        ({"dependentRequired": {"x": ["y"]}}, pa.struct([]), "keyword dependentRequired at"),
        ({"unevaluatedProperties": False}, pa.struct([]), "keyword unevaluatedProperties at"),
        ({"propertyNames": {"minLength": 1}}, pa.map_(TEXTS, INT), "keyword propertyNames at"),
        ({"uniqueItems": True}, pa.list_(INT), "keyword uniqueItems at"),
        ({"contains": {}}, pa.list_(INT), "keyword contains at"),
        ({"prefixItems": [{}]}, pa.list_(INT), "keyword prefixItems at"),
        ({"items": [{}]}, pa.list_(INT), "keyword items at #/properties/a/items as a list is not supported"),
        ({"oneOf": [TEXT, {"minLength": 3}]}, TEXTS, "keyword oneOf at #/properties/a/oneOf has several schemas that may fit"),
        ({"anyOf": [INTEGER, {"type": "number"}]}, INT, "keyword anyOf at #/properties/a/anyOf has several"),
        ({"oneOf": [INTEGER, {"type": "number"}]}, pa.float64(), "keyword oneOf at #/properties/a/oneOf has several"),
        ({"oneOf": [{"type": "null"}, TEXT]}, INT, "it is written as an integer"),
        ({"multipleOf": 0.01}, pa.decimal128(9, 2), "keyword multipleOf at #/properties/a/multipleOf: only whole numbers"),
        ({"multipleOf": 10}, pa.decimal128(9, 2), "is not supported for this type; cast the column to bigint"),
        ({"enum": [1, None]}, TEXTS, "keyword enum at #/properties/a/enum: none of the values is a string"),
        ({"const": {}}, pa.struct([]), "keyword const at #/properties/a/const: is not supported for an object"),
        ({"format": "uri"}, TEXTS, "keyword format at #/properties/a/format: the format uri is not supported"),
        ({"format": "date-time"}, pa.timestamp("us"), "the format date-time needs a time zone, and the column has none"),
        ({"format": "time"}, pa.time64("us"), "the format time needs a time zone, and the column has none"),
        ({"format": "date"}, AT, "the column is not written in the format date"),
        ({"contentEncoding": "base16"}, pa.binary(), "binary is written in base64"),
        ({"pattern": "(?=a)"}, TEXTS, "keyword pattern at #/properties/a/pattern: groups that begin with (? are not supported"),
        ({"type": "integer"}, pa.float64(), "it is written as a number"),
        ({"type": "integer"}, pa.null(), None),
        ({"type": "string"}, pa.duration("s"), "JSON has no type for it: cast it, for example to string"),
        (True, pa.duration("s"), "JSON has no type for it: cast it, for example to string"),
        (False, INT, "the schema allows no value"),
        (True, pa.map_(INT, INT), "the keys of a map must be string"),
        ({"type": "array", "items": TEXT}, pa.list_(pa.null()), "it is written as null"),
        ({"$id": "http://example.com/x"}, INT, "#/properties/a has an $id of its own, which is not supported"),
        ({"$dynamicRef": "#x"}, INT, "keyword $dynamicRef at #/properties/a/$dynamicRef is not supported"),
        ({"$ref": "#/definitions/none"}, INT, "$ref '#/definitions/none' at #/properties/a: it leads to nothing"),
        (
            {"$ref": "other.json"},
            INT,
            "$ref 'other.json' at #/properties/a: the schema has no reference with the name other.json",
        ),
        ({"$ref": "#name"}, INT, "references to an anchor are not supported"),
        ({"$ref": "#/properties/a"}, INT, "#/properties/a refers to itself"),
    ],
)
def test_what_is_refused_names_the_keyword_and_its_place(schema: Any, kind: pa.DataType, reason: str | None) -> None:
    whole = pa.struct([("a", kind)])
    if reason is None:  # a field that is always null is never written
        assert written(of(a=schema), pa.array([{"a": None}], whole)) == [b"{}"]
        return
    assert any(reason in one[3] for one in misfits(of(a=schema), whole))


def test_references_lead_to_definitions_and_to_other_schemas() -> None:
    column = pa.array([{"id": 1, "next": {"id": 2, "next": None}}])
    recursive = {**of(id={"$ref": "#/$defs/a~1b%20c"}, next={"$ref": "#"}), "$defs": {"a/b c": {"type": "integer", "maximum": 1}}}
    assert problem(recursive, column) == "row 0: next.id: it is above 1"
    root = {"$id": "http://example.com/root.json", **of(id={"$ref": "ids.json"}, next={"$ref": "ids.json#/definitions/next"})}
    ids = {"type": "integer", "definitions": {"next": of(id={"$ref": "#/definitions/small"}), "small": {"maximum": 1}}}
    below = SerializationError, r"row 0: next\.id: it is above 1"
    for schema, name in (
        (root, "http://example.com/ids.json"),
        ({**root, "$id": "root.json"}, "ids.json"),
        (root | {"$id": 1}, "ids.json"),
    ):
        with pytest.raises(below[0], match=below[1]):
            written(schema, column, **{name.replace(".", "__"): ids})
    with pytest.raises(below[0], match=below[1]):
        written(root, column, own={**ids, "$id": "http://example.com/ids.json"})
    reason = "the schema has no reference with the name http://example.com/ids.json"
    assert reason in misfits(root, column.type, ids__json=ids)[0][3]


def test_a_reference_that_validators_read_in_two_ways_is_refused() -> None:
    """The one in x.json is http://a/z.json by its own URI, and z.json by the one that led to it."""
    middle = {"$id": "http://a/x.json", **of(id={"$ref": "z.json"})}
    whole = of(inner={"$ref": "x.json"})
    column = pa.array([{"inner": {"id": 1}}])
    for named in ({"z__json": INTEGER}, {"http://a/z__json": INTEGER}, {"z__json": INTEGER, "http://a/z__json": TEXT}):
        reason = "the schema has no reference with the name z.json and http://a/z.json"
        assert reason in misfits(whole, column.type, x__json=middle, **named)[0][3]
    assert written(whole, column, x__json=middle, z__json=INTEGER | {"$id": "http://a/z.json"}) == [b'{"inner":{"id":1}}']


ROOT = "http://example.com/a/root.json"


@every("dialect", ["draft-04", "draft-07", "2020-12", None])
@every(
    "own, reference, fits",
    [
        (ROOT, "#/definitions/small", True),
        (ROOT + "#", "#/definitions/small", True),
        (ROOT, f"{ROOT}#/definitions/small", True),
        (ROOT, "root.json#/definitions/small", True),
        (ROOT, "../a/root.json#/definitions/small", True),
        (ROOT, "/a/root.json#/definitions/small", True),
        (ROOT, "other.json#/definitions/small", True),
        (ROOT, "http://example.com/a/other.json", True),
        (ROOT, "http://example.com/root.json#/definitions/small", False),
        (ROOT, "../other.json", False),
        ("urn:example:root", "urn:example:root#/definitions/small", True),
        ("root.json", "root.json#/definitions/small", True),
        ("root.json", "http://example.com/a/other.json", True),
        ("root.json", "other.json", False),
    ],
)
def test_references_below_an_id_lead_where_jsonschema_finds_them(
    own: str, reference: str, fits: bool, dialect: str | None
) -> None:
    keyword = "id" if dialect == "draft-04" else "$id"
    small = {"type": "integer", "maximum": 1}
    schema = {keyword: own, **of(a={"$ref": reference}), "definitions": {"small": small}} | schema_keyword(dialect)
    named = {"http://example.com/a/other.json": {**small, "definitions": {"small": small}}}
    loaded = JSON_SCHEMA.load(*JSON_SCHEMA.prepared(json.dumps(schema), {k: json.dumps(v) for k, v in named.items()}, None))
    column = pa.array([{"a": 2}])
    above, nothing = (SerializationError, "a: it is above 1"), (SchemaError, "no reference with the name|leads to nothing")
    kind, text = above if fits else nothing
    with pytest.raises(kind, match=text):
        loaded.fit(column.type).encode(column)
    with pytest.raises(kind, match=text):
        loaded.encode_value({"a": 2})


def schema_keyword(dialect: str | None) -> dict[str, str]:
    if dialect is None:
        return {}
    draft = f"{dialect}/schema#" if dialect.startswith("draft") else f"draft/{dialect}/schema"
    return {"$schema": f"http://json-schema.org/{draft}".replace("http:", "https:" if dialect == "2020-12" else "http:")}


@pytest.mark.parametrize("dialect", ["draft-07", "2020-12"])
def test_an_id_beside_a_reference_counts_in_newer_drafts_alone(dialect: str) -> None:
    small = {"small": {"maximum": 1}}
    inside = {"$id": ROOT, "$ref": "#/definitions/small", "definitions": small} | schema_keyword(dialect)
    assert problem(inside, pa.array([2])) == "row 0: it is above 1"
    by_id = inside | {"$ref": f"{ROOT}#/definitions/small"}
    relative = inside | {"$ref": "root.json#/definitions/small"}
    for schema in (by_id, relative):
        if dialect == "2020-12":
            assert problem(schema, pa.array([2])) == "row 0: it is above 1"
        else:
            assert "the schema has no reference with the name" in misfits(schema, INT)[0][3]
            with pytest.raises(SchemaError, match="leads to nothing"):
                JSON_SCHEMA.load(json.dumps(schema), {}).encode_value(2)


def test_draft_4_has_exclusive_bounds_beside_the_others() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}
    assert problem(schema, pa.array([2, 1])) == "row 1: it is not above 1"


@every(
    "text, expected",
    [
        ("{", "the schema is not valid JSON"),
        ('{"properties": {"a": {}, "b": {}, "a": {}}}', "the schema is not valid JSON: an object has the key 'a' twice"),
        ("[" * 100_000, "the schema is nested too deeply"),
        ("[]", "the schema is not a JSON Schema: it is neither an object nor true or false"),
        ('{"minimum": NaN}', "NaN is not a number of JSON"),
        ('{"$schema": "http://example.com/own"}', r"\$schema 'http://example.com/own' is not supported; must be one of draft-04"),
        ('{"type": "strin"}', "the schema is not a valid JSON Schema: #/type: 'strin' is not valid"),
        ('{"properties": {"a": {"minimum": "1"}}}', "#/properties/a/minimum: '1' is not of type 'number'"),
    ],
)
def test_a_text_that_is_no_schema_is_refused_on_the_driver(text: str, expected: str) -> None:
    with pytest.raises(SchemaError, match=expected):
        JSON_SCHEMA.prepared(text, {}, None)
    with pytest.raises(SchemaError, match=expected.replace("the schema", "other", 1)):
        JSON_SCHEMA.prepared("true", {"other": text}, None)


@every("keyword", ["oneOf", "allOf", "enum", "not"])
@every("depth", [150, 400, 100_000])
def test_a_schema_that_is_nested_too_deeply_is_refused(keyword: str, depth: int) -> None:
    text = '{"properties": {"a": ' + f'{{"{keyword}": [' * depth + "]}" * depth + "}}"
    with pytest.raises(
        SchemaError, match=r"nested too deeply|inside of each other|keyword not at|is not supported for an|none of"
    ):
        JSON_SCHEMA.load(text, {}).fit(pa.struct([("a", INT)]))
    with suppress(SchemaError):
        JSON_SCHEMA.prepared(text, {}, None)
    assert JSON_SCHEMA.inline_rules(text) == JSON_SCHEMA.differences(text, text) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 3, "properties": [], "required": 1, "items": 3, "allOf": 1, "oneOf": 3, "enum": 1, "$ref": 1},
        {"properties": {"a": 1}, "minProperties": "x"},
        {"properties": {"a": {"minimum": "x", "multipleOf": [], "format": 3, "pattern": 1, "minLength": "x", "enum": {}}}},
        {"properties": {"a": {"minimum": 10**400, "maximum": 1e400}}},
    ],
)
def test_a_schema_that_was_not_checked_is_refused_without_a_crash(schema: Any) -> None:
    for kind in (pa.int32(), pa.string(), pa.list_(pa.int8())):
        with pytest.raises(SchemaError):
            written(schema, pa.nulls(1, pa.struct([("a", kind)])))
