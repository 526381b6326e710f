"""Small charts as inline SVG, without scripts: a bar of a share, columns of a histogram, and a line over time.

A chart has a title for screen readers. Its colours are classes of report_html.STYLE. Where a notebook removes styles, all of a
chart has the colour of the text around it, which is legible on any background.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from spark_kafka_sink.producer.report_facts import Point, printable, thinned

_BAR_WIDTH, _BAR_HEIGHT = 96, 10
_COLUMN_WIDTH, _COLUMNS_HEIGHT, _MARGIN = 56, 84, 20
_FONT: Final = 'font-size="11" fill="currentColor" stroke="none"'
_MIDDLE: Final = f'{_FONT} text-anchor="middle"'
_LINE_WIDTH, _LINE_HEIGHT, _LEFT, _BELOW, _ABOVE = 640, 150, 88, 20, 8
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
    end = max(known[-1][0], 1e-9)
    top = _round_up(max(1.0, *(rate for _, rate in known)))
    right, floor = _LINE_WIDTH - 8, _LINE_HEIGHT - _BELOW

    def place(point: Point) -> tuple[str, str]:
        at, rate = max(point[0], 0.0), max(point[1], 0.0)
        return _number(_LEFT + at / end * (right - _LEFT)), _number(floor - rate / top * (floor - _ABOVE))

    places = [place(point) for point in known]
    line = " ".join(f"{x},{y}" for x, y in places)
    parts = [_grid(top, right, floor), *_seconds(end, right, floor)]
    if len(places) == 1:
        parts.append(f'<circle class="ksr-bar" fill="currentColor" cx="{places[0][0]}" cy="{places[0][1]}" r="3"/>')
    else:
        area = f"{places[0][0]},{floor} {line} {places[-1][0]},{floor}"
        parts.append(f'<polygon class="ksr-bar" fill="currentColor" fill-opacity=".15" points="{area}"/>')
        parts.append(f'<polyline class="ksr-line" fill="none" stroke="currentColor" stroke-width="1.5" points="{line}"/>')
    return _svg(_LINE_WIDTH, _LINE_HEIGHT, title, "".join(parts))


def _grid(top: float, right: int, floor: int) -> str:
    """Returns three horizontal rules with their rates."""
    drawn = []
    for part in (0.0, 0.5, 1.0):
        y = floor - part * (floor - _ABOVE)
        drawn.append(
            f'<path stroke="currentColor" stroke-opacity=".25" d="M{_LEFT} {_number(y)}H{right}"/>'
            f'<text {_FONT} text-anchor="end" x="{_LEFT - 6}" y="{_number(y + 4)}">{top * part:,.0f}</text>'
        )
    return "".join(drawn)


def _seconds(end: float, right: int, floor: int) -> list[str]:
    """Returns the times below the chart, at the start, in the middle and at the end."""
    anchors = ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    return [
        f'<text {_FONT} text-anchor="{anchor}" x="{_number(_LEFT + part * (right - _LEFT))}" y="{floor + 15}">'
        f"{end * part:,.{1 if 0 < part * end < 100 else 0}f} s</text>"
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
