"""Small charts as inline SVG, without scripts: a bar of a share, columns of a histogram, and a line over time.

A chart has a title for screen readers. Its colours are classes of report_html.STYLE. Where a notebook removes styles, all of a
chart has the colour of the text around it, which is legible on any background.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

from spark_kafka_sink.reports.report_facts import Point, printable, thinned

_BAR_WIDTH, _BAR_HEIGHT = 96, 10
_COLUMN_WIDTH, _COLUMNS_HEIGHT, _MARGIN = 56, 84, 20
_FONT: Final = 'font-size="11" fill="currentColor" stroke="none"'
_MIDDLE: Final = f'{_FONT} text-anchor="middle"'
_LINE_WIDTH, _LINE_HEIGHT, _LEFT, _BELOW, _ABOVE = 640, 150, 88, 20, 8
_RIGHT, _FLOOR = _LINE_WIDTH - 8, _LINE_HEIGHT - _BELOW
# With several lines their names are above the chart.
_NAMES_ABOVE, _NAME_WIDTH = 26, 110
_DASHES: Final = ("", "6 3", "2 3")
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
    axes = _Axes.of([known])
    places = axes.places(known)
    area = f"{places[0][0]},{_FLOOR} {_joined(places)} {places[-1][0]},{_FLOOR}"
    filled = f'<polygon class="ksr-bar" fill="currentColor" fill-opacity=".15" points="{area}"/>' if len(places) > 1 else ""
    return _svg(_LINE_WIDTH, _LINE_HEIGHT, title, f"{axes.drawn()}{filled}{_line(places)}")


def time_lines(title: str, lines: Sequence[tuple[str, Iterable[Point]]]) -> str:
    """Returns a chart of up to three lines over time with their names, or "" if none has a point.

    The lines differ by their dashes, which are legible without colours, too.

    Args:
        title: Text for screen readers and for the pointer.
        lines: Pairs of a name and the points, as for `time_series`. The first line is not dashed.
    """
    known = [(name, thinned(points, _MOST_POINTS)) for name, points in lines]
    drawn = [(name, points, dashes) for (name, points), dashes in zip(known, _DASHES, strict=False) if points]
    if not drawn:
        return ""
    axes = _Axes.of([points for _, points, _ in drawn])
    parts = [axes.drawn()]
    for place, (name, points, dashes) in enumerate(drawn):
        left = _LEFT + place * _NAME_WIDTH
        sample = [(str(left), "8"), (str(left + 28), "8")]
        parts.append(_line(axes.places(points), dashes) + _line(sample, dashes))
        parts.append(f'<text {_FONT} x="{left + 34}" y="12">{escaped(name)}</text>')
    return _svg(_LINE_WIDTH, _LINE_HEIGHT, title, "".join(parts))


class _Axes(NamedTuple):
    """The axes of a chart over time. end: the last second. top: the highest value. above: the pixels above it."""

    end: float
    top: float
    above: int

    @classmethod
    def of(cls, lines: Sequence[Sequence[Point]]) -> _Axes:
        """lines: at least one, each with a point. Of several the names are above the chart."""
        end = max(1e-9, *(points[-1][0] for points in lines))
        top = _round_up(max(1.0, *(value for points in lines for _, value in points)))
        return cls(end, top, _ABOVE if len(lines) == 1 else _NAMES_ABOVE)

    def places(self, points: Sequence[Point]) -> list[tuple[str, str]]:
        """Returns where points are."""
        return [
            (
                _number(_LEFT + max(at, 0.0) / self.end * (_RIGHT - _LEFT)),
                _number(_FLOOR - max(value, 0.0) / self.top * (_FLOOR - self.above)),
            )
            for at, value in points
        ]

    def drawn(self) -> str:
        """Returns three horizontal rules with their values, and the times below."""
        return _grid(self.top, self.above) + "".join(_times(self.end))


def _joined(places: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{x},{y}" for x, y in places)


def _line(places: Sequence[tuple[str, str]], dashes: str = "") -> str:
    """Returns a line, or a dot if there is only one place."""
    if len(places) == 1:
        return f'<circle class="ksr-bar" fill="currentColor" cx="{places[0][0]}" cy="{places[0][1]}" r="3"/>'
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline class="ksr-line" fill="none" stroke="currentColor" stroke-width="1.5"{dashed} points="{_joined(places)}"/>'


def _grid(top: float, above: int) -> str:
    drawn = []
    for part in (0.0, 0.5, 1.0):
        y = _FLOOR - part * (_FLOOR - above)
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
