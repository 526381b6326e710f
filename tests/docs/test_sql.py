"""Each SQL expression of a page is executed, and gives the rows that the page promises."""

from __future__ import annotations

import ast
import datetime
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from docs.pages import FOLDER
from spark_kafka_sink.spark.report_record import ReportRecord
from tests.docs.snippets import PAGES, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FUNCTIONS = r"cast|transform|struct|named_struct|array|map|filter|to_json|from_json|(?:timestamp|unix)_(?:seconds|millis|micros)"
# In prose, alone or at the end of an error that the page quotes. "..." stands for what the reader has.
_SPAN = re.compile(rf"`(?:[^`\n]*; use )?((?:{_FUNCTIONS})\((?!\.|struct\(\.)[^`\n]*\))`")
_SELECTED = re.compile(r"--select '([^']*)'|^SELECT (.*) FROM", re.MULTILINE)
_NAMED = re.compile(r" as \w+$", re.IGNORECASE)
_NAMES = {"prefix": "__connect.errors.", "name": "reason"}
"""What the page of bad rows puts into its expressions."""

LETTER = (
    "array(named_struct('key', '__connect.errors.reason', 'value', binary('header')),"
    " named_struct('key', 'mine', 'value', binary('1'))) AS headers"
)

# By expression: the columns that it is executed with, and its value.
EXPRESSIONS: dict[str, list[tuple[str, Any]]] = {
    "cast(id as string)": [("7L AS id", "7")],
    "cast(value as string)": [("7L AS value", "7")],
    "cast(count as string)": [("7L AS count", "7")],
    "cast(t as timestamp_ntz)": [("timestamp_ntz '2026-07-01 10:00:00' AS t", datetime.datetime(2026, 7, 1, 10))],
    "string(id)": [("7L AS id", "7")],
    "to_json(struct(id))": [("7L AS id, 'not this' AS other", '{"id":7}')],
    "struct(*)": [("7L AS id, 'a' AS name", {"id": 7, "name": "a"})],
    # The page of columns says how this differs from value.columns.
    "to_json(struct(*))": [
        ("7L AS id, 'a' AS name, null AS nothing", '{"id":7,"name":"a"}'),
        ("timestamp '2026-07-01 10:00:00' AS t", '{"t":"2026-07-01T10:00:00.000Z"}'),
        ("timestamp_ntz '2026-07-01 10:00:00' AS t", '{"t":"2026-07-01T10:00:00.000"}'),
        ("1e20D AS d", '{"d":1.0E20}'),
        ("double('NaN') AS d, double('Infinity') AS e", '{"d":"NaN","e":"Infinity"}'),
        ("interval '5' day AS i, interval '1' month AS j", """{"i":"INTERVAL '5' DAY","j":"INTERVAL '1' MONTH"}"""),
    ],
    "array(named_struct('key', 'source', 'value', cast('web' as binary)))": [("1", [{"key": "source", "value": b"web"}])],
    "IF(id = 3, double('NaN'), double(id))": [("3L AS id", float("nan")), ("7L AS id", 7.0)],
    "string(get(filter(headers, h -> h.key = '__connect.errors.reason'), 0).value)": [
        (LETTER, "header"),
        ("cast(array() as array<struct<key: string, value: binary>>) AS headers", None),
    ],
    "replace(string(value), 'NaN', 'null')": [("""binary('{"amount":NaN}') AS value""", '{"amount":null}')],
    "filter(headers, h -> NOT startswith(h.key, '__connect.errors.'))": [(LETTER, [{"key": "mine", "value": b"1"}])],
}


def expressions(page: str) -> Iterator[str]:
    """Yields the expressions of a page that call a function, without the names of their columns."""
    text = (FOLDER / page).read_text(encoding="utf-8")
    found = [*_SPAN.findall(text), *(one or other for one, other in _SELECTED.findall(text))]
    for block in blocks(page):
        if block.language == "python":
            found += _arguments(block.source)
    for each in found:
        if "(" in each and not each.startswith("current_"):
            yield _NAMED.sub("", each)


def _arguments(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("selectExpr", "expr"):
            for argument in node.args:
                yield eval(compile(ast.Expression(argument), "", "eval"), dict(_NAMES))


def test_the_expressions_are_those_of_the_pages() -> None:
    assert {each for page in (*PAGES, "../README.md") for each in expressions(page)} == EXPRESSIONS.keys()


@pytest.mark.spark
def test_an_expression_gives_the_rows_that_its_page_promises(spark: SparkSession) -> None:
    cases = [(expression, columns, value) for expression, some in EXPRESSIONS.items() for columns, value in some]
    # One query, as each takes a fifth of a second.
    queries = [f"(SELECT {expression} FROM (SELECT {columns})) AS c{n}" for n, (expression, columns, _) in enumerate(cases)]
    row = spark.sql(f"SELECT {', '.join(queries)}").collect()[0].asDict(recursive=True)
    found = [(expression, columns, value) for (expression, columns, _), value in zip(cases, row.values(), strict=True)]
    # NaN is not NaN, and binary columns are bytearrays before PySpark 4.1.
    assert [re.sub(r"bytearray\((b'.*?')\)", r"\1", repr(each)) for each in found] == list(map(repr, cases))


@pytest.mark.spark
def test_the_query_over_reports_finds_the_offsets_of_a_batch(spark: SparkSession) -> None:
    code = {block.language: block.source for block in blocks("reports.md")}
    value = " ".join(code["json"].split()).encode()
    assert ReportRecord.of(value).batch.batch == 17
    assert json.loads(value).keys() == json.loads(ReportRecord.of(value).value()).keys()
    spark.createDataFrame([(value,)], "value BINARY").createOrReplaceTempView("reports")
    found = [tuple(row) for row in spark.sql(code["sql"]).collect()]
    assert found == [(17, "events", 0, 68034, 72033), (17, "events", 1, 68034, 72033)]
