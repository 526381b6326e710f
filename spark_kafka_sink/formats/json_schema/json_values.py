"""Keywords about single values: each is judged from the type of a column, or becomes a check of it.

A keyword that says nothing about a type, such as `minimum` for text, is none of its keywords.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.formats.json_schema import json_kernels as kernels
from spark_kafka_sink.formats.json_schema.json_kernels import Check
from spark_kafka_sink.formats.json_schema.json_patterns import PatternError, has_format, is_known, is_supported, translated
from spark_kafka_sink.formats.json_schema.json_types import shown, with_article
from spark_kafka_sink.formats.nodes import MisfitError, listed
from spark_kafka_sink.producer.serializers.arrays import is_binary, is_text, is_uuid

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
    if keyword in _OF_TEXT:
        return _text_check(keyword, value, kind) if written == "string" else None
    if written not in ("integer", "number"):
        return None
    return _multiple(value, kind) if keyword in _MULTIPLES else _bound(keyword, schema, kind, written)


def _text_check(keyword: str, value: Any, kind: pa.DataType) -> Check | None:
    if keyword == "pattern":
        return _pattern(value)
    if keyword == "format":
        return _format(value, kind)
    if is_binary(kind) and value != "base64":
        raise MisfitError("binary is written in base64")
    return None


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
    if not is_known(name):
        return None
    if is_text(kind):
        if not is_supported(name):
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
