"""Keywords about single values: each is judged from the type of a column, or becomes a check of it.

A keyword that says nothing about a type, such as `minimum` for text, is none of its keywords.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.formats.json_schema import json_kernels as kernels
from spark_kafka_sink.formats.json_schema.json_document import shown, with_article
from spark_kafka_sink.formats.json_schema.json_kernels import Check, Rows, matches
from spark_kafka_sink.formats.nodes import MisfitError, listed
from spark_kafka_sink.producer.serializers.arrays import is_binary, is_text, is_uuid
from spark_kafka_sink.records.arrow_arrays import filled_numbers

_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_MULTIPLES: Final = ("multipleOf", "divisibleBy")
_OF_TEXT: Final = ("pattern", "format", "contentEncoding")
VALUE_KEYWORDS: Final = ("enum", "const", *_BOUNDS, *_MULTIPLES, *_OF_TEXT)
_MOST_EXACT_DOUBLE: Final = 2**53
_DIGITS_OF_INT64: Final = 18
_LARGEST_EXPONENT: Final = 307  # of doubles, rounded down


def value_check(keyword: str, schema: Mapping[str, Any], kind: pa.DataType, written: str) -> Check | None:
    """Returns the check for a keyword of a schema; None: nothing depends on the values.

    Args:
        keyword: one of `VALUE_KEYWORDS` that the schema has.
        schema: the schema.
        kind: type of the column.
        written: its type in JSON.

    Raises:
        MisfitError: the column does not fit, or the keyword is not supported for it.
    """
    value = schema[keyword]
    if keyword in ("enum", "const"):
        return _one_of(value if keyword == "enum" else [value], kind, written)
    if written == "string":
        if keyword == "pattern":
            return _pattern(value)
        if keyword == "format":
            return _format(value, kind)
        if keyword == "contentEncoding" and is_binary(kind) and value != "base64":
            raise MisfitError("binary is written in base64")
    if written not in ("integer", "number") or keyword in _OF_TEXT:
        return None
    return _multiple(value, kind) if keyword in _MULTIPLES else _bound(keyword, schema, kind, written)


def is_number(value: Any) -> bool:
    """Returns whether a keyword's value is a number that a double can hold."""
    return isinstance(value, int | Decimal) and not isinstance(value, bool) and Decimal(value).adjusted() <= _LARGEST_EXPONENT


def _one_of(values: Any, kind: pa.DataType, written: str) -> Check | None:
    """Returns the check that a column has only values of a list. Raises MisfitError."""
    if written == "null":
        if None not in (values if isinstance(values, list) else []):
            raise MisfitError("null is not among the values")
        return None
    if written in ("object", "array"):
        raise MisfitError(f"is not supported for {with_article(written)}")
    known = _values_of((values if isinstance(values, list) else []), kind, written)
    if not known:
        raise MisfitError(f"none of the values is {with_article(written)} that the column can hold")
    problem = f"it is not one of the values that the schema allows: {listed(list(map(shown, known)))}"
    return kernels.check(kernels.is_one_of(known, kind), problem)


def _values_of(values: Sequence[Any], kind: pa.DataType, written: str) -> list[Any]:
    """Returns those values that a column can have, as values of its type."""
    if written == "boolean":
        return [value for value in values if isinstance(value, bool)]
    if written == "string":
        return [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if is_number(value)]
    # A reader compares whole numbers exactly, and fractions as doubles.
    exact = int if written == "integer" else Decimal
    numbers = [number for number in numbers if isinstance(number, exact) or _is_double(number)]
    if kernels.is_exact_decimal(kind):
        return [Decimal(number) for number in numbers if _holds(kind, Decimal(number))]
    if written == "number":
        return [float(number) for number in numbers]
    return [int(number) for number in numbers if number == int(number) and _holds(kind, int(number))]


def _is_double(number: int | Decimal) -> bool:
    try:
        return float(number) == number
    except OverflowError:
        return False


def _holds(kind: pa.DataType, number: int | Decimal) -> bool:
    try:
        pa.scalar(number, kind)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def _bound(keyword: str, schema: Mapping[str, Any], kind: pa.DataType, written: str) -> Check | None:
    """Returns the check of a bound. In draft 4, an exclusive bound is a bool beside the other."""
    value = schema[keyword]
    if isinstance(value, bool) and keyword.startswith("exclusive"):
        return None
    if not is_number(value):
        raise MisfitError("is not a number")
    lower = keyword.lower().endswith("minimum")
    exclusive = keyword.startswith("exclusive") or schema.get(f"exclusive{keyword.capitalize()}") is True
    side = ("above" if lower else "below") if exclusive else ("below" if lower else "above")
    bound = value
    if isinstance(value, Decimal) and written == "integer":  # a reader may have it as a double, which is another number
        bound = (max if lower else min)(value, Decimal(float(value)))
    valid = kernels.within(kind, bound, lower=lower, exclusive=exclusive)
    return kernels.check(valid, f"it is {'not ' if exclusive else ''}{side} {value}")


def _multiple(divisor: Any, kind: pa.DataType) -> Check | None:
    if not is_number(divisor) or not isinstance(divisor, int) or divisor <= 0:
        raise MisfitError("only whole numbers are supported")
    is_whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0 and kind.precision <= _DIGITS_OF_INT64)
    if not is_whole and not (pa.types.is_floating(kind) and divisor <= _MOST_EXACT_DOUBLE):
        raise MisfitError("is not supported for this type; cast the column to bigint")
    valid = kernels.is_multiple_of_integer(divisor) if is_whole else kernels.is_multiple_of_double(divisor)
    return kernels.check(valid, f"it is not a multiple of {divisor}")


def _pattern(pattern: Any) -> Check:
    if not isinstance(pattern, str):
        raise MisfitError("is not text")
    try:
        expression = translated(pattern)
    except PatternError as error:
        raise MisfitError(str(error)) from None
    return kernels.check(kernels.matches(expression), f"it does not match the pattern {pattern}")


def _format(name: Any, kind: pa.DataType) -> Check | None:
    """Returns the check of a format; None: the type alone has it, or no validator knows it. Raises MisfitError."""
    if not isinstance(name, str):
        raise MisfitError("is not text")
    if name not in KNOWN_FORMATS:
        return None
    if is_text(kind):
        if name not in CHECKED_FORMATS:
            raise MisfitError(f"the format {name} is not supported")
        return kernels.check(has_format(name), f"it does not have the format {name}")
    if is_uuid(kind) and name == "uuid":
        return None
    is_date = pa.types.is_date(kind) and name == "date"
    if is_date or (pa.types.is_timestamp(kind) and kind.tz is not None and name == "date-time"):
        return kernels.check(kernels.has_four_digit_year, "its year is not from 1 to 9999")
    if (pa.types.is_time(kind) and name == "time") or (pa.types.is_timestamp(kind) and name == "date-time"):
        raise MisfitError(f"the format {name} needs a time zone, and the column has none")
    raise MisfitError(f"the column is not written in the format {name}")


# Patterns are translated for Arrow's engine, RE2. Validators use the expressions of JavaScript, of Java or of Python, which
# differ in details: which digits `\d` matches, or whether `$` matches before a last line break. A translation matches only text
# that all of them match. An expression without one is refused.

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
                last = self._member(negated)
                if isinstance(first, str) or isinstance(last, str) or last < first:
                    raise PatternError("a range in a class of characters is not valid")
                made.append(f"{_literal(first)}-{_literal(last)}")
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


# Formats of text

KNOWN_FORMATS: Final = frozenset(
    {"color", "date", "date-time", "duration", "email", "host-name", "hostname", "idn-email", "idn-hostname", "ip-address"}
    | {"ipv4", "ipv6", "iri", "iri-reference", "json-pointer", "phone", "regex", "relative-json-pointer", "style", "time"}
    | {"uri", "uri-reference", "uri-template", "utc-millisec", "uuid"}
)
"""The formats that JSON Schema defines. Validators ignore the others."""
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_DATE: Final = "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_ATOM: Final = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
CHECKED_FORMATS: Final = {
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
_COMPILED: Final[Mapping[str, re.Pattern[str]]] = {name: re.compile(one, re.ASCII) for name, one in CHECKED_FORMATS.items()}


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
    matching = matches(CHECKED_FORMATS[name])
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
