"""Columns of text, as wide as what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Two blanks between columns, none at the ends of lines."""
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def age(ms: int) -> str:
    """`12 s`, `3 min`, `5 h`, `2 days`."""
    seconds = max(0, ms) // 1000
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


def partitions_text(partitions: Iterable[tuple[str, str]]) -> str:
    """`events 0-3,7 other 1`."""
    return " ".join(f"{topic} {numbers}" for topic, numbers in partitions) or "-"
