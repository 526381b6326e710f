"""Widths of text in a terminal, where characters of East Asian scripts and emoji take two columns. Pure."""

from __future__ import annotations

from itertools import accumulate
from unicodedata import east_asian_width


def width(text: str) -> int:
    """Returns how many columns a text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, most: int) -> str:
    """Returns the beginning of a text that takes at most `most` columns."""
    if text.isascii():
        return text[:most]
    return "".join(char for char, end in zip(text, accumulate(map(_columns, text)), strict=True) if end <= most)


def padded(text: str, columns: int, *, is_left: bool) -> str:
    """Returns a text with spaces, so that it takes `columns` columns. is_left: whether the text comes first."""
    spaces = " " * (columns - width(text))
    return text + spaces if is_left else spaces + text


def _columns(char: str) -> int:
    return 2 if east_asian_width(char) in "WF" else 1
