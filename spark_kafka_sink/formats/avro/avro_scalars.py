"""Encodes columns of one Arrow type as one Avro type that has no parts: numbers, text, bytes, dates and times.

A kernel takes a column with at least one present row. In the other rows, a `Packed` may hold anything, and a `Views` is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.formats.avro.avro_decimals import decimal_kernel
from spark_kafka_sink.formats.avro.avro_schema import Enum, Fixed, Logical, Primitive
from spark_kafka_sink.formats.avro.avro_uuids import uuid_kernel
from spark_kafka_sink.formats.schemas.kernel import Kernel, MisfitError, filled, listed
from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.producer.serializers.arrays import first_not_utf8, first_row, is_binary, is_text
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, byte_lengths, numbers, valid_mask
from spark_kafka_sink.records.concat import column_views
from spark_kafka_sink.records.parts import Part, Present
from spark_kafka_sink.records.varints import Packed, varints

_INT64_MAX: Final = 2**63 - 1
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
_LIMITS: Final = {"int": (-INT32_MAX - 1, INT32_MAX), "long": (-_INT64_MAX - 1, _INT64_MAX)}
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_PER_SECOND_OF_LOGICAL: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_MS_PER_DAY: Final = 86_400_000


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
    return _bits


def _bits(column: pa.Array, _present: Present | None) -> Sequence[Part]:
    start = column.offset // 8
    skip = column.offset - 8 * start
    data = np.frombuffer(column.buffers()[1], np.uint8, (skip + len(column) + 7) // 8, start)
    return [Packed(np.unpackbits(data, count=skip + len(column), bitorder="little")[skip:].astype(np.uint64), 8, 1)]


def _whole(target: str) -> Callable[[pa.DataType], Kernel]:
    least, greatest = _LIMITS[target]

    def fitted(kind: pa.DataType) -> Kernel:
        dtype = _WHOLE.get(kind)
        if dtype is None:
            raise MisfitError(_not_whole(kind))

        def kernel(column: pa.Array, present: Present | None) -> Sequence[Part]:
            values = filled(numbers(column, dtype), present)
            low, high = int(values.min()), int(values.max())
            if low < least or high > greatest:
                bad = first_row((values < least) | (values > greatest))
                assert bad is not None
                raise BadRowError(bad, f"{values[bad]} is out of range for {target}")
            return varints(values.astype(np.int64, copy=False), (low, high))

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
    return lambda column, _: _sized(_plain(column))


def _string(kind: pa.DataType) -> Kernel:
    if not is_text(kind):
        raise MisfitError("it must be string")
    return _text


def _text(column: pa.Array, _present: Present | None) -> Sequence[Part]:
    column = _plain(column)
    bad = first_not_utf8(column)
    if bad is not None:
        raise BadRowError(bad, "text is not valid UTF-8")
    return _sized(column)


def _plain(column: pa.Array) -> pa.Array:
    """Returns the same bytes in a type that has offsets."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(column.type) or pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.large_binary())
    return column


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
        column = _plain(column)
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
    own = pa.string() if pa.types.is_string_view(kind) else kind
    symbols = array_of_bytes([symbol.encode() for symbol in schema.symbols], own)

    def kernel(column: pa.Array, present: Present | None) -> Sequence[Part]:
        found = pc.index_in(column.cast(own), symbols)
        known = valid_mask(found)
        if known is not None:
            bad = first_row(~known if present is None else present.rows & ~known)
            if bad is not None:
                raise BadRowError(bad, f"the text is not a symbol of {schema}: {listed(schema.symbols)}")
        return varints(filled(numbers(found, np.int32), present).astype(np.int64))

    return kernel


# Dates and times


def _date(kind: pa.DataType) -> Kernel:
    if kind == pa.date32():
        return lambda column, present: varints(filled(numbers(column, np.int32), present).astype(np.int64))
    if kind != pa.date64():
        raise MisfitError("it must be date")

    def kernel(column: pa.Array, present: Present | None) -> Sequence[Part]:
        days = filled(numbers(column, np.int64), present) // _MS_PER_DAY
        _check_range(days, *_LIMITS["int"], "a date")
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
    wanted, own = _PER_SECOND_OF_LOGICAL[target.rpartition("-")[2]], _PER_SECOND[kind.unit]
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
        _check_range(values, -(-least // times), greatest // times, target)
        return varints(values * times if times > 1 else values)

    return kernel


def _check_range(values: NDArray[np.int64], least: int, greatest: int, target: str) -> None:
    if int(values.min()) < least or int(values.max()) > greatest:
        bad = first_row((values < least) | (values > greatest))
        assert bad is not None
        raise BadRowError(bad, f"the value is out of range for {target}")


_PRIMITIVES: Final[Mapping[str, Callable[[pa.DataType], Kernel]]] = {
    "boolean": _boolean,
    "int": _whole("int"),
    "long": _whole("long"),
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}
