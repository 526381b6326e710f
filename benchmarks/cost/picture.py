"""The pictures of docs/performance.md and docs/measurements.md as SVG text, which follows the reader's light or dark colours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from benchmarks.cost.cells import BY_NAME
from benchmarks.cost.costs import Cost, Costs
from benchmarks.results import CEILING, CONFLUENT, JVM, JVM_TUNED, KAFKA_PYTHON, PARQUET, SINK, SINK_EXACTLY_ONCE

WIDTH = 980
_STYLE = """
  text { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .paper { fill: #ffffff; } .soft { fill: #57606a; font-size: 11px; } .strong { font-weight: 600; }
  .end { text-anchor: end; } .middle { text-anchor: middle; } .line { stroke: #d0d7de; }
  .jvm { fill: #0072b2; } .python { fill: #e69f00; } .ours { stroke: #1f2328; stroke-width: 2; }
  .tuned { fill: #56b4e9; } .confluent { fill: #009e73; }
  .kafka-python { fill: #cc79a7; } .floor { fill: #8c959f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .paper { fill: #0d1117; } .soft { fill: #9198a1; } .line { stroke: #3d444d; }
    .jvm { fill: #4aa8e0; } .python { fill: #f0b93a; } .ours { stroke: #e6edf3; }
    .tuned { fill: #9ad4f5; } .confluent { fill: #2fc79a; }
    .kafka-python { fill: #e3a1c6; } .floor { fill: #7d8590; }
  }
"""

# The panels of the first picture, and its bars. kafka-python is left out, because its bar would make the others short.
PANELS = ("100B-json-lz4-8", "1KB-json-lz4-8", "10KB-json-lz4-8", "100B-json-lz4-8-exactly-once")
BARS = (JVM, JVM_TUNED, SINK, SINK_EXACTLY_ONCE, CONFLUENT, CEILING, PARQUET)
_OURS = (SINK, SINK_EXACTLY_ONCE)
_BAR, _PANEL_WIDTH, _LABEL_WIDTH, _VALUE_WIDTH = 20, 476, 224, 50

# The marks of the second picture: contender -> class of its colour.
MARKS: Mapping[str, str] = {
    JVM: "jvm",
    JVM_TUNED: "tuned",
    CONFLUENT: "confluent",
    KAFKA_PYTHON: "kafka-python",
    CEILING: "floor",
}
_TICKS = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)
_ROW, _LEFT, _RIGHT = 26, 316, WIDTH - 30


def headline_picture(measured: Costs, labels: Mapping[str, str], measured_on: str) -> str:
    """Returns bars of the CPU time per row, JVM and Python apart, for each panel. Each panel has its own scale."""
    panels = [name for name in PANELS if name in measured]
    parts = [_text(20, 28, "CPU time of a row in the executor, in µs", "strong")]
    parts += _legend([("jvm", "in the JVM"), ("python", "in Python")], 330, 28)
    top = 50.0
    for first in range(0, len(panels), 2):
        heights = []
        for column, name in enumerate(panels[first : first + 2]):
            lines, height = _panel(name, measured[name], labels, 20 + column * (_PANEL_WIDTH - 8), top)
            parts += lines
            heights.append(height)
        top += max(heights)
    return _picture("CPU time of a row in the executor", parts, top, measured_on)


def _panel(name: str, cell: Mapping[str, Cost], labels: Mapping[str, str], left: float, top: float) -> tuple[list[str], float]:
    bars = [(bar, cell[bar]) for bar in BARS if bar in cell]
    longest = max(cost.cpu for _, cost in bars)
    scale = (_PANEL_WIDTH - _LABEL_WIDTH - _VALUE_WIDTH - 10) / longest
    parts = [_text(left, top + 14, BY_NAME[name].title, "strong")]
    y = top + 24.0
    for bar, cost in bars:
        is_ours = bar in _OURS
        x = left + _LABEL_WIDTH
        # The medians of the parts need not add up to the median of the whole, which the bar shows.
        jvm = cost.cpu * cost.jvm / ((cost.jvm + cost.python) or 1.0)
        parts.append(_text(x - 8, y + 14, labels[bar], "end strong" if is_ours else "end"))
        parts.append(_bar(x, y, jvm * scale, "jvm"))
        parts.append(_bar(x + jvm * scale, y, (cost.cpu - jvm) * scale, "python"))
        parts.append(_text(x + cost.cpu * scale + 6, y + 14, f"{cost.cpu:.3g}", "strong" if is_ours else ""))
        y += _BAR
    return parts, y - top + 16


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect class="{colour}" x="{x:.1f}" y="{y + 3:.1f}" width="{width:.1f}" height="{_BAR - 6}"/>'


def cells_picture(measured: Costs, labels: Mapping[str, str], measured_on: str) -> str:
    """Returns a line for each cell, with a mark for each contender at its multiple of this sink's CPU time."""
    shown = {name: dict(_multiples(name, cell)) for name, cell in measured.items() if BY_NAME[name].ours in cell}
    high = max([2.0, *(multiple for marks in shown.values() for multiple in marks.values())])
    low = min([0.5, *(multiple for marks in shown.values() for multiple in marks.values())])
    ticks = [tick for tick in _TICKS if low / 2 < tick < high * 2]

    def place(multiple: float) -> float:
        share = (math.log2(multiple) - math.log2(ticks[0])) / (math.log2(ticks[-1]) - math.log2(ticks[0]))
        return _LEFT + share * (_RIGHT - _LEFT)

    parts = [_text(20, 28, "CPU time of a row, as a multiple of this sink's", "strong")]
    parts += _legend([(colour, labels[name]) for name, colour in MARKS.items()], 20, 52)
    top, bottom = 74, 74 + 20 + _ROW * len(shown)
    for tick in ticks:
        line = "ours" if tick == 1 else "line"
        parts.append(f'<line class="{line}" x1="{place(tick):.1f}" y1="{top + 6}" x2="{place(tick):.1f}" y2="{bottom}"/>')
        parts.append(_text(place(tick), top, f"{tick:g} ×" if tick != 1 else "this sink", "middle soft"))
    for number, (name, marks) in enumerate(shown.items()):
        y = top + 20 + _ROW * number
        parts.append(_text(_LEFT - 14, y + 9, BY_NAME[name].title, "end"))
        parts.append(f'<line class="line" x1="{_LEFT}" y1="{y + 5}" x2="{_RIGHT}" y2="{y + 5}"/>')
        parts += [f'<circle class="{MARKS[one]}" cx="{place(at):.1f}" cy="{y + 5}" r="5"/>' for one, at in marks.items()]
    return _picture("CPU time of a row, as a multiple of this sink's", parts, bottom + 10, measured_on)


def _multiples(name: str, cell: Mapping[str, Cost]) -> Iterator[tuple[str, float]]:
    ours = cell[BY_NAME[name].ours].cpu
    return ((contender, cell[contender].cpu / ours) for contender in MARKS if contender in cell)


def _legend(entries: Sequence[tuple[str, str]], left: float, baseline: float) -> list[str]:
    parts, x = [], left
    for colour, label in entries:
        parts.append(f'<rect class="{colour}" x="{x:.1f}" y="{baseline - 10:.1f}" width="11" height="11"/>')
        parts.append(_text(x + 17, baseline, label, ""))
        x += 17 + 7.2 * len(label) + 18
    return parts


def _text(x: float, y: float, text: str, style: str) -> str:
    class_ = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{class_}>{escape(text)}</text>'


def _picture(title: str, parts: Sequence[str], bottom: float, measured_on: str) -> str:
    height = bottom + 22
    size = f'width="{WIDTH}" height="{height:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" {size} rx="8"/>',
        *parts,
        _text(20, height - 10, f"measured on {measured_on}", "soft"),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
