"""Random types of columns, schemas that more or less fit them, and rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

UTC = datetime.UTC
TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "Ab1",
    "é",
    "日本語",
    "a\nb",
    'q"\\',
    "12",
    "٣",
    "2024-02-29",
    "2023-02-29",
    "a@b.example",
    "1.2.3.4",
]
MOMENTS = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30))

Values = st.SearchStrategy[Any]


def _decimals(precision: int, scale: int) -> Values:
    most = 10**precision - 1
    return (st.integers(-99, 99) | st.integers(-most, most)).map(
        lambda number: Decimal(number).scaleb(-scale) if scale else Decimal(number)
    )


INTEGERS = st.integers(-6, 12)
LEAVES: Sequence[tuple[pa.DataType, str, Values]] = (
    (pa.bool_(), "boolean", st.booleans()),
    (pa.int8(), "integer", INTEGERS),
    (pa.int32(), "integer", INTEGERS),
    (pa.int64(), "integer", INTEGERS | st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), "integer", st.integers(0, 12) | st.integers(0, 2**64 - 1)),
    (
        pa.float64(),
        "number",
        st.sampled_from([0.5, 1.0, 2.5, 3.0, -1.25, 1e300]) | st.floats(allow_nan=False, allow_infinity=False),
    ),
    (pa.float32(), "number", st.sampled_from([0.5, 1.0, 3.0]) | st.floats(allow_nan=False, allow_infinity=False, width=32)),
    (pa.decimal128(6, 2), "number", _decimals(6, 2)),
    (pa.decimal128(30, 4), "number", _decimals(14, 4)),
    (pa.decimal128(12, 0), "integer", _decimals(12, 0)),
    (pa.string(), "string", st.sampled_from(TEXTS)),
    (pa.large_string(), "string", st.sampled_from(TEXTS)),
    (pa.dictionary(pa.int8(), pa.string()), "string", st.sampled_from(TEXTS)),
    (pa.binary(), "string", st.binary(max_size=5)),
    (pa.date32(), "string", st.dates()),
    (pa.timestamp("us", "UTC"), "string", MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC))),
    (pa.timestamp("us"), "string", MOMENTS),
    (pa.time64("us"), "string", st.times()),
    (pa.uint8(), "integer", st.integers(0, 255)),
    (pa.float16(), "number", st.floats(allow_nan=False, allow_infinity=False, width=16).map(np.float16)),
    (pa.decimal256(40, 3), "number", _decimals(15, 3)),
    (pa.decimal128(5, -2), "number", st.integers(-99, 99).map(lambda number: Decimal(number) * 100)),
    (pa.string_view(), "string", st.sampled_from(TEXTS)),
    (pa.binary(2), "string", st.binary(min_size=2, max_size=2)),
    (pa.date64(), "string", st.dates()),
    (pa.timestamp("s", "Europe/Berlin"), "string", MOMENTS.map(lambda moment: moment.replace(microsecond=0, tzinfo=UTC))),
    (pa.timestamp("ns", "UTC"), "string", st.integers(-(2**62), 2**62)),
    (pa.time32("s"), "string", st.times().map(lambda time: time.replace(microsecond=0))),
    (pa.null(), "null", st.none()),
)
FORMATS = ["date", "date-time", "time", "uuid", "email", "ipv4", "uri", "int64"]
# Without \w, which has only ASCII letters in JavaScript and here, and others too in the witness's `re`: see test_patterns.py.
PATTERNS = ["^a", "b$", r"^\d+$", "^[a-c]*$", r"^\S+$", "a|1", "^.{2,3}$", r"^[^\s]*$", "[0-9A-Za-z_]", "(?=a)", "^[0-9]{4}-"]
NAMES = ["a", "b", "c", "d"]
NUMBERS: Sequence[int | float] = [-3, 0, 1, 2, 3, 10, 0.5, 2.5, -1.25, 1e20]


@dataclass
class Kind:
    """A type of a column.

    Attributes:
        arrow: the type.
        json: its type in JSON.
        values: its values, without null.
        parts: the types inside, by the name of the field; `` for elements.
    """

    arrow: pa.DataType
    json: str
    values: Values
    parts: Mapping[str, Kind] = field(default_factory=dict)
    form: str = "leaf"


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2) -> Kind:
    form = draw(st.sampled_from(["leaf", "leaf", "struct", "list", "fixed list", "map"])) if depth else "leaf"
    if form == "leaf":
        return Kind(*draw(st.sampled_from(LEAVES)))
    if form == "struct":
        parts = {name: draw(kinds(depth - 1)) for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))}
        arrow = pa.struct([pa.field(name, part.arrow) for name, part in parts.items()])
        values = st.fixed_dictionaries({name: st.none() | part.values for name, part in parts.items()})
        return Kind(arrow, "object", values, parts, form)
    inner = draw(kinds(depth - 1))
    elements = st.none() | inner.values if draw(st.booleans()) else inner.values
    if form == "list":
        lists = draw(st.sampled_from([pa.list_, pa.large_list]))
        return Kind(lists(inner.arrow), "array", st.lists(elements, max_size=3), {"": inner}, form)
    if form == "fixed list":
        arrow = pa.list_(inner.arrow, 2)
        return Kind(arrow, "array", st.lists(elements, min_size=2, max_size=2), {"": inner}, "list")
    entries: Values = st.dictionaries(st.sampled_from(NAMES), elements, max_size=3).map(lambda row: list(row.items()))
    return Kind(pa.map_(pa.string(), inner.arrow), "object", entries, {"": inner}, form)


@st.composite
def schemas(draw: st.DrawFn, kind: Kind, definitions: dict[str, Any]) -> Any:
    """A schema that a type may fit."""
    form = draw(st.sampled_from(["plain"] * 12 + ["any", "nullable", "nested", "all", "ref", "union", "no type", "other"]))
    if form == "any":
        return draw(st.sampled_from([True, {}, {"title": "x"}]))
    if form == "nullable":
        keyword = draw(st.sampled_from(["oneOf", "anyOf"]))
        return {keyword: draw(st.permutations([{"type": "null"}, draw(_plain(kind, definitions))]))}
    if form == "nested":
        choices = st.sampled_from(["oneOf", "anyOf"])
        inner = {draw(choices): [draw(_plain(kind, definitions)), {"type": draw(st.sampled_from(["null", "integer"]))}]}
        other = {"type": draw(st.sampled_from(["null", "boolean", ["null", "string"]]))}
        return {draw(choices): draw(st.permutations([inner, other]))}
    if form == "all":
        return {"allOf": [draw(_plain(kind, definitions)) for _ in range(2)]}
    if form == "ref":
        name = f"d{len(definitions)}"
        definitions[name] = True  # takes the name while what is inside is made
        definitions[name] = draw(_plain(kind, definitions))
        return {"$ref": f"#/definitions/{name}"}
    if form == "union":
        others = [{"type": name} for name in ("string", "integer", "number", "object", "boolean") if draw(st.booleans())]
        return {draw(st.sampled_from(["oneOf", "anyOf"])): [draw(_plain(kind, definitions)), *others]}
    found = draw(_plain(kind, definitions))
    if form == "no type":
        found.pop("type", None)
    elif form == "other":
        found["type"] = draw(st.sampled_from(["string", "integer", "number", "object", "array", "boolean", "null"]))
    return found


@st.composite
def _plain(draw: st.DrawFn, kind: Kind, definitions: dict[str, Any]) -> dict[str, Any]:
    names = [kind.json]
    if kind.json == "integer" and draw(st.booleans()):
        names = ["number"]
    schema: dict[str, Any] = {"type": [*names, "null"] if draw(st.integers(0, 3)) == 0 else names[0]}
    if kind.form == "struct":
        schema.update(draw(_of_object(kind, definitions)))
    elif kind.form == "list":
        schema["items"] = draw(schemas(kind.parts[""], definitions))
        if draw(st.integers(0, 3)) == 0:
            schema[draw(st.sampled_from(["minItems", "maxItems"]))] = draw(st.integers(0, 3))
    elif kind.form == "map":
        schema["additionalProperties"] = draw(schemas(kind.parts[""], definitions))
        if draw(st.integers(0, 3)) == 0:
            schema[draw(st.sampled_from(["minProperties", "maxProperties"]))] = draw(st.integers(0, 3))
    elif draw(st.integers(0, 2)) == 0:
        for _ in range(draw(st.integers(1, 2))):
            schema.update(draw(_OF_VALUES[kind.json](kind)))
    return schema


@st.composite
def _of_object(draw: st.DrawFn, kind: Kind, definitions: dict[str, Any]) -> dict[str, Any]:
    present = [name for name in kind.parts if draw(st.integers(0, 9))]
    properties = {name: draw(schemas(kind.parts[name], definitions)) for name in present}
    if draw(st.integers(0, 9)) == 0:
        properties["other"] = {"type": "string"}
    schema: dict[str, Any] = {"properties": properties}
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.sampled_from([False, False, True, {"type": "string"}]))
    required = [name for name in kind.parts if draw(st.integers(0, 3)) == 0]
    if required:
        schema["required"] = required
    if draw(st.integers(0, 9)) == 0:
        schema[draw(st.sampled_from(["minProperties", "maxProperties"]))] = draw(st.integers(0, 3))
    return schema


@st.composite
def _of_text(draw: st.DrawFn, kind: Kind) -> dict[str, Any]:
    keyword = draw(st.sampled_from(["minLength", "maxLength", "pattern", "format", "enum", "const", "contentEncoding"]))
    value: Any = draw(st.integers(0, 30))
    if keyword == "pattern":
        value = draw(st.sampled_from(PATTERNS))
    elif keyword == "format":
        value = draw(st.sampled_from(FORMATS))
    elif keyword == "enum":
        value = draw(st.lists(st.sampled_from([*TEXTS, None, 1]), min_size=1, max_size=9, unique=True))
    elif keyword == "const":
        value = draw(st.sampled_from(TEXTS))
    elif keyword == "contentEncoding":
        value = "base64"
    return {keyword: value}


@st.composite
def _of_number(draw: st.DrawFn, kind: Kind) -> dict[str, Any]:
    names = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum", "const"]
    keyword = draw(st.sampled_from(names))
    if keyword == "enum":
        return {keyword: draw(st.lists(st.sampled_from([*NUMBERS, *range(-6, 12), "a"]), min_size=1, unique=True))}
    if keyword == "multipleOf":
        return {keyword: draw(st.sampled_from([1, 2, 3, 0.5]))}
    bound = draw(st.sampled_from(NUMBERS) | kind.values.map(lambda value: value if isinstance(value, int) else float(value)))
    return {keyword: bound}


@st.composite
def _of_any(draw: st.DrawFn, kind: Kind) -> dict[str, Any]:
    return draw(st.sampled_from([{}, {"const": True}, {"enum": [False, "x"]}, {"enum": [None]}]))


_OF_VALUES: Mapping[str, Callable[[Kind], st.SearchStrategy[dict[str, Any]]]] = {
    "string": _of_text,
    "integer": _of_number,
    "number": _of_number,
    "boolean": _of_any,
    "null": _of_any,
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any] | bool, pa.Array]:
    """A schema, and a column that may fit it."""
    kind = draw(kinds(3))
    definitions: dict[str, Any] = {}
    schema = draw(schemas(kind, definitions))
    if isinstance(schema, dict):
        schema = {**schema, "definitions": definitions}
        draft = draw(
            st.sampled_from([None, "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"])
        )
        if draft:
            schema["$schema"] = draft
    return schema, draw(columns(kind))


@st.composite
def columns(draw: st.DrawFn, kind: Kind) -> pa.Array:
    """A column of a type, which may be a slice."""
    rows = draw(st.lists(st.none() | kind.values, min_size=1, max_size=6))
    return pa.array(rows, kind.arrow).slice(draw(st.integers(0, 1)))
