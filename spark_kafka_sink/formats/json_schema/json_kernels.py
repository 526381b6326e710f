"""Checks of keywords whose outcome depends on the values: each looks at a whole column and finds the first row that is not valid.

Columns are judged by the value that a reader gets: a number in JSON is a double for most of them, and a date is text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.producer.serializers.arrays import BadRowError, entries_of, is_text, list_parts, place_in_list
from spark_kafka_sink.producer.serializers.json_serializer import json_texts
from spark_kafka_sink.records.arrow_arrays import array_of_numbers, filled_numbers, valid_mask, validity

Check = Callable[[pa.Array], None]
"""Raises BadRowError for the first row of a column that is not valid. Null rows are valid."""

Rows = Callable[[pa.Array], pa.Array]
"""Returns for each row of a column whether it is valid; null for a null row."""

_WIDE: Final = Context(prec=10_000)
_SURE_DIGITS: Final = 15  # decimals of up to 15 digits differ as doubles, too


def check(valid: Rows, problem: str) -> Check:
    """Returns the check that all rows are valid."""

    def checked(column: pa.Array) -> None:
        found = valid(column)
        if not pc.all(found).as_py() and len(found) > found.null_count:
            row = pc.index(found, False).as_py()
            raise BadRowError(row, problem)

    return checked


# Nesting


def of_fields(fields: Sequence[tuple[int, str, bool, Sequence[Check]]]) -> Check:
    """Returns the check of a struct. fields: the place and the name of each, whether it is required, and its checks."""

    def checked(column: pa.Array) -> None:
        children = column.flatten()
        for place, name, is_required, checks in fields:
            values = children[place]
            try:
                if is_required and values.null_count > column.null_count:
                    missing = pc.and_(column.is_valid(), values.is_null())
                    raise BadRowError(pc.index(missing, True).as_py(), "it is null, and the schema requires it")
                run(checks, values)
            except BadRowError as bad:
                raise bad.inside(bad.row, f".{name}") from None

    return checked


def of_elements(checks: Sequence[Check], *, nullable: bool) -> Check:
    """Returns the check of an array, or of a map's values. nullable: whether its elements may be null."""

    def checked(column: pa.Array) -> None:
        is_map = pa.types.is_map(column.type)
        elements, starts = list_parts(entries_of(column) if is_map else column)
        if is_map:
            elements = elements.flatten()[1]
        try:
            if not nullable and elements.null_count:
                row = pc.index(elements.is_null(), True).as_py()
                raise BadRowError(row, "it is null, and the schema does not allow null")
            run(checks, elements)
        except BadRowError as bad:
            row, place = place_in_list(starts, bad.row)
            raise bad.inside(row, f"[{place}]") from None

    return checked


def of_dictionary(checks: Sequence[Check]) -> Check:
    """Returns the check of a dictionary's values."""
    return lambda column: run(checks, column.dictionary_decode())


def run(checks: Sequence[Check], column: pa.Array) -> None:
    """Runs all checks. Raises BadRowError."""
    for one in checks:
        one(column)


# Text and arrays


def texts(column: pa.Array) -> pa.Array:
    """Returns the text that a reader gets, as string. column: of a type that is written as text."""
    if is_text(column.type):
        return column.cast(pa.string())
    return pc.utf8_slice_codeunits(json_texts(column), 1, -1)


def of_length(length: Rows, least: int | Decimal | None, most: int | Decimal | None) -> Rows:
    """Returns whether each row's length is within bounds. `length` returns an integer for each row."""
    above = within(pa.int32(), 0 if least is None else least, lower=True, exclusive=False)
    below = within(pa.int32(), INT32_MAX if most is None else most, lower=False, exclusive=False)

    def valid(column: pa.Array) -> pa.Array:
        found = length(column).cast(pa.int32())
        return pc.and_(above(found), below(found))

    return valid


def text_length(column: pa.Array) -> pa.Array:
    return pc.utf8_length(texts(column))


def list_length(column: pa.Array) -> pa.Array:
    return pc.list_value_length(entries_of(column) if pa.types.is_map(column.type) else column)


def number_of_fields(column: pa.Array) -> pa.Array:
    """Returns how many fields of each row of a struct are not null, and so are written."""
    counts = np.zeros(len(column), np.int32)
    for values in column.flatten():
        counts += validity(values)
    return array_of_numbers(counts, valid_mask(column))


def matches(expression: str) -> Rows:
    """Returns whether each row's text matches an expression of RE2."""
    return lambda column: pc.match_substring_regex(texts(column), expression)


def is_one_of(values: Sequence[Any], kind: pa.DataType) -> Rows:
    """Returns whether each row is one of some values. values: of the column's type; text for what is written as text."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        known = pa.array(values, kind)
        return lambda column: _unless_null(pc.is_in(column, value_set=known), column)
    if is_exact_decimal(kind):
        known = pa.array(values, _wide_decimal(kind))
        return lambda column: _unless_null(pc.is_in(column.cast(known.type), value_set=known), column)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        # -0.0 equals 0, but not for Arrow.
        known = pa.array([*values, 0.0, -0.0] if 0 in values else values, pa.float64())
        return lambda column: _unless_null(pc.is_in(doubles(column), value_set=known), column)
    known = pa.array(values, pa.string())
    return lambda column: _unless_null(pc.is_in(texts(column), value_set=known), column)


def _unless_null(valid: pa.Array, column: pa.Array) -> pa.Array:
    return pc.or_(valid, column.is_null())


# Numbers


def is_exact_decimal(kind: pa.DataType) -> bool:
    """Returns whether a type is a decimal that Arrow can compare. It cannot compare negative scales."""
    return bool(pa.types.is_decimal(kind) and kind.scale >= 0)


def doubles(column: pa.Array) -> pa.Array:
    """Returns numbers as most readers of JSON get them. A float is written with the fewest digits, so it is another double."""
    if pa.types.is_float64(column.type):
        return column
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    return column.cast(pa.string()).cast(pa.float64())


def within(kind: pa.DataType, bound: int | Decimal, *, lower: bool, exclusive: bool) -> Rows:
    """Returns whether each row is on the right side of a bound.

    Args:
        kind: type of the column, a number.
        bound: the bound.
        lower: whether values must be above it.
        exclusive: whether the bound itself is not valid.
    """
    if pa.types.is_integer(kind) or is_exact_decimal(kind):
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        unscaled = _WIDE.scaleb(Decimal(bound), scale)
        nearest = int(unscaled.to_integral_value(ROUND_CEILING if lower else ROUND_FLOOR))
        if exclusive and nearest == unscaled:
            nearest += 1 if lower else -1
        exact = _within_unscaled(kind, nearest, scale, lower)
        if pa.types.is_integer(kind) or max(kind.precision, len(Decimal(bound).as_tuple().digits)) <= _SURE_DIGITS:
            return exact
        inexact = _within_doubles(bound, lower, exclusive)
        return lambda column: pc.and_(exact(column), inexact(column))
    return _within_doubles(bound, lower, exclusive)


def _within_unscaled(kind: pa.DataType, bound: int, scale: int, lower: bool) -> Rows:
    """Returns whether each row is at least, or at most, a number with the scale of its type."""
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        least, most, wide = int(limits.min), int(limits.max), kind
    else:
        wide = _wide_decimal(kind)
        most = 10**wide.precision - 1
        least = -most
    is_beyond = bound > most if lower else bound < least
    if is_beyond or (bound <= least if lower else bound >= most):
        return lambda column: pc.if_else(column.is_valid(), pa.scalar(not is_beyond), pa.scalar(None, pa.bool_()))
    limit = pa.scalar(bound if wide == kind and pa.types.is_integer(kind) else _WIDE.scaleb(Decimal(bound), -scale), wide)
    compare = pc.greater_equal if lower else pc.less_equal
    return lambda column: compare(column.cast(wide), limit)


def _wide_decimal(kind: pa.DataType) -> pa.DataType:
    """Returns a decimal type that Arrow can compare, which holds all values of a type."""
    return pa.decimal256(76, kind.scale) if pa.types.is_decimal256(kind) else pa.decimal128(38, kind.scale)


def _within_doubles(bound: int | Decimal, lower: bool, exclusive: bool) -> Rows:
    nearest = float(bound)
    if isinstance(bound, int) and int(nearest) != bound:
        # No other double lies between the two. So values beyond the bound are those beyond the double, or from it on.
        exclusive = int(nearest) < bound if lower else int(nearest) > bound
    if lower:
        compare = pc.greater if exclusive else pc.greater_equal
    else:
        compare = pc.less if exclusive else pc.less_equal
    limit = pa.scalar(nearest, pa.float64())
    return lambda column: compare(doubles(column), limit)


def is_multiple_of_integer(divisor: int) -> Rows:
    """Returns whether each row is a multiple. The column has integers, or decimals of at most 18 digits without a fraction."""

    def valid(column: pa.Array) -> pa.Array:
        numbers = column if pa.types.is_integer(column.type) else column.cast(pa.int64())
        values = filled_numbers(numbers, numbers.type.to_pandas_dtype(), 0)
        limits = np.iinfo(values.dtype)
        if divisor <= limits.max:
            found = values % values.dtype.type(divisor) == 0
        else:  # of such a divisor, the type may also have the negative
            found = (values == 0) | (values == limits.min) if divisor == -limits.min else values == 0
        return pa.array(found, mask=column.is_null().to_numpy(zero_copy_only=False))

    return valid


def is_multiple_of_double(divisor: int) -> Rows:
    """Returns whether each row of a column of floats is a multiple of a number that is a double."""

    def valid(column: pa.Array) -> pa.Array:
        values = filled_numbers(doubles(column), np.float64, 0)
        return pa.array(np.fmod(values, divisor) == 0, mask=column.is_null().to_numpy(zero_copy_only=False))

    return valid


# Dates

_PER_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_FIRST_DAY: Final = -719_162  # 0001-01-01
_LAST_DAY: Final = 2_932_896  # 9999-12-31


def has_four_digit_year(column: pa.Array) -> pa.Array:
    """Returns whether each date or timestamp has a year from 1 to 9999, the only ones that RFC 3339 and most readers know."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        days = _PER_DAY[kind.unit]
        values = column.cast(pa.int64())
    else:
        days = 1 if pa.types.is_date32(kind) else _PER_DAY["ms"]
        values = column.cast(pa.int32()).cast(pa.int64()) if days == 1 else column.cast(pa.int64())
    first, after = max(_FIRST_DAY * days, -(2**63)), min((_LAST_DAY + 1) * days, 2**63 - 1)
    return pc.and_(pc.greater_equal(values, pa.scalar(first, pa.int64())), pc.less(values, pa.scalar(after, pa.int64())))
