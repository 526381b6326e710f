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
from spark_kafka_sink.reports.report_charts import time_series
from spark_kafka_sink.reports.report_facts import MAX_PARTITIONS, run_facts
from spark_kafka_sink.reports.report_html import ACCENTS, report_html, reports_html
from tests.every import every
from tests.examples import examples
from tests.limits import calls_of
from tests.producer.reports import eventful, many_partitions
from tests.spark.reports import reports
from tests.tiers import whole_but

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


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Returns the contrast of two colours as WCAG 2 defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@every("page", ["#ffffff", "#111111", "#0d1117"])
@every("scheme", ["light", "dark"])
def test_bars_are_visible_on_any_page_whatever_the_system_prefers(scheme: str, page: str) -> None:
    """A notebook's theme may be dark on a system that prefers light. WCAG asks for a contrast of 3 of graphics."""
    html = eventful()._repr_html_()
    preferred, dark = html.split("@media (prefers-color-scheme:dark)", 1)
    for color in ACCENTS[scheme]:
        assert color in (dark if scheme == "dark" else preferred)
        assert contrast(color, page) >= 3


def test_a_notebooks_theme_has_precedence_and_text_has_the_colour_around_it() -> None:
    html = report_html(eventful(), (), [(0, 1), (1, 2)])
    assert html.count("--ksr-accent:var(--jp-brand-color1,var(--vscode-charts-blue,#") == 2
    assert not re.search(r"[;{]color:|background", html)
    texts = [text for chart in charts(html) for text in chart.iter(f"{SVG}text")]
    assert {text.get("fill") for text in texts} == {"currentColor"}


@pytest.mark.parametrize("topics", whole_but([1, 1000], [1000], "fewer names of topics take less"))
def test_50_000_partitions_take_little_time_and_space(topics: int) -> None:
    report = many_partitions(50_000, topics)
    html = report._repr_html_()
    assert calls_of(lambda: (report._repr_html_(), str(report))) < 50_000
    assert len(html.encode()) < 200_000
    assert len(Page(html).rows) == 1 + MAX_PARTITIONS
    assert "and 49,950 more topic-partitions with 99.8 % of the records" in html


def test_of_several_reports_the_first_is_unfolded() -> None:
    html = reports_html([("committed", DeliveryReport(records=5)), ("live", DeliveryReport(records=7)), ("other", None)])
    assert '<details open="open"><summary><b>committed</b>: 5 records</summary>' in html
    assert "<details><summary><b>live</b>: 7 records</summary>" in html
    assert "<p><b>other</b>: nothing reported yet</p>" in html
    assert html.count("<style>") == 1


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
