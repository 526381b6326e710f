"""Encodes columns of one Arrow type as one Avro type that has no parts: numbers, text, bytes, dates and times.

A kernel takes a column with at least one present row. In the other rows, a `Packed` may hold anything, and a `Views` is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.formats.avro.avro_schema import Enum, Fixed, Logical, Primitive
from spark_kafka_sink.formats.nodes import (
    MS_PER_DAY,
    PER_SECOND,
    WHOLE,
    Kernel,
    MisfitError,
    bits,
    check_range,
    filled,
    float_bits,
    floats,
    listed,
    plain,
    plain_text,
    symbol_places,
)
from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.producer.serializers.arrays import (
    BadRowError,
    binary_array,
    first_invalid,
    first_not_utf8,
    first_row,
    fixed_width_array,
    is_binary,
    is_text,
    is_uuid,
)
from spark_kafka_sink.producer.serializers.text import UUID_TEXT, uuid_text
from spark_kafka_sink.records.arrow_arrays import byte_lengths, numbers, offsets_of, valid_mask
from spark_kafka_sink.records.concat import Part, Present, Views, column_views
from spark_kafka_sink.records.varints import Packed, Words, varints

_INT64_MAX: Final = 2**63 - 1
_LIMITS: Final = {"int": (-INT32_MAX - 1, INT32_MAX), "long": (-_INT64_MAX - 1, _INT64_MAX)}
_PER_SECOND_OF_LOGICAL: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}


def scalar_kernel(schema: Primitive | Fixed | Enum, kind: pa.DataType) -> Kernel:
    """Returns the kernel that encodes columns of `kind`. Raises MisfitError with the reason if the schema cannot hold them."""
    if isinstance(schema, Enum):
        return _enum(schema, kind)
    logical = schema.logical
    if logical is None:
        return _fixed(schema.size, kind) if isinstance(schema, Fixed) else _PRIMITIVES[schema.kind](kind)
    if logical.name == "decimal":
        return decimal_kernel(logical, schema.size if isinstance(schema, Fixed) else None, kind)
    if logical.name == "uuid":
        return uuid_kernel(kind, as_text=not isinstance(schema, Fixed))
    if logical.name == "date":
        return _date(kind)
    if not logical.name.startswith("time-"):
        return _timestamp(logical.name, kind)
    if not pa.types.is_time(kind):
        raise MisfitError("it must be time")
    return _scaled(kind, logical.name, exact=True)


# Numbers


def _boolean(kind: pa.DataType) -> Kernel:
    if not pa.types.is_boolean(kind):
        raise MisfitError("it must be boolean")
    return lambda column, _: [Packed(bits(column).astype(np.uint64), 8, 1)]


def _whole(target: str, kind: pa.DataType) -> Kernel:
    dtype = WHOLE.get(kind)
    if dtype is None:
        is_time = pa.types.is_temporal(kind)
        raise MisfitError("the schema has no logical type for dates and times" if is_time else "it must be a whole number")

    def kernel(column: pa.Array, present: Present | None) -> Sequence[Part]:
        values = filled(numbers(column, dtype), present)
        extremes = check_range(values, _LIMITS[target], target)
        return varints(values.astype(np.int64, copy=False), extremes)

    return kernel


def _floating(target: str, kind: pa.DataType) -> Kernel:
    read = floats(target, kind)
    return lambda column, _: [float_bits(read(column))]


# Text and bytes


def _bytes(kind: pa.DataType) -> Kernel:
    if not is_binary(kind) and not is_text(kind):
        raise MisfitError("it must be binary")
    return lambda column, _: _sized(plain(column))


def _string(kind: pa.DataType) -> Kernel:
    if not is_text(kind):
        raise MisfitError("it must be string")
    return lambda column, _: _sized(plain_text(column))


def _sized(column: pa.Array) -> Sequence[Part]:
    lengths = byte_lengths(column)
    views = column_views(column, lengths, None)
    return [*varints(views.lengths, (lengths.shortest, lengths.longest)), views]


def _fixed(size: int, kind: pa.DataType) -> Kernel:
    if not is_binary(kind):
        raise MisfitError("it must be binary")
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width != size:
        raise MisfitError(f"it has {kind.byte_width} bytes, and the schema has {size}")

    def kernel(column: pa.Array, _present: Present | None) -> Sequence[Part]:
        column = plain(column)
        lengths = byte_lengths(column)
        if lengths.shortest != size or lengths.longest != size:
            bad = first_row((lengths.rows != size) & (lengths.rows >= 0))
            if bad is not None:
                raise BadRowError(bad, f"has {lengths.rows[bad]} bytes, must have {size}")
        return [column_views(column, lengths, None)]

    return kernel


def _enum(schema: Enum, kind: pa.DataType) -> Kernel:
    if not is_text(kind):
        raise MisfitError("it must be string")
    places = symbol_places(list(schema.symbols), kind, f"the text is not a symbol of {schema}: {listed(schema.symbols)}")
    return lambda column, present: varints(places(column, present).astype(np.int64))


# Dates and times


def _date(kind: pa.DataType) -> Kernel:
    if kind == pa.date32():
        return lambda column, present: varints(filled(numbers(column, np.int32), present).astype(np.int64))
    if kind != pa.date64():
        raise MisfitError("it must be date")

    def kernel(column: pa.Array, present: Present | None) -> Sequence[Part]:
        days = filled(numbers(column, np.int64), present) // MS_PER_DAY
        check_range(days, _LIMITS["int"], "a date")
        return varints(days)

    return kernel


def _timestamp(target: str, kind: pa.DataType) -> Kernel:
    if not pa.types.is_timestamp(kind):
        raise MisfitError("it must be timestamp")
    is_local = target.startswith("local-")
    if is_local and kind.tz is not None:
        raise MisfitError(f"{target} has no time zone: use timestamp_ntz")
    if not is_local and kind.tz is None:
        raise MisfitError(f"{target} is in UTC: use a timestamp with a time zone")
    return _scaled(kind, target, exact=False)


def _scaled(kind: pa.DataType, target: str, *, exact: bool) -> Kernel:
    """Returns the kernel that changes units. exact: lost digits are an error. Otherwise, they are cut off towards the past."""
    wanted, own = _PER_SECOND_OF_LOGICAL[target.rpartition("-")[2]], PER_SECOND[kind.unit]
    times, divisor = max(wanted // own, 1), max(own // wanted, 1)
    dtype = np.int32 if pa.types.is_time32(kind) else np.int64
    least, greatest = _LIMITS["int" if target == "time-millis" else "long"]

    def kernel(column: pa.Array, present: Present | None) -> Sequence[Part]:
        values: NDArray[np.int64] = filled(numbers(column, dtype), present).astype(np.int64, copy=False)
        if exact and divisor > 1:
            bad = first_row(values % divisor != 0)
            if bad is not None:
                raise BadRowError(bad, f"the time has more digits than {target} can hold")
        if divisor > 1:
            values = values // divisor
        check_range(values, (-(-least // times), greatest // times), target)
        return varints(values * times if times > 1 else values)

    return kernel


_PRIMITIVES: Final[Mapping[str, Callable[[pa.DataType], Kernel]]] = {
    "boolean": _boolean,
    "int": partial(_whole, "int"),
    "long": partial(_whole, "long"),
    "float": partial(_floating, "float"),
    "double": partial(_floating, "double"),
    "bytes": _bytes,
    "string": _string,
}


# UUIDs

_TEXT = 36
_DIGITS = [place for place in range(_TEXT) if place not in (8, 13, 18, 23)]


def uuid_kernel(kind: pa.DataType, *, as_text: bool) -> Kernel:
    """Returns the kernel for columns of `kind`. as_text: writes Avro's string; otherwise, its fixed of 16 bytes."""
    from_text = is_text(kind)
    if not from_text and not is_uuid(kind) and kind != pa.binary(16):
        raise MisfitError("it must be string, fixed_size_binary[16] or arrow.uuid")

    def kernel(column: pa.Array, present: Present | None) -> Sequence[Part]:
        if from_text:
            text = _checked(column, present)
            return [*varints(_TEXT), _views(text)] if as_text else [_views(_bytes_of_text(text))]
        data = column.storage if isinstance(column, pa.ExtensionArray) else column
        return [*varints(_TEXT), _views(uuid_text(data))] if as_text else [_views(data.cast(pa.binary()))]

    return kernel


def _bytes_of_text(column: pa.Array) -> pa.Array:
    valid = valid_mask(column)
    rows = np.arange(len(column)) if valid is None else np.flatnonzero(valid)
    offsets = offsets_of(column)
    data = np.frombuffer(column.buffers()[2], np.uint8)
    digits = data[offsets[rows][:, None] + np.array(_DIGITS)]
    halves = np.where(digits >= ord("a"), digits - (ord("a") - 10), digits - ord("0"))
    found = np.zeros((len(column), 16), np.uint8)
    found[rows] = halves[:, 0::2] << 4 | halves[:, 1::2]
    return fixed_width_array(found, valid)


def _views(column: pa.Array) -> Views:
    return column_views(column, byte_lengths(column), None)


def _checked(column: pa.Array, present: Present | None) -> pa.Array:
    """Returns the text as string in lower case. Raises BadRowError for the first row that is not a UUID."""
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    bad = first_not_utf8(column)
    if bad is None:
        fits = numbers(pc.match_substring_regex(column, UUID_TEXT).cast(pa.uint8()), np.bool_)
        bad = first_row(~fits if present is None else present.rows & ~fits)
    if bad is not None:
        raise BadRowError(bad, "text is not a valid UUID (36 characters with dashes)")
    return pc.ascii_lower(column)


# Decimals are the bytes of their unscaled number: two's complement, the highest byte first. Almost every column has only numbers
# of 64 bits. They are words; others are a matrix of bytes.

_MOST_128: Final = 38  # digits of a decimal128
_MOST_256: Final = 76
_DIGITS_OF_INT64: Final = 20  # also of uint64
_WORD: Final = 8


def decimal_kernel(logical: Logical, size: int | None, kind: pa.DataType) -> Kernel:
    """Returns the kernel for columns of `kind`. size: that of Avro's fixed; None: Avro's bytes."""
    if pa.types.is_integer(kind):
        first: pa.DataType = pa.decimal128(_DIGITS_OF_INT64, 0)
    elif pa.types.is_decimal(kind):
        first = kind
    else:
        raise MisfitError("it must be decimal")
    if logical.precision > _MOST_256:
        raise MisfitError(f"a decimal of more than {_MOST_256} digits is not supported")
    target = (pa.decimal256 if logical.precision > _MOST_128 else pa.decimal128)(logical.precision, logical.scale)
    width = target.byte_width

    def cast(column: pa.Array) -> pa.Array:
        return column.cast(first).cast(target)

    def kernel(column: pa.Array, present: Present | None) -> Sequence[Part]:
        try:
            unscaled = cast(column) if column.type != target else column
        except pa.ArrowInvalid:
            bad = first_invalid(column, cast)
            assert bad is not None
            raise BadRowError(bad, f"{column[bad].as_py()} does not fit {logical}") from None
        # The 64-bit words of each number, the lowest first, with a number of the column in rows without a value.
        words = numbers(unscaled, np.dtype((np.void, width))).view(np.int64).reshape(-1, width // _WORD)
        if present is not None:
            words = np.where(present.rows[:, None], words, words[present.first()])
        low, high = words[:, 0], words[:, 1:]
        if ((low >> 63)[:, None] == high).all():
            return _short(low, size)
        return _long(words, size, valid_mask(unscaled))

    return kernel


def _short(values: NDArray[np.int64], size: int | None) -> Sequence[Part]:
    if size is None:
        lengths = _lengths(values)
        bits: Words | int = lengths << 3
        word = (values.view(np.uint64) << (64 - bits)).byteswap()
        widest = int(lengths.max())
        return [Packed(lengths << 1, 8, 1), Packed(word, bits, widest)]
    if size <= _WORD:
        return [Packed((values << (64 - 8 * size)).view(np.uint64).byteswap(), 8 * size, size)]
    number = Packed(values.view(np.uint64).byteswap(), 64, _WORD)
    filling = (values >> 63).view(np.uint64)
    before: list[Part] = []
    for start in range(0, size - _WORD, _WORD):
        count = min(size - _WORD - start, _WORD)
        before.append(Packed(filling & ((1 << (8 * count)) - 1), 8 * count, count))
    return [*before, number]


def _lengths(values: NDArray[np.int64]) -> Words:
    """Returns the least number of bytes that holds each number and its sign."""
    magnitudes = values ^ (values >> 63)
    greatest = int(magnitudes.max())
    lengths = np.ones(len(values), np.uint64)
    for size in range(1, _WORD):
        limit = 1 << (8 * size - 1)
        if limit > greatest:
            break
        lengths += magnitudes >= limit
    return lengths


def _long(words: NDArray[np.int64], size: int | None, valid: NDArray[np.bool_] | None) -> Sequence[Part]:
    rows, width = len(words), words.shape[1] * _WORD
    data = np.ascontiguousarray(words[:, ::-1]).byteswap().view(np.uint8).reshape(rows, width)
    negative = data[:, :1] >> 7
    if size is not None:
        if size > width:
            data = np.concatenate([np.repeat(negative * np.uint8(255), size - width, axis=1), data], axis=1)
        return [_views(fixed_width_array(np.ascontiguousarray(data[:, -size:]), valid))]
    differs = data != negative * np.uint8(255)
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), width - 1)
    lead = np.take_along_axis(data, first[:, None], axis=1)
    lengths = width - first + ((lead >> 7 != negative)[:, 0] & differs.any(axis=1))
    if valid is not None:
        lengths = np.where(valid, lengths, 0)
    kept = np.arange(width) >= (width - lengths)[:, None]
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return [*varints(lengths), _views(binary_array(np.ascontiguousarray(data[kept]), offsets, valid))]
