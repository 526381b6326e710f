"""What a schema's plan writes passes jsonschema's validator, with formats, row by row; and what it refuses would not."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import FormatChecker
from jsonschema.validators import validator_for

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.formats.json_schema.json_schema_format import JsonSchemaFormat
from spark_kafka_sink.formats.schema_format import ColumnPlan
from tests.examples import examples
from tests.formats.json_schema.random_schemas import Kind, cases, columns, kinds

JSON_SCHEMA = JsonSchemaFormat()
# jsonschema's own checker of times is another library. RFC 3339 needs an offset.
_TIME = r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"
FORMATS = FormatChecker(["date", "email", "ipv4", "uuid"])


def is_date_time(value: object) -> bool:
    if not isinstance(value, str):
        return True
    return bool(re.fullmatch(rf"\d{{4}}-\d\d-\d\dT{_TIME}", value, re.ASCII) and datetime.date.fromisoformat(value[:10]))


def is_time(value: object) -> bool:
    return not isinstance(value, str) or bool(re.fullmatch(_TIME, value, re.ASCII))


FORMATS.checks("date-time", raises=ValueError)(is_date_time)
FORMATS.checks("time")(is_time)


def errors(schema: Any, data: bytes) -> list[str]:
    validator = validator_for(schema)(schema, format_checker=FORMATS)
    return [str(error) for error in validator.iter_errors(json.loads(data))]


def load(schema: Any) -> Any:
    text = json.dumps(schema)
    return JSON_SCHEMA.load(*JSON_SCHEMA.prepared(text, {}, None))


def bad_row(plan: ColumnPlan, column: pa.Array) -> int | None:
    """Returns the row that is refused."""
    try:
        plan.encode(column)
    except SerializationError as error:
        row: int = error.facts["row"]
        return row
    return None


@settings(max_examples=examples(200), deadline=None)  # a busy machine is no failure
@given(case=cases())
def test_what_is_written_is_valid_and_what_is_refused_is_not(case: tuple[Any, pa.Array]) -> None:
    schema, column = case
    try:
        plan = load(schema).fit(column.type)
    except SchemaError:
        return
    bad = bad_row(plan, column)
    if bad is not None:
        data = load(True).fit(column.type).encode(column.slice(bad, 1)).to_pylist()[0]
        assert errors(schema, data), "a valid row was refused"
        assert bad_row(plan, column.slice(0, bad)) is None
        return
    found = plan.encode(column, b"\0prefix").to_pylist()
    assert [row is None for row in found] == [row is None for row in column.to_pylist()]
    for row in found:
        if row is not None:
            assert row.startswith(b"\0prefix")
            assert errors(schema, row.removeprefix(b"\0prefix")) == []


@settings(max_examples=examples(150), deadline=None)  # a busy machine is no failure
@given(data=st.data())
def test_rows_fit_the_schema_that_is_derived_from_their_type(data: st.DataObject) -> None:
    kind: Kind = data.draw(kinds(3))
    column = data.draw(columns(kind))
    try:
        text = JSON_SCHEMA.derive(column.type, "Row")
    except SchemaError:
        assert "null" in str(column.type)  # JSON has no type for void
        return
    schema = json.loads(text)
    for row in load(schema).fit(column.type).encode(column).to_pylist():
        if row is not None:
            assert errors(schema, row) == []
