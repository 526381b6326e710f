"""The history of a query in a notebook. Styles, contrast and dark pages are tested with reports, which have the same ones."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from spark_kafka_sink.spark.driver.history import History
from tests.reports.test_report_html import HOSTILE, SVG, Page
from tests.spark.driver.test_history import UUID, batch


def html(count: int, query: str = UUID, **counts: Any) -> str:
    history = History()
    for number in range(count):
        history.add(batch(number, query, records=1000 * (number + 1), bytes=3_000_000, **counts))
    return history.of(query)._repr_html_()


def polylines(page: str) -> list[ET.Element]:
    return list(ET.fromstring(page).iter(f"{SVG}polyline"))


def test_totals_charts_and_the_last_ten_micro_batches_are_shown() -> None:
    page = Page(html(12))
    assert page.rows[0][:3] == ["batch", "began", "seconds"]
    assert [row[0] for row in page.rows[1:]] == [str(number) for number in range(2, 12)]
    assert "the last 10 of 12 micro-batches" in page.text
    assert "78,000" in page.text
    assert "36.0 MB before compression" in page.text
    lines = polylines(html(12))
    assert [len(line.get("points", "").split()) for line in lines] == [12] * 2


def test_commits_are_charted_under_exactly_once_only() -> None:
    assert "Time of the commit" not in html(3)
    page = html(3, commits=1, commit_ms=40, transactions_committed=2)
    assert "Time of the commit" in Page(page).text
    assert len(polylines(page)) == 3


def test_names_of_queries_are_escaped() -> None:
    page = html(2, HOSTILE[:30])
    ET.fromstring(page)
    assert Page(page).tags.isdisjoint({"script", "img", "link"})
    assert not [name for name in Page(page).attributes if name.startswith("on") or name in ("href", "src", "id")]
