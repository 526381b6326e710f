"""Encodes columns of one Arrow type as one Avro type that has no parts: numbers, text, bytes, dates and times.

A kernel takes a column with at least one present row. In the other rows, a `Packed` may hold anything, and a `Views` is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.formats.avro.avro_decimals import decimal_kernel
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
    listed,
    plain,
    plain_text,
    symbol_places,
)
from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.producer.serializers.arrays import first_not_utf8, first_row, fixed_width_array, is_binary, is_text, is_uuid
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.producer.serializers.text import UUID_TEXT, uuid_text
from spark_kafka_sink.records.arrow_arrays import byte_lengths, numbers, offsets_of, valid_mask
from spark_kafka_sink.records.concat import Views, column_views
from spark_kafka_sink.records.parts import Part, Present
from spark_kafka_sink.records.varints import Packed, varints

_INT64_MAX: Final = 2**63 - 1
_LIMITS: Final = {"int": (-INT32_MAX - 1, INT32_MAX), "long": (-_INT64_MAX - 1, _INT64_MAX)}
_PER_SECOND_OF_LOGICAL: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}


def scalar_kernel(schema: Primitive | Fixed | Enum, kind: pa.DataType) -> Kernel:
    """Returns the kernel that encodes columns of `kind`. Raises MisfitError with the reason if the schema cannot hold them."""
    if isinstance(schema, Enum):
        return _enum(schema, kind)
    if schema.logical is not None:
        return _logical(schema, schema.logical, kind)
    if isinstance(schema, Fixed):
        return _fixed(schema.size, kind)
    return _PRIMITIVES[schema.kind](kind)


def _logical(schema: Primitive | Fixed, logical: Logical, kind: pa.DataType) -> Kernel:
    if logical.name == "decimal":
        return decimal_kernel(logical, schema.size if isinstance(schema, Fixed) else None, kind)
    if logical.name == "uuid":
        return uuid_kernel(kind, as_text=not isinstance(schema, Fixed))
    if logical.name == "date":
        return _date(kind)
    return _time(logical.name, kind) if logical.name.startswith("time-") else _timestamp(logical.name, kind)


# Numbers


def _boolean(kind: pa.DataType) -> Kernel:
    if not pa.types.is_boolean(kind):
        raise MisfitError("it must be boolean")
    return lambda column, _: [Packed(bits(column).astype(np.uint64), 8, 1)]


def _whole(target: str) -> Callable[[pa.DataType], Kernel]:
    def fitted(kind: pa.DataType) -> Kernel:
        dtype = WHOLE.get(kind)
        if dtype is None:
            raise MisfitError(_not_whole(kind))

        def kernel(column: pa.Array, present: Present | None) -> Sequence[Part]:
            values = filled(numbers(column, dtype), present)
            extremes = check_range(values, _LIMITS[target], target)
            return varints(values.astype(np.int64, copy=False), extremes)

        return kernel

    return fitted


def _not_whole(kind: pa.DataType) -> str:
    if pa.types.is_temporal(kind):
        return "the schema has no logical type for dates and times"
    return "it must be a whole number"


def _float(kind: pa.DataType) -> Kernel:
    if kind == pa.float32():
        return lambda column, _: [Packed(numbers(column, np.uint32).astype(np.uint64), 32, 4)]
    if kind == pa.float16():
        return lambda column, _: [Packed(numbers(column, np.float16).astype(np.float32).view(np.uint32).astype(np.uint64), 32, 4)]
    raise MisfitError("it would lose digits: cast it to float" if kind == pa.float64() else "it must be float")


def _double(kind: pa.DataType) -> Kernel:
    if kind == pa.float64():
        return lambda column, _: [Packed(numbers(column, np.uint64), 64, 8)]
    dtype = {pa.float32(): np.float32, pa.float16(): np.float16}.get(kind)
    if dtype is None:
        raise MisfitError("it must be double or float")
    return lambda column, _: [Packed(numbers(column, dtype).astype(np.float64).view(np.uint64), 64, 8)]


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


def _time(target: str, kind: pa.DataType) -> Kernel:
    if not pa.types.is_time(kind):
        raise MisfitError("it must be time")
    return _scaled(kind, target, exact=True)


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
    "int": _whole("int"),
    "long": _whole("long"),
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


_TEXT = 36
_DIGITS = [place for place in range(_TEXT) if place not in (8, 13, 18, 23)]


def uuid_kernel(kind: pa.DataType, *, as_text: bool) -> Kernel:
    """Returns the kernel for columns of `kind`. as_text: writes Avro's string; otherwise, its fixed of 16 bytes."""
    if is_text(kind):
        return _text_of_text if as_text else _bytes_of_text
    if not is_uuid(kind) and kind != pa.binary(16):
        raise MisfitError("it must be string, fixed_size_binary[16] or arrow.uuid")
    return _text_of_bytes if as_text else _bytes_of_bytes


def _text_of_text(column: pa.Array, present: Present | None) -> Sequence[Part]:
    return [*varints(_TEXT), _views(_checked(column, present))]


def _text_of_bytes(column: pa.Array, _present: Present | None) -> Sequence[Part]:
    return [*varints(_TEXT), _views(uuid_text(_storage(column)))]


def _bytes_of_bytes(column: pa.Array, _present: Present | None) -> Sequence[Part]:
    return [_views(_storage(column).cast(pa.binary()))]


def _bytes_of_text(column: pa.Array, present: Present | None) -> Sequence[Part]:
    column = _checked(column, present)
    valid = valid_mask(column)
    rows = np.arange(len(column)) if valid is None else np.flatnonzero(valid)
    offsets = offsets_of(column)
    data = np.frombuffer(column.buffers()[2], np.uint8)
    digits = data[offsets[rows][:, None] + np.array(_DIGITS)]
    halves = np.where(digits >= ord("a"), digits - (ord("a") - 10), digits - ord("0"))
    found = np.zeros((len(column), 16), np.uint8)
    found[rows] = halves[:, 0::2] << 4 | halves[:, 1::2]
    return [_views(fixed_width_array(found, valid))]


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


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
