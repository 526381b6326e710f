"""A delivery report as HTML for notebooks, which is XML as well: no script, no file of another origin, no element id.

JupyterLab and VS Code set variables with the colours of their theme, which may be dark where the operating system prefers light.
Other notebooks set none. So the text keeps the colour around it, rules are translucent, and each accent has a contrast of at
least 3 to a white and to a black page. A notebook that is not trusted shows the same text and tables without styles and charts.

Charts are inline SVG, with a title for screen readers. Where a notebook removes styles, all of a chart has the colour of the text
around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.counts import counted
from spark_kafka_sink.reports.report_facts import (
    Fact,
    Latency,
    Partitions,
    Point,
    by_count,
    latency_of,
    more_partitions,
    partitions_of,
    percent,
    printable,
    thinned,
    throughput_title,
    totals,
)
from spark_kafka_sink.reports.report_text import HEADER

if TYPE_CHECKING:
    from spark_kafka_sink.reports.delivery_report import DeliveryReport

# Longer tables are folded.
_OPEN_ROWS = 20

ACCENTS: Final = {"light": ("#2f6fdb", "#c9372c"), "dark": ("#4c8df6", "#e5534b")}
"""Colours of bars and of problems, for light and for dark pages."""

_COLORS: Final = (
    "--ksr-accent:var(--jp-brand-color1,var(--vscode-charts-blue,{}));"
    "--ksr-problem:var(--jp-error-color1,var(--vscode-charts-red,{}));"
)

STYLE: Final = (
    "<style>"
    f".ksr{{{_COLORS.format(*ACCENTS['light'])}--ksr-faint:rgba(128,128,128,.45);font-variant-numeric:tabular-nums}}"
    f"@media (prefers-color-scheme:dark){{.ksr{{{_COLORS.format(*ACCENTS['dark'])}}}}}"
    ".ksr .ksr-bar{fill:var(--ksr-accent)}"
    ".ksr .ksr-line{stroke:var(--ksr-accent)}"
    ".ksr .ksr-problem{border-left:3px solid var(--ksr-problem);padding-left:9px;margin:10px 0}"
    ".ksr p{margin:4px 0}"
    ".ksr svg{max-width:100%;vertical-align:middle;overflow:visible}"
    ".ksr dl{display:flex;flex-wrap:wrap;gap:8px 26px;margin:4px 0 10px}"
    ".ksr dl div{margin:0}"
    ".ksr dt,.ksr dd{display:block;float:none;width:auto;margin:0;padding:0;text-align:left}"
    ".ksr dt,.ksr .ksr-note{font-size:85%;font-weight:normal;opacity:.75}"
    ".ksr dd{font-size:125%}"
    ".ksr dd .ksr-note{display:block;font-size:68%;max-width:30em}"
    ".ksr details{margin:10px 0}"
    ".ksr summary{cursor:pointer}"
    ".ksr table{border-collapse:collapse;margin:6px 0}"
    ".ksr th,.ksr td{padding:2px 12px 2px 0;text-align:right;white-space:nowrap;border:0}"
    ".ksr thead th{border-bottom:1px solid var(--ksr-faint)}"
    ".ksr td svg+span{display:inline-block;min-width:4.5em}"
    ".ksr th:first-child,.ksr td:first-child{text-align:left}"
    "</style>"
)


def report_html(report: DeliveryReport, facts: Sequence[Fact] = (), throughput: Iterable[Point] = ()) -> str:
    """Returns the report as one element of HTML, of under 100 KB with names that Kafka allows, however many partitions there are.

    Args:
        report: The report.
        facts: More totals, which follow the first one.
        throughput: Points of (seconds, rows per second).
    """
    return element(_body(report, facts, throughput))


def reports_html(reports: Sequence[tuple[str, DeliveryReport | None]]) -> str:
    """Returns several reports with their names, the first of them unfolded. None is a report of nothing yet."""
    parts = []
    for place, (name, report) in enumerate(reports):
        if report is None:
            parts.append(f"<p><b>{escaped(name)}</b>: nothing reported yet</p>")
        else:
            title = f"<b>{escaped(name)}</b>: {counted(report.records, 'record')}"
            parts.append(details_html(title, _body(report), is_open=place == 0))
    return element("".join(parts))


def element(content: str) -> str:
    """Returns an element with its styles. content: HTML."""
    return f'<div class="ksr">{STYLE}{content}</div>'


def text_html(text: str) -> str:
    """Returns a text as a paragraph."""
    return f"<p>{escaped(text)}</p>"


def _body(report: DeliveryReport, facts: Sequence[Fact] = (), throughput: Iterable[Point] = ()) -> str:
    partitions, latency = partitions_of(report.partitions), latency_of(report.ack_latency)
    first, *rest = totals(report, partitions)
    slowed = report.slowed_down()
    return "".join(
        [
            facts_html([first, *facts, *rest]),
            f"<p>Slowed down: {escaped(', '.join(slowed))}</p>" if slowed else "",
            _errors(report),
            _bad_rows(report),
            _throughput(list(throughput)),
            _partitions(partitions),
            _latency(latency) if latency else "",
        ]
    )


def facts_html(facts: Sequence[Fact]) -> str:
    """Returns counts with their names, side by side."""
    parts = []
    for fact in facts:
        note = f'<span class="ksr-note"> {escaped(fact.note)}</span>' if fact.note else ""
        parts.append(f"<div><dt>{escaped(fact.label)}</dt><dd>{escaped(fact.value)}{note}</dd></div>")
    return f"<dl>{''.join(parts)}</dl>"


def _errors(report: DeliveryReport) -> str:
    if not report.errors:
        return ""
    table = _counts(("error", "batches"), by_count(report.errors))
    return f'<div class="ksr-problem"><p>Rejected batches by error</p>{table}</div>'


def _bad_rows(report: DeliveryReport) -> str:
    if not report.bad_rows:
        return ""
    ended = f"{counted(report.dead_letters, 'dead letter')}, {report.dropped:,} dropped"
    table = _counts(("reason", "rows"), by_count(report.bad_rows))
    example = f"<p>Example: {escaped(report.bad_row_example)}</p>" if report.bad_row_example else ""
    return f'<div class="ksr-problem"><p>Bad rows by reason: {ended}</p>{table}{example}</div>'


def _counts(header: tuple[str, str], counts: Iterable[tuple[str, int]]) -> str:
    return table_html(header, ((escaped(name), f"{count:,}") for name, count in counts))


def _throughput(points: Sequence[Point]) -> str:
    title = throughput_title(points)
    return f"<p>{title}</p>{time_series(title, points)}" if title else ""


def _partitions(partitions: Partitions) -> str:
    if not partitions.shown:
        return ""
    rows = (
        (
            escaped(one.topic),
            one.number,
            f"{one.records:,}",
            f"{share_bar(one.bar, f'{percent(one.share)} of the records')} <span>{percent(one.share)}</span>",
            f"{one.bytes:,}",
            *one.offsets,
        )
        for one in partitions.shown
    )
    more = more_partitions(partitions)
    table = f"{table_html(HEADER, rows)}{f'<p>{more}</p>' if more else ''}"
    title = f"{counted(len(partitions.shown) + partitions.hidden, 'topic-partition')}"
    return details_html(title, table, is_open=len(partitions.shown) <= _OPEN_ROWS)


def _latency(latency: Latency) -> str:
    return details_html(
        escaped(latency.title), histogram(latency.title, latency.edges, [count for _, count in latency.buckets]), is_open=True
    )


def details_html(title: str, content: str, *, is_open: bool) -> str:
    """Returns what can be folded. title, content: HTML."""
    opened = ' open="open"' if is_open else ""  # XML has no attribute without a value
    return f"<details{opened}><summary>{title}</summary>{content}</details>"


def table_html(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table. The cells are HTML."""
    head = "".join(f'<th scope="col">{name}</th>' for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


# Charts

_BAR_WIDTH, _BAR_HEIGHT = 96, 10
_COLUMN_WIDTH, _COLUMNS_HEIGHT, _MARGIN = 56, 84, 20
_FONT: Final = 'font-size="11" fill="currentColor" stroke="none"'
_MIDDLE: Final = f'{_FONT} text-anchor="middle"'
_LINE_WIDTH, _LINE_HEIGHT, _LEFT, _BELOW, _ABOVE = 640, 150, 88, 20, 8
_RIGHT, _FLOOR = _LINE_WIDTH - 8, _LINE_HEIGHT - _BELOW
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"))
# A line of 640 pixels shows no more.
_MOST_POINTS = 240


def share_bar(share: float, title: str) -> str:
    """Returns a bar whose length is a share from 0 to 1 of the largest. Any share above 0 is visible."""
    width = max(share * _BAR_WIDTH, 1.0 if share > 0 else 0.0)
    drawn = f'<rect class="ksr-bar" fill="currentColor" width="{_number(width)}" height="{_BAR_HEIGHT}" rx="1"/>'
    return _svg(_BAR_WIDTH, _BAR_HEIGHT, title, drawn)


def histogram(title: str, edges: Sequence[str], counts: Sequence[int]) -> str:
    """Returns a chart with a column for each count, which is written above it, between the edges that are written below."""
    most, width = max(counts, default=0) or 1, len(counts) * _COLUMN_WIDTH + 2 * _MARGIN
    floor, parts = _COLUMNS_HEIGHT + 16, []
    for place, count in enumerate(counts):
        left, height = _MARGIN + place * _COLUMN_WIDTH, max(count / most * _COLUMNS_HEIGHT, 1.0 if count else 0.0)
        size = f'width="{_COLUMN_WIDTH - 2}" height="{_number(height)}"'
        parts.append(
            f'<rect class="ksr-bar" fill="currentColor" x="{left + 1}" y="{_number(floor - height)}" {size}/>'
            f'<text {_MIDDLE} x="{left + _COLUMN_WIDTH // 2}" y="{_number(floor - height - 4)}">{count:,}</text>'
        )
    for place, edge in enumerate(edges):
        at = _MARGIN + place * _COLUMN_WIDTH
        parts.append(f'<text {_MIDDLE} x="{at}" y="{floor + 16}">{escaped(edge)}</text>')
    parts.append(f'<path stroke="currentColor" stroke-opacity=".5" d="M{_MARGIN} {floor}.5H{width - _MARGIN}"/>')
    return _svg(width, floor + 22, title, "".join(parts))


def time_series(title: str, points: Iterable[Point]) -> str:
    """Returns a line chart of a rate over time, or "" if there are no points.

    Args:
        title: Text for screen readers and for the pointer.
        points: Pairs of (seconds since the start, rows per second). Many points become averages of neighbours.
    """
    known = thinned(points, _MOST_POINTS)
    if not known:
        return ""
    end, top = max(1e-9, known[-1][0]), _round_up(max(1.0, *(value for _, value in known)))
    places = [
        (
            _number(_LEFT + max(at, 0.0) / end * (_RIGHT - _LEFT)),
            _number(_FLOOR - max(value, 0.0) / top * (_FLOOR - _ABOVE)),
        )
        for at, value in known
    ]
    axes = _grid(top) + "".join(_times(end))
    if len(places) == 1:
        dot = f'<circle class="ksr-bar" fill="currentColor" cx="{places[0][0]}" cy="{places[0][1]}" r="3"/>'
        return _svg(_LINE_WIDTH, _LINE_HEIGHT, title, axes + dot)
    line = " ".join(f"{x},{y}" for x, y in places)
    area = f"{places[0][0]},{_FLOOR} {line} {places[-1][0]},{_FLOOR}"
    drawn = (
        f'<polygon class="ksr-bar" fill="currentColor" fill-opacity=".15" points="{area}"/>'
        f'<polyline class="ksr-line" fill="none" stroke="currentColor" stroke-width="1.5" points="{line}"/>'
    )
    return _svg(_LINE_WIDTH, _LINE_HEIGHT, title, axes + drawn)


def _grid(top: float) -> str:
    drawn = []
    for part in (0.0, 0.5, 1.0):
        y = _FLOOR - part * (_FLOOR - _ABOVE)
        drawn.append(
            f'<path stroke="currentColor" stroke-opacity=".25" d="M{_LEFT} {_number(y)}H{_RIGHT}"/>'
            f'<text {_FONT} text-anchor="end" x="{_LEFT - 6}" y="{_number(y + 4)}">{top * part:,.0f}</text>'
        )
    return "".join(drawn)


def _times(end: float) -> list[str]:
    """Returns the times below the chart, at the start, in the middle and at the end, in a unit that is easy to read."""
    size, unit = next(((size, unit) for size, unit in _UNITS if end >= 2 * size), (1, "s"))
    anchors = ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    return [
        f'<text {_FONT} text-anchor="{anchor}" x="{_number(_LEFT + part * (_RIGHT - _LEFT))}" y="{_FLOOR + 15}">'
        f"{end / size * part:,.{1 if 0 < part * end / size < 100 else 0}f} {unit}</text>"
        for part, anchor in anchors
    ]


def _round_up(value: float) -> float:
    """Returns the next number with a single digit other than 0, or 1.5 or 2.5 of it, which is easy to read on an axis."""
    power = 10.0 ** (len(f"{int(value)}") - 1)
    return next(step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value)


def _svg(width: int, height: int, title: str, drawn: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"<title>{escaped(title)}</title>{drawn}</svg>"
    )


def _number(value: float) -> str:
    """Returns a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def escaped(text: str) -> str:
    """Returns a text of any machine for use in HTML and XML, which have no control characters."""
    return escape(printable(text))
