"""Parser for Java properties files: `name=value` lines with escapes, as `java.util.Properties.load` reads them."""

from __future__ import annotations

import re
from typing import Final

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u.{0,4}|.|$)", re.DOTALL)
_BLANK: Final = " \t\f"
# A backslash escapes a character that would otherwise end the name.
_NAME: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:([=:])[ \t\f]*)?(.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """Returns the values of a properties file by name. If a name occurs twice, the last value counts.

    Raises ValueError for an incomplete escape. The error has the line number but nothing from the file.
    """
    found = {}
    for number, line in _logical_lines(text):
        name, _, value = _parts(line)
        try:
            found[_unescaped(name)] = _unescaped(value)
        except ValueError:
            raise ValueError(f"line {number}: \\u needs four hexadecimal digits") from None
    return found


def lines_without_sign(text: str) -> list[int]:
    """Returns the numbers of lines that have a name but no `=`, `:` or value. Java reads them as empty values."""
    return [number for number, line in _logical_lines(text) if not any(_parts(line)[1:])]


def _parts(line: str) -> tuple[str, str, str]:
    match = _NAME.fullmatch(line)
    assert match is not None  # every part may be empty
    return match[1], match[2] or "", match[3]


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Returns the lines that are not comments, each with its first line number. A line with a trailing backslash is joined with
    the next.
    """
    lines: list[tuple[int, str]] = []
    joined: str | None = None
    start = 0
    # str.splitlines would also split at form feeds and Unicode line separators.
    for number, each in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = each.lstrip(_BLANK)
        if joined is None:
            if not line or line[0] in "#!":
                continue
            start, joined = number, ""
        joined += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined = joined[:-1]
        else:
            lines.append((start, joined))
            joined = None
    if joined:
        lines.append((start, joined))
    return lines


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if not escaped.startswith("u"):
            return _ESCAPES.get(escaped, escaped)
        if len(escaped) < 5 or not re.fullmatch("[0-9a-fA-F]{4}", escaped[1:]):
            raise ValueError
        return chr(int(escaped[1:], 16))

    text = _ESCAPE.sub(plain, text)
    # \ud83d\ude00 is one character, as in Java's UTF-16.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
