"""Translates the regular expressions of JSON Schema for Arrow's engine, RE2.

Validators use the expressions of JavaScript, of Java or of Python, which differ in details: which digits `\\d` matches, or
whether `$` matches before a last line break. A translation matches only text that all of them match. An expression without one
is refused.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.formats.json_schema.json_kernels import Rows, matches
from spark_kafka_sink.records.arrow_arrays import filled_numbers

# Every character that one of them counts as white space, for what must match none of them.
_SPACES: Final = r"\x{9}-\x{d}\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\x{9}-\x{d}\x{20}"}
_CLASSES_TO_NEGATE: Final = {"d": r"\p{Nd}", "s": _SPACES}
_NEGATED: Final = {"D": r"[^\p{Nd}]", "S": f"[^{_SPACES}]"}
_ANY: Final = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_CONTROLS: Final = {"t": 9, "n": 10, "f": 12, "r": 13}
_OPERATOR: Final = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??", re.ASCII)
_CODE: Final = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})")
# Engines give these a meaning of their own inside of a class.
_OF_SETS: Final = ("[", "&&", "--", "~~", "||")


class PatternError(ValueError):
    """An expression that is not supported. The text is the reason."""


def translated(pattern: str) -> str:
    """Returns an expression for Arrow that matches only what every validator matches. Raises PatternError."""
    found = _Translation(pattern).whole()
    try:
        pc.match_substring_regex(pa.array([""]), found)
    except pa.ArrowInvalid:
        raise PatternError("the expression is not valid, or too large") from None
    return found


class _Translation:
    """Translates one expression, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def whole(self) -> str:
        made = []
        can_repeat = False
        while self._at < len(self._pattern):
            operator = _OPERATOR.match(self._pattern, self._at)
            if operator is None:
                made.append(self._piece())
                can_repeat = made[-1] not in ("^", "$", "|", "(", "(?:")
            elif can_repeat:
                made.append(operator[0])
                self._at = operator.end()
                can_repeat = False
            else:
                raise PatternError(f"{operator[0]} has nothing to repeat")
        return "".join(made)

    def _next(self) -> str:
        if self._at == len(self._pattern):
            raise PatternError("the expression ends too early")
        self._at += 1
        return self._pattern[self._at - 1]

    def _takes(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _piece(self) -> str:
        if self._takes("(?:"):
            return "(?:"
        if self._takes("(?"):
            raise PatternError("groups that begin with (? are not supported")
        char = self._next()
        if char in "^$|()":
            return char
        if char == ".":
            return _ANY
        if char == "[":
            return self._class()
        if char in "{}]":
            raise PatternError(f"{char} must be written as \\{char}")
        if char != "\\":
            return _literal(ord(char))
        escaped = self._next()
        if escaped in _CLASSES:
            return f"[{_CLASSES[escaped]}]"
        return _NEGATED.get(escaped) or _literal(self._escaped(escaped))

    def _escaped(self, char: str) -> int:
        """Returns the code of the character that stands after a backslash."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        code = _CODE.match(self._pattern, self._at - 1)
        if code is not None:
            self._at = code.end()
            return int(code[1] or code[2], 16)
        if char.isascii() and char.isprintable() and not char.isalnum():
            return ord(char)
        raise PatternError(f"\\{char} is not supported")

    def _class(self) -> str:
        negated = self._takes("^")
        made: list[str] = [_literal(ord("-"))] if self._takes("-") else []
        while not self._takes("]"):
            first = self._member(negated)
            if not self._takes("-"):
                made.append(first if isinstance(first, str) else _literal(first))
            elif self._pattern.startswith("]", self._at):
                made += [first if isinstance(first, str) else _literal(first), _literal(ord("-"))]
            else:
                made.append(_range(first, self._member(negated)))
        if not made:
            raise PatternError("an empty class of characters is not supported")
        return f"[{'^' if negated else ''}{''.join(made)}]"

    def _member(self, negated: bool) -> int | str:
        """Returns the code of a character in a class, or the ranges of a class inside of it."""
        for text in _OF_SETS:
            if self._pattern.startswith(text, self._at):
                raise PatternError(f"{text} in a class of characters is not supported")
        char = self._next()
        if char == "-":
            raise PatternError("- in the middle of a class of characters must be written as \\-")
        if char != "\\":
            return ord(char)
        escaped = self._next()
        classes = _CLASSES_TO_NEGATE if negated else _CLASSES
        if escaped in classes:
            return classes[escaped]
        return self._escaped(escaped)


def _literal(code: int) -> str:
    if 0xD800 <= code < 0xE000:
        raise PatternError("half a surrogate pair is not supported")
    return f"\\x{{{code:x}}}"


def _range(first: int | str, last: int | str) -> str:
    if isinstance(first, str) or isinstance(last, str) or last < first:
        raise PatternError("a range in a class of characters is not valid")
    return f"{_literal(first)}-{_literal(last)}"


_OF_JSON_SCHEMA: Final = frozenset(
    {"color", "date", "date-time", "duration", "email", "host-name", "hostname", "idn-email", "idn-hostname", "ip-address"}
    | {"ipv4", "ipv6", "iri", "iri-reference", "json-pointer", "phone", "regex", "relative-json-pointer", "style", "time"}
    | {"uri", "uri-reference", "uri-template", "utc-millisec", "uuid"}
)
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_DATE: Final = "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_ATOM: Final = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_EXPRESSIONS: Final = {
    "date": f"^{_DATE}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "email": rf"^{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*$",
    "ipv4": rf"^{_BYTE}(?:\.{_BYTE}){{3}}$",
    "time": f"^{_TIME}$",
    "uuid": "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
}
"""The formats that text is checked for, as expressions of RE2 and of Python. Some are stricter than the format, as validators
differ.
"""
_COMPILED: Final[Mapping[str, re.Pattern[str]]] = {name: re.compile(one, re.ASCII) for name, one in _EXPRESSIONS.items()}


def is_known(name: str) -> bool:
    """Returns whether JSON Schema defines a format. Validators ignore the others."""
    return name in _OF_JSON_SCHEMA


def is_supported(name: str) -> bool:
    """Returns whether text can be checked for a format."""
    return name in _EXPRESSIONS


def supported() -> tuple[str, ...]:
    """Returns the names of the formats that text can be checked for."""
    return tuple(_EXPRESSIONS)


def text_has_format(name: str, text: str) -> bool:
    """Returns whether a text has a supported format, as `has_format` does for columns."""
    if _COMPILED[name].fullmatch(text) is None:
        return False
    if name.startswith("date"):
        try:
            datetime.date.fromisoformat(text[:10])
        except ValueError:
            return False
    return True


def has_format(name: str) -> Rows:
    """Returns whether each row's text has one of those formats."""
    matching = matches(_EXPRESSIONS[name])
    if not name.startswith("date"):
        return matching
    return lambda column: pc.and_(matching(column), _is_day(column, matching(column)))


def _is_day(column: pa.Array, matching: pa.Array) -> pa.Array:
    """Returns whether the month of each row that begins with a date has its day."""
    found = pc.if_else(pc.fill_null(matching, False), column.cast(pa.string()), pa.scalar("2000-01-01"))
    year, month, day = (
        filled_numbers(pc.utf8_slice_codeunits(found, *place).cast(pa.int32()), np.int32, 1)
        for place in ((0, 4), (5, 7), (8, 10))
    )
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    days = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[month] + ((month == 2) & is_leap)
    return pa.array((day <= days) & (year > 0))
