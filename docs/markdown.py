"""Pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table. Bars inside of cells are escaped."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def plain(text: str) -> str:
    """Returns a text in which no character but the backtick has a meaning: `<` would begin HTML, `*` and `__` emphasis."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*]|__)", r"\\\1", part) for part in parts)


def anchor(heading: str) -> str:
    """Returns the name under which GitHub and MyST link to a heading."""
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-").lower()
