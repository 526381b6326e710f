"""Encodes columns of one Arrow type as one of Protobuf's scalar types or as an enum, without tags; and as Timestamp or Duration.

A kernel takes a column with at least one present row. In the other rows, a `Packed` may hold anything, and a `Views` is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.formats.nodes import (
    MS_PER_DAY,
    PER_SECOND,
    WHOLE,
    MisfitError,
    Node,
    bits,
    check_range,
    filled,
    float_bits,
    floats,
    plain,
    plain_text,
    symbol_places,
)
from spark_kafka_sink.formats.protobuf.message_types import DURATION, LIMITS_S, TIMESTAMP, Enum, tag
from spark_kafka_sink.producer.serializers.arrays import BadRowError, first_row, is_binary, is_text, is_uuid
from spark_kafka_sink.producer.serializers.text import uuid_text
from spark_kafka_sink.records.arrow_arrays import byte_lengths, numbers, text_scalar
from spark_kafka_sink.records.concat import Part, Present, column_views, masked
from spark_kafka_sink.records.varints import Packed, Words, unsigned_varints, varints

VARINT: Final = 0
FIXED64: Final = 1
SIZED: Final = 2
FIXED32: Final = 5

LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (-(2**31), 2**31 - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(2**63), 2**63 - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (0, 2**32 - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (0, 2**64 - 1)),
}
WIRE_TYPES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "enum"), VARINT),
    **dict.fromkeys(("fixed64", "sfixed64", "double"), FIXED64),
    **dict.fromkeys(("string", "bytes", "message"), SIZED),
    **dict.fromkeys(("fixed32", "sfixed32", "float"), FIXED32),
}
_DAYS: Final = ("int32", "sint32", "sfixed32", "int64", "sint64", "sfixed64")
_PLAIN_SCALE: Final = 6  # Arrow writes decimals with more digits after the point as 0E-7


class Encoded(NamedTuple):
    """A column's values.

    Attributes:
        parts: their bytes.
        other: mask of the rows whose value is not the default; None if it was not asked for, or if no row has the default.
    """

    parts: Sequence[Part]
    other: NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class ScalarKernel:
    """How columns of one type are written.

    Attributes:
        wire_type: the wire type for the tag.
        encode: encodes a column. The flag asks for the rows whose value is not the default.
        fixed: returns the bytes of a column without nulls, if all values have one size; None: they do not.
    """

    wire_type: int
    encode: Callable[[pa.Array, Present | None, bool], Encoded]
    fixed: Callable[[pa.Array], NDArray[Any]] | None = None


def scalar_kernel(target: str, kind: pa.DataType) -> ScalarKernel:
    """Returns the kernel of a scalar type. Raises MisfitError with the reason if the type cannot hold columns of `kind`."""
    if target in LIMITS:
        return _whole(target, kind)
    return _OTHERS[target](kind)


def enum_kernel(schema: Enum, kind: pa.DataType) -> ScalarKernel:
    """Returns the kernel for an enum, from names or numbers. An unknown one raises BadRowError."""
    if is_text(kind):
        places = symbol_places(
            [name for name, _ in schema.values], kind, f"the text is not a name of {schema}: {schema.listed()}"
        )
        by_place = np.array([number for _, number in schema.values], np.int64)
        return ScalarKernel(VARINT, lambda column, present, ask: _varints_of(by_place[places(column, present)], None, ask))
    if kind not in WHOLE:
        raise MisfitError("it must be string or a whole number")
    known = np.unique(np.array([number for _, number in schema.values], np.int64))
    is_run = int(known[-1]) - int(known[0]) == len(known) - 1

    def encode(column: pa.Array, present: Present | None, ask: bool) -> Encoded:
        values = filled(numbers(column, WHOLE[kind]), present)
        low, high = int(values.min()), int(values.max())
        if not is_run or low < known[0] or high > known[-1]:
            bad = first_row(~np.isin(values, known))
            if bad is not None:
                raise BadRowError(bad, f"{values[bad]} is not a number of {schema}: {schema.listed()}")
        return _varints_of(values.astype(np.int64, copy=False), (low, high), ask)

    return ScalarKernel(VARINT, encode)


# Whole numbers


def _whole(target: str, kind: pa.DataType) -> ScalarKernel:
    read = _reader(target, kind)

    def values_of(column: pa.Array, present: Present | None) -> tuple[NDArray[Any], int, int]:
        values = read(column, present)
        return values, *check_range(values, LIMITS[target], target)

    wire_type = WIRE_TYPES[target]
    if wire_type == VARINT:

        def encode(column: pa.Array, present: Present | None, ask: bool) -> Encoded:
            values, low, high = values_of(column, present)
            if target.startswith("s"):
                return Encoded(varints(values.astype(np.int64, copy=False), (low, high)), _not_zero(values, low, high, ask))
            return _varints_of(values, (low, high), ask)

        return ScalarKernel(wire_type, encode)
    own = np.dtype(f"{'i' if target.startswith('s') else 'u'}{4 if wire_type == FIXED32 else 8}")
    size = own.itemsize

    def encode_fixed(column: pa.Array, present: Present | None, ask: bool) -> Encoded:
        values, low, high = values_of(column, present)
        word: Words = values.astype(own).view(f"u{size}").astype(np.uint64, copy=False)
        return Encoded([Packed(word, 8 * size, size)], _not_zero(values, low, high, ask))

    return ScalarKernel(wire_type, encode_fixed, lambda column: values_of(column, None)[0].astype(own))


def _varints_of(values: NDArray[Any], extremes: tuple[int, int] | None, ask: bool) -> Encoded:
    """Returns plain varints. A negative number takes ten bytes."""
    low, high = extremes or (int(values.min()), int(values.max()))
    if low < 0:
        codes: Words = values.astype(np.int64, copy=False).view(np.uint64)
        return Encoded(unsigned_varints(codes), _not_zero(values, low, high, ask))
    codes = values.astype(np.int64, copy=False).view(np.uint64) if values.dtype != np.uint64 else values
    return Encoded(unsigned_varints(codes, (low, high)), _not_zero(values, low, high, ask))


def _not_zero(values: NDArray[Any], low: int, high: int, ask: bool) -> NDArray[np.bool_] | None:
    return values != 0 if ask and low <= 0 <= high else None


def _reader(target: str, kind: pa.DataType) -> Callable[[pa.Array, Present | None], NDArray[Any]]:
    """Returns how to read a column as whole numbers. Dates become days, times nanoseconds, other timestamps micros."""
    dtype = WHOLE.get(kind)
    if dtype is not None:
        return lambda column, present: filled(numbers(column, dtype), present)
    if pa.types.is_date(kind) and target in _DAYS:
        if kind == pa.date32():
            return lambda column, present: filled(numbers(column, np.int32), present)
        return lambda column, present: filled(numbers(column, np.int64), present) // MS_PER_DAY
    if pa.types.is_time(kind) and target.endswith("64"):
        times = 10**9 // PER_SECOND[kind.unit]
        own = np.int32 if pa.types.is_time32(kind) else np.int64
        return lambda column, present: filled(numbers(column, own), present).astype(np.int64) * times
    if pa.types.is_timestamp(kind) and target in ("int64", "sint64", "sfixed64"):
        if kind.tz is not None:
            raise MisfitError("use google.protobuf.Timestamp, or cast it to a whole number")
        return _micros(PER_SECOND[kind.unit])
    raise MisfitError("it must be a whole number")


def _micros(per_second: int) -> Callable[[pa.Array, Present | None], NDArray[np.int64]]:
    times, divisor = max(10**6 // per_second, 1), max(per_second // 10**6, 1)
    most = (2**63 - 1) // times

    def read(column: pa.Array, present: Present | None) -> NDArray[np.int64]:
        values: NDArray[np.int64] = filled(numbers(column, np.int64), present)
        bad = first_row((values > most) | (values < -most)) if times > 1 else None
        if bad is not None:
            raise BadRowError(bad, "the value is out of range for microseconds in 64 bits")
        return values * times if times > 1 else values // divisor if divisor > 1 else values

    return read


# Booleans and floats


def _boolean(kind: pa.DataType) -> ScalarKernel:
    if not pa.types.is_boolean(kind):
        raise MisfitError("it must be boolean")

    def encode(column: pa.Array, _present: Present | None, ask: bool) -> Encoded:
        values = bits(column)
        return Encoded([Packed(values.astype(np.uint64), 8, 1)], values.view(np.bool_) if ask else None)

    return ScalarKernel(VARINT, encode)


def _floating(target: str, kind: pa.DataType) -> ScalarKernel:
    read = floats(target, kind)

    def encode(column: pa.Array, _present: Present | None, ask: bool) -> Encoded:
        packed = float_bits(read(column))
        return Encoded([packed], np.not_equal(packed.word, 0) if ask else None)  # so -0.0 is not the default

    return ScalarKernel(WIRE_TYPES[target], encode, read)


# Text and bytes


def _string(kind: pa.DataType) -> ScalarKernel:
    if pa.types.is_decimal(kind):
        if kind.scale < 0:
            raise MisfitError("a negative scale is not supported: cast it")
        return ScalarKernel(SIZED, lambda column, present, ask: sized(_decimal_text(column), present, ask))
    if is_uuid(kind):
        return ScalarKernel(SIZED, lambda column, present, ask: sized(uuid_text(column.storage), present, ask))
    if not is_text(kind):
        raise MisfitError("it must be string")
    return ScalarKernel(SIZED, lambda column, present, ask: sized(plain_text(column), present, ask))


def _bytes(kind: pa.DataType) -> ScalarKernel:
    if not is_binary(kind) and not is_text(kind):
        raise MisfitError("it must be binary")
    return ScalarKernel(SIZED, lambda column, present, ask: sized(plain(column), present, ask))


def sized(column: pa.Array, present: Present | None, ask: bool) -> Encoded:
    """Returns each row's length and bytes. column: binary, string or their large types."""
    lengths = byte_lengths(column)
    views = column_views(column, lengths, None)
    if isinstance(views.lengths, int):
        nowhere = np.zeros(len(column), np.bool_) if ask and not views.lengths else None
        return Encoded([*unsigned_varints(views.lengths), views], nowhere)
    counts: NDArray[np.int64] = filled(views.lengths, present) if views.has_nulls else views.lengths
    bounds = max(lengths.shortest, 0), lengths.longest
    parts: list[Part] = [*unsigned_varints(counts.view(np.uint64), bounds), views]
    return Encoded(parts, counts > 0 if ask and lengths.shortest <= 0 else None)


def _decimal_text(column: pa.Array) -> pa.Array:
    """Returns decimals as Spark's cast to string writes them: all digits, without an exponent."""
    kind = column.type
    if kind.scale <= _PLAIN_SCALE:
        return column.cast(pa.string())
    same = type(kind)  # the same numbers without a point
    whole = _MADE_BY[same](max(kind.precision, kind.scale), 0)
    digits = pa.Array.from_buffers(whole, len(column), column.buffers(), offset=column.offset).cast(pa.string())
    sign = pc.if_else(pc.starts_with(digits, "-"), text_scalar("-"), text_scalar(""))
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), kind.scale + 1, "0")
    before, after = pc.utf8_slice_codeunits(digits, 0, -kind.scale), pc.utf8_slice_codeunits(digits, -kind.scale)
    return pc.binary_join_element_wise(sign, before, text_scalar("."), after, text_scalar(""))


_MADE_BY: Final[Mapping[type, Callable[[int, int], pa.DataType]]] = {
    type(make(1, 0)): make for make in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)
}
_OTHERS: Final[Mapping[str, Callable[[pa.DataType], ScalarKernel]]] = {
    "bool": _boolean,
    "float": partial(_floating, "float"),
    "double": partial(_floating, "double"),
    "string": _string,
    "bytes": _bytes,
}


# Timestamp and Duration

_SECONDS: Final = Packed(int.from_bytes(tag(1, VARINT), "little"), 8, 1)
_NANOS: Final = Packed(int.from_bytes(tag(2, VARINT), "little"), 8, 1)


def seconds_and_nanos(name: str, kind: pa.DataType) -> Node | None:
    """Returns the fields of a Timestamp or Duration; None if a struct brings them. Raises MisfitError for another column."""
    if pa.types.is_struct(kind):
        return None
    if name == TIMESTAMP:
        if not pa.types.is_timestamp(kind):
            raise MisfitError("it must be timestamp")
        if kind.tz is None:
            raise MisfitError("it is in UTC: use a timestamp with a time zone")
    elif not pa.types.is_duration(kind):
        raise MisfitError("it must be an interval of days to seconds")
    return _TimeNode(name, PER_SECOND[kind.unit])


@dataclass(frozen=True, slots=True)
class _TimeNode(Node):
    """The fields `seconds` and `nanos`. Both are left out if they are 0."""

    name: str
    per_second: int

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        values = filled(numbers(column, np.int64), present)
        seconds = values // self.per_second
        nanos = (values - seconds * self.per_second) * (10**9 // self.per_second)
        if self.name == DURATION:  # both have the sign of the duration
            cut = (seconds < 0) & (nanos > 0)
            seconds = seconds + cut
            nanos = nanos - cut * np.int64(10**9)
        least, greatest = LIMITS_S[self.name]
        if int(seconds.min()) < least or int(seconds.max()) > greatest:
            bad = first_row((seconds < least) | (seconds > greatest))
            assert bad is not None
            raise BadRowError(bad, f"the value is out of range for {self.name}")
        return [*_field(_SECONDS, seconds, present), *_field(_NANOS, nanos, present)]


def _field(before: Packed, values: NDArray[np.int64], present: Present | None) -> Sequence[Part]:
    used = values != 0
    if present is not None:
        used &= present.rows
    if not used.any():
        return ()
    first, *more = unsigned_varints(values.view(np.uint64))
    parts: list[Part] = [before.then(first), *more] if first.max_bytes < 8 else [before, first, *more]
    return masked(parts, None if used.all() else Present.of(used))
