"""Reports as HTML for notebooks: well-formed, escaped, without scripts, legible on light and dark pages, and small."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.reports.partition_reports import PartitionReport, PartitionReports
from spark_kafka_sink.reports.report_facts import run_facts
from spark_kafka_sink.reports.report_html import report_html, reports_html, time_series
from tests.examples import examples
from tests.producer.reports import eventful
from tests.spark.reports import reports

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>&\"'\x00\x1b]0;"


class Page(HTMLParser):
    """The tags and attributes of a page, and its cells row by row, as a browser reads them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.rows: list[list[str]] = []
        self.text = ""
        self._within: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self._within.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._within.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"style", "title"}.isdisjoint(self._within):
            self.text += data
            if {"td", "th"} & set(self._within):
                self.rows[-1][-1] += data


def charts(html: str) -> Iterator[ET.Element]:
    """Yields the charts. The HTML is XML too, because a picture of it is."""
    return ET.fromstring(html).iter(f"{SVG}svg")


def test_the_html_shows_everything_that_happened() -> None:
    page = Page(report_html(eventful(), run_facts(1.25, 800, [400, 600]), [(0, 0), (1, 400), (2, 800)]))
    assert page.rows == [
        ["error", "batches"],
        ["NOT_LEADER_OR_FOLLOWER", "2"],
        ["DISCONNECTED", "1"],
        ["reason", "rows"],
        ["header", "2"],
        ["too-large", "1"],
        ["topic", "partition", "records", "share", "bytes", "first offset", "last offset"],
        ["events", "0", "300", " 30.0 %", "30,000", "10", "309"],
        ["events", "1", "600", " 60.0 %", "60,000", "7", "606"],
        ["letters", "0", "2", " 0.2 %", "200", "?", "?"],
        ["wide", "all", "98", " 9.8 %", "9,800", "?", "?"],
    ]
    for text in (
        "records1,000 998 delivered, 2 dead letters",
        "time1.2 s 800 rows/s",
        "tasks2 400 to 600 records each",
        "bytes100,000 40,000 sent, ratio 2.50",
        "batches37 in 12 requests",
        "retries3",
        "commits2 4 transactions committed, 1 aborted; on average 40 ms",
        "Slowed down: throttled by broker quotas for 1.2 s",
        "Bad rows by reason: 2 dead letters, 1 dropped",
        "Example: [HEADER] the header \\x1b[31m<b>&'\" is not valid",
        "Throughput up to 800 rows/s in 2.0 s",
        "Time to acknowledgement of 37 batches: p50 < 16 ms, p95 < 16 ms, p99 < 64 ms",
    ):
        assert text in page.text


def test_what_did_not_happen_is_left_out() -> None:
    page = Page(DeliveryReport()._repr_html_())
    assert page.rows == []
    assert "svg" not in page.tags
    assert not re.search("error|bad|dead|slowed|commit|acknowledgement|throughput", page.text, re.IGNORECASE)


@settings(max_examples=examples(100))
@given(reports)
def test_any_report_is_well_formed_and_has_neither_scripts_nor_links(report: DeliveryReport) -> None:
    html = report._repr_html_()
    ET.fromstring(html)
    page = Page(html)
    assert page.tags.isdisjoint({"script", "a", "img", "link", "iframe", "object", "foreignobject", "image", "use"})
    assert not [name for name in page.attributes if name.startswith("on") or name in ("href", "src", "id")]
    assert "url(" not in html.replace(page.text, "")
    assert str(report)


def test_texts_of_other_machines_are_escaped_everywhere() -> None:
    report = DeliveryReport(
        errors={HOSTILE: 1},
        bad_rows={HOSTILE: 1},
        bad_row_example=HOSTILE,
        partitions=PartitionReports({(HOSTILE, 0): PartitionReport(1)}),
        ack_latency={HOSTILE: [1] * 24},
    )
    html = reports_html([(HOSTILE, report), (HOSTILE, None)])
    ET.fromstring(html)
    page = Page(html)
    assert "script" not in page.tags
    assert page.text.count("<script>alert(1)</script>&\"'") == 6
    assert "\x00" not in html
    assert "\x1b" not in html


def points_of(svg: str) -> list[tuple[float, float]]:
    (line,) = ET.fromstring(svg).iter(f"{SVG}polyline")
    pairs = (pair.split(",") for pair in (line.get("points") or "").split())
    return [(float(x), float(y)) for x, y in pairs]


def test_a_time_series_is_a_line_from_left_to_right_that_is_higher_for_more() -> None:
    svg = time_series("rows/s", [(0, 0), (10, 100), (5, 50)])
    (x0, y0), (x1, y1), (x2, y2) = points_of(svg)
    assert x0 < x1 < x2
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 > y1 > y2
    assert [text.text for text in ET.fromstring(svg).iter(f"{SVG}text")] == ["0", "50", "100", "0 s", "5.0 s", "10.0 s"]


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e9)), max_size=600))
def test_a_time_series_of_any_length_stays_in_its_frame_and_is_small(points: list[tuple[float, float]]) -> None:
    svg = time_series("<rows/s>", points)
    assert bool(svg) == bool(points)
    if len(points) > 1:
        assert all(0 <= x <= 640 and 0 <= y <= 150 for x, y in points_of(svg))
        assert len(svg) < 10_000
