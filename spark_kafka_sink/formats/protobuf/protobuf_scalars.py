"""Encodes columns of one Arrow type as one of Protobuf's scalar types or as an enum, without tags.

A kernel takes a column with at least one present row. In the other rows, a `Packed` may hold anything, and a `Views` is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.formats.protobuf.message_types import Enum
from spark_kafka_sink.formats.schemas.kernel import MisfitError, filled
from spark_kafka_sink.producer.serializers.arrays import first_not_utf8, first_row, is_binary, is_text, is_uuid
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.producer.serializers.text import uuid_text
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, byte_lengths, numbers, text_scalar, valid_mask
from spark_kafka_sink.records.concat import column_views
from spark_kafka_sink.records.parts import Part, Present
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
_WHOLE: Final[Mapping[pa.DataType, type[np.integer[Any]]]] = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.uint8(): np.uint8,
    pa.uint16(): np.uint16,
    pa.uint32(): np.uint32,
    pa.uint64(): np.uint64,
}
_DAYS: Final = ("int32", "sint32", "sfixed32", "int64", "sint64", "sfixed64")
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MS_PER_DAY: Final = 86_400_000
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
        return ScalarKernel(VARINT, _names(schema, kind))
    if kind not in _WHOLE:
        raise MisfitError("it must be string or a whole number")
    known = np.unique(np.array([number for _, number in schema.values], np.int64))
    is_run = int(known[-1]) - int(known[0]) == len(known) - 1

    def encode(column: pa.Array, present: Present | None, ask: bool) -> Encoded:
        values = filled(numbers(column, _WHOLE[kind]), present)
        low, high = int(values.min()), int(values.max())
        if not is_run or low < known[0] or high > known[-1]:
            bad = first_row(~np.isin(values, known))
            if bad is not None:
                raise BadRowError(bad, f"{values[bad]} is not a number of {schema}: {schema.listed()}")
        return _varints_of(values.astype(np.int64, copy=False), (low, high), ask)

    return ScalarKernel(VARINT, encode)


def _names(schema: Enum, kind: pa.DataType) -> Callable[[pa.Array, Present | None, bool], Encoded]:
    own = pa.string() if pa.types.is_string_view(kind) else kind
    names = array_of_bytes([name.encode() for name, _ in schema.values], own)
    by_place = np.array([number for _, number in schema.values], np.int64)

    def encode(column: pa.Array, present: Present | None, ask: bool) -> Encoded:
        found = pc.index_in(column.cast(own), names)
        known = valid_mask(found)
        if known is not None:
            bad = first_row(~known if present is None else present.rows & ~known)
            if bad is not None:
                raise BadRowError(bad, f"the text is not a name of {schema}: {schema.listed()}")
        return _varints_of(by_place[filled(numbers(found, np.int32), present)], None, ask)

    return encode


# Whole numbers


def _whole(target: str, kind: pa.DataType) -> ScalarKernel:
    read = _reader(target, kind)
    least, greatest = LIMITS[target]

    def values_of(column: pa.Array, present: Present | None) -> tuple[NDArray[Any], int, int]:
        values = read(column, present)
        low, high = int(values.min()), int(values.max())
        if low < least or high > greatest:
            bad = first_row((values < least) | (values > greatest))
            assert bad is not None
            raise BadRowError(bad, f"{values[bad]} is out of range for {target}")
        return values, low, high

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
    dtype = _WHOLE.get(kind)
    if dtype is not None:
        return lambda column, present: filled(numbers(column, dtype), present)
    if pa.types.is_date(kind) and target in _DAYS:
        if kind == pa.date32():
            return lambda column, present: filled(numbers(column, np.int32), present)
        return lambda column, present: filled(numbers(column, np.int64), present) // _MS_PER_DAY
    if pa.types.is_time(kind) and target.endswith("64"):
        times = 10**9 // _PER_SECOND[kind.unit]
        own = np.int32 if pa.types.is_time32(kind) else np.int64
        return lambda column, present: filled(numbers(column, own), present).astype(np.int64) * times
    if pa.types.is_timestamp(kind) and target in ("int64", "sint64", "sfixed64"):
        if kind.tz is not None:
            raise MisfitError("use google.protobuf.Timestamp, or cast it to a whole number")
        return _micros(_PER_SECOND[kind.unit])
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
        start = column.offset // 8
        skip = column.offset - 8 * start
        data = np.frombuffer(column.buffers()[1], np.uint8, (skip + len(column) + 7) // 8, start)
        bits = np.unpackbits(data, count=skip + len(column), bitorder="little")[skip:]
        return Encoded([Packed(bits.astype(np.uint64), 8, 1)], bits.view(np.bool_) if ask else None)

    return ScalarKernel(VARINT, encode)


def _float(kind: pa.DataType) -> ScalarKernel:
    if kind == pa.float32():
        return _floating(4, lambda column: numbers(column, np.float32))
    if kind == pa.float16():
        return _floating(4, lambda column: numbers(column, np.float16).astype(np.float32))
    raise MisfitError("it would lose digits: cast it to float" if kind == pa.float64() else "it must be float")


def _double(kind: pa.DataType) -> ScalarKernel:
    dtype = {pa.float64(): np.float64, pa.float32(): np.float32, pa.float16(): np.float16}.get(kind)
    if dtype is None:
        raise MisfitError("it must be double or float")
    return _floating(8, lambda column: numbers(column, dtype).astype(np.float64, copy=False))


def _floating(size: int, read: Callable[[pa.Array], NDArray[Any]]) -> ScalarKernel:
    def encode(column: pa.Array, _present: Present | None, ask: bool) -> Encoded:
        word: Words = read(column).view(f"u{size}").astype(np.uint64, copy=False)
        return Encoded([Packed(word, 8 * size, size)], word != 0 if ask else None)  # so -0.0 is not the default

    return ScalarKernel(FIXED32 if size == 4 else FIXED64, encode, read)


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
    return ScalarKernel(SIZED, _text)


def _text(column: pa.Array, present: Present | None, ask: bool) -> Encoded:
    column = _plain(column)
    bad = first_not_utf8(column)
    if bad is not None:
        raise BadRowError(bad, "text is not valid UTF-8")
    return sized(column, present, ask)


def _bytes(kind: pa.DataType) -> ScalarKernel:
    if not is_binary(kind) and not is_text(kind):
        raise MisfitError("it must be binary")
    return ScalarKernel(SIZED, lambda column, present, ask: sized(_plain(column), present, ask))


def _plain(column: pa.Array) -> pa.Array:
    """Returns the same bytes in a type that has offsets."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(column.type) or pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.large_binary())
    return column


def sized(column: pa.Array, present: Present | None, ask: bool) -> Encoded:
    """Returns each row's length and bytes. column: binary, string or their large types."""
    lengths = byte_lengths(column)
    views = column_views(column, lengths, None)
    if isinstance(views.lengths, int):
        return Encoded([*unsigned_varints(views.lengths), views], None if views.lengths else _nowhere(len(column), ask))
    counts: NDArray[np.int64] = filled(views.lengths, present) if views.has_nulls else views.lengths
    bounds = max(lengths.shortest, 0), lengths.longest
    parts: list[Part] = [*unsigned_varints(counts.view(np.uint64), bounds), views]
    return Encoded(parts, counts > 0 if ask and lengths.shortest <= 0 else None)


def _nowhere(rows: int, ask: bool) -> NDArray[np.bool_] | None:
    return np.zeros(rows, np.bool_) if ask else None


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
    "float": _float,
    "double": _double,
    "string": _string,
    "bytes": _bytes,
}
