"""Text in a terminal is cut and aligned by the columns that it takes."""

from __future__ import annotations

import io
import unicodedata

import pytest

from spark_kafka_sink.spark.driver.views.watch import Terminal
from spark_kafka_sink.spark.driver.views.watch_table import Reading, WatchTable, cut, padded, width
from spark_kafka_sink.spark.query_totals import QueryTotals

WIDE = "\u8ba2\u5355\u6d41\u6c34\u67e5\u8be2"  # six Chinese characters


def columns_of(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


@pytest.mark.parametrize("text", ["", "abc", WIDE, f"a{WIDE}b", "\uff41\u00e9"])
def test_a_cut_takes_at_most_its_columns(text: str) -> None:
    assert width(text) == columns_of(text)
    for most in range(14):
        found = cut(text, most)
        assert text.startswith(found)
        assert most - 1 <= columns_of(found) <= most or found == text
    assert columns_of(padded(text, 20, is_left=True)) == columns_of(padded(text, 20, is_left=False)) == 20


def test_wide_names_and_states_fit_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    table, out = WatchTable(), io.StringIO()
    states, names = {"q1": WIDE * 6, "q2": "waits"}, {"q1": WIDE * 4, "q2": "clicks"}
    table.take(Reading(100.0, {each: QueryTotals(1, 2, 99.0, 1.0, 2) for each in states}, states, names))
    Terminal(out).show(table, [])
    lines = out.getvalue().replace("\x1b[J", "").splitlines()
    assert max(map(columns_of, lines)) <= 159
    starts = {columns_of(line[: line.index("1 s")]) for line in lines[1:]}
    assert len(starts) == 1  # the cells are below each other
