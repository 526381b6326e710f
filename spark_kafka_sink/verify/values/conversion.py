"""Converts values as other clients decode them into values of a column's type, without accepting what the column cannot hold."""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.verify.record_errors import MisfitError
from spark_kafka_sink.verify.values.protobuf_values import known_value, message_fields

AVRO: Final = "AVRO"
PROTOBUF: Final = "PROTOBUF"
JSON: Final = "JSON"

Convert = Callable[[Any], Any]

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_EPOCH_UTC: Final = _EPOCH.replace(tzinfo=datetime.UTC)
_FIRST_DAY: Final = datetime.date(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_EXACT: Final = Context(prec=100)
_FLOAT: Final = struct.Struct("<f")
_DAY_NS: Final = 86_400 * 10**9
_FLOAT_DIGITS: Final = 9
"""Number of decimal digits that tell any two floats of 32 bits apart."""
_NOT_NUMBERS: Final = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf", "+Infinity": "inf"}


def converter(kind: pa.DataType, source: str, defaults: Mapping[str, Any] | None = None) -> Convert:
    """Returns a function from a decoded value to one that `pa.array(..., kind)` accepts. Null is null everywhere.

    Args:
        kind: the column's type.
        source: the format that the values were decoded from: "AVRO", "PROTOBUF" or "JSON".
        defaults: values of the record's fields that may be there without a column.
    """
    convert = _NESTED.get(kind.id)
    found = convert(kind, source, defaults or {}) if convert is not None else _scalar(kind, source)
    return lambda value: None if value is None else found(value)


def _misfit(value: object, wanted: object) -> MisfitError:
    shown = repr(value)
    return MisfitError(f"is {shown if len(shown) <= 60 else f'{shown[:60]}...'} ({type(value).__name__}), not {wanted}")


# Nested types


def _struct(kind: pa.DataType, source: str, defaults: Mapping[str, Any]) -> Convert:
    fields: dict[str, Convert] = {}
    for place in range(kind.num_fields):
        field = kind.field(place)
        inner = defaults.get(field.name)
        fields[field.name] = converter(field.type, source, inner if isinstance(inner, Mapping) else None)
    members = _members(list(fields), fields)

    def convert(value: Any) -> Any:
        if hasattr(value, "DESCRIPTOR"):
            value = message_fields(value, fields)
        if not isinstance(value, Mapping):
            if members is not None:
                return members(value)
            raise _misfit(value, "a record")
        for name, extra in value.items():
            # A field without a column has its default, or no value at all.
            if name not in fields and extra is not None and not (name in defaults and _same(extra, defaults[name])):
                raise MisfitError(f"has the value {str(extra)[:60]}, but there is no such column", f".{name}")
        converted = {}
        for name, one in fields.items():
            try:
                converted[name] = one(value.get(name))
            except MisfitError as error:
                raise error.inside(f".{name}") from None
        return converted

    return convert


def _members(names: Sequence[str], fields: Mapping[str, Convert]) -> Convert | None:
    """Returns how a union's value becomes a struct of `member0`, `member1` and so on; None for any other struct."""
    if not names or list(names) != [f"member{number}" for number in range(len(names))]:
        return None

    def convert(value: Any) -> dict[str, Any]:
        for name, one in fields.items():
            try:
                return {**dict.fromkeys(names), name: one(value)}
            except MisfitError:
                continue
        raise _misfit(value, "a value of the union")

    return convert


def _same(value: Any, default: Any) -> bool:
    """Returns whether a decoded value is the default of an Avro or JSON schema, which is JSON."""
    if isinstance(value, bytes):
        return isinstance(default, str) and value == default.encode("latin-1", "replace")
    if isinstance(value, datetime.datetime):
        epoch = _EPOCH if value.tzinfo is None else _EPOCH_UTC
        micros = (value - epoch) // _MICROSECOND
        return default in (micros, micros // 1000)
    if isinstance(value, datetime.date):
        return bool(default == (value - _FIRST_DAY).days)
    if isinstance(value, datetime.time):
        micros = _microseconds(value)
        return default in (micros, micros // 1000)
    if isinstance(value, Decimal) and isinstance(default, str):
        unscaled = int.from_bytes(default.encode("latin-1", "replace"), "big", signed=True)
        return value == Decimal(unscaled).scaleb(int(value.as_tuple().exponent), _EXACT)
    if isinstance(value, uuid.UUID):
        return isinstance(default, str) and str(value) == default.lower()
    if isinstance(value, Mapping) and isinstance(default, Mapping):
        return all(name in default and _same(one, default[name]) for name, one in value.items())
    if isinstance(value, list) and isinstance(default, list):
        return len(value) == len(default) and all(map(_same, value, default))
    return bool(value == default)


def _list(kind: pa.DataType, source: str, _: Mapping[str, Any]) -> Convert:
    element = converter(kind.value_type, source)

    def convert(value: Any) -> list[Any]:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
            raise _misfit(value, "an array")
        converted = []
        for place, one in enumerate(value):
            try:
                converted.append(element(one))
            except MisfitError as error:
                raise error.inside(f"[{place}]") from None
        return converted

    return convert


def _map(kind: pa.DataType, source: str, _: Mapping[str, Any]) -> Convert:
    key, item = converter(kind.key_type, source), converter(kind.item_type, source)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not hasattr(value, "items"):
            raise _misfit(value, "a map")
        converted = []
        for name, one in value.items():
            try:
                converted.append((key(name), item(one)))
            except MisfitError as error:
                raise error.inside(f"[{name}]") from None
        return converted

    return convert


_NESTED: Final[Mapping[int, Callable[[pa.DataType, str, Mapping[str, Any]], Convert]]] = {
    pa.lib.Type_STRUCT: _struct,
    pa.lib.Type_LIST: _list,
    pa.lib.Type_MAP: _map,
}


# Scalars


def _scalar(kind: pa.DataType, source: str) -> Convert:
    make = next((make for test, make in _SCALARS if test(kind)), None)
    if make is None:
        raise MisfitError(f"has a column of type {kind}, which cannot be compared")
    convert = make(kind, source)
    if source != PROTOBUF:
        return convert
    return lambda value: convert(known_value(value) if hasattr(value, "DESCRIPTOR") else value)


def _null(kind: pa.DataType, source: str) -> Convert:
    def convert(value: Any) -> Any:
        raise _misfit(value, "null")

    return convert


def _boolean(kind: pa.DataType, source: str) -> Convert:
    def convert(value: Any) -> bool:
        if not isinstance(value, bool):
            raise _misfit(value, "a boolean")
        return value

    return convert


def _integer(kind: pa.DataType, source: str) -> Convert:
    end = 1 << (kind.bit_width - 1)

    def convert(value: Any) -> int:
        number = int(value) if isinstance(value, Decimal) and value.adjusted() < 20 and value == int(value) else value
        if not isinstance(number, int) or isinstance(number, bool) or not -end <= number < end:
            raise _misfit(value, f"a whole number of {kind.bit_width} bits")
        return number

    return convert


def _floating(kind: pa.DataType, source: str) -> Convert:
    def convert(value: Any) -> float:
        if source == JSON and isinstance(value, str) and value in _NOT_NUMBERS:
            return float(_NOT_NUMBERS[value])
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise _misfit(value, "a number")
        held = _held(Decimal(value) if source == JSON else value, kind.bit_width)
        if held is None:
            raise _misfit(value, f"a number that {kind.bit_width} bits hold exactly")
        return held

    return convert


def _held(value: float | Decimal, bits: int) -> float | None:
    """Returns a number as a float of 32 or 64 bits; None if it has to be rounded.

    Texts of JSON are decimal, so nearly all of them have to be rounded. They count as exact if they are near enough to be a text
    of that float: nearest to it among doubles, or among floats of 32 bits if they have no more digits than one needs.
    """
    try:
        number = float(value)
        held: float = _FLOAT.unpack(_FLOAT.pack(number))[0] if bits == 32 else number
    except OverflowError:
        return None
    if isinstance(value, Decimal):
        is_near = held == number or len(value.as_tuple().digits) <= _FLOAT_DIGITS
        return held if is_near and math.isfinite(held) else None
    return held if held == value or math.isnan(number) else None


def _text(kind: pa.DataType, source: str) -> Convert:
    def convert(value: Any) -> str:
        if isinstance(value, uuid.UUID):
            return str(value)
        if not isinstance(value, str):
            raise _misfit(value, "text")
        return value

    return convert


def _binary(kind: pa.DataType, source: str) -> Convert:
    def convert(value: Any) -> bytes:
        if isinstance(value, uuid.UUID):
            return value.bytes
        if source == JSON and isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except binascii.Error:
                raise _misfit(value, "base64") from None
        if not isinstance(value, bytes):
            raise _misfit(value, "bytes")
        return value

    return convert


def _date(kind: pa.DataType, source: str) -> Convert:
    def convert(value: Any) -> int:
        if source == JSON:
            value = _parsed(datetime.date.fromisoformat, value, "a date")
        if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            return (value - _FIRST_DAY).days
        return _whole(value, "a date", 32)

    return convert


def _timestamp(kind: pa.DataType, source: str) -> Convert:
    has_zone = kind.tz is not None
    wanted = "a timestamp" if has_zone else "a timestamp without a zone"

    def convert(value: Any) -> int:
        if source == JSON:
            value = _parsed(datetime.datetime.fromisoformat, value, wanted)
        if isinstance(value, datetime.datetime):
            if (value.tzinfo is not None) is not has_zone:
                raise _misfit(value, wanted)
            return (value - (_EPOCH_UTC if has_zone else _EPOCH)) // _MICROSECOND
        # Avro's readers have no class for nanoseconds.
        return _whole(_whole(value, wanted) // (1000 if source == AVRO else 1), wanted)

    return convert


def _time(kind: pa.DataType, source: str) -> Convert:
    def convert(value: Any) -> int:
        if source == JSON:
            value = _parsed(datetime.time.fromisoformat, value, "a time")
        if isinstance(value, datetime.time):
            return _microseconds(value) * 1000
        if not 0 <= _whole(value, "a time") < _DAY_NS:
            raise _misfit(value, "a time")
        return int(value)

    return convert


def _microseconds(value: datetime.time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _duration(kind: pa.DataType, source: str) -> Convert:
    return lambda value: _whole(value, "an interval")


def _decimal(kind: pa.DataType, source: str) -> Convert:
    unit, whole_digits = Decimal(1).scaleb(-kind.scale), kind.precision - kind.scale

    def convert(value: Any) -> Decimal | None:
        if source == PROTOBUF and value == "":
            return None  # as Protobuf reads a text that is not there
        if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
            raise _misfit(value, kind)
        try:
            exact = Decimal(value)
            scaled = exact.quantize(unit, context=_EXACT)
        except InvalidOperation:
            raise _misfit(value, kind) from None
        if scaled != exact or scaled.adjusted() >= whole_digits:
            raise _misfit(value, kind)
        return scaled

    return convert


def _whole(value: Any, wanted: str, bits: int = 64) -> int:
    end = 1 << (bits - 1)
    if not isinstance(value, int) or isinstance(value, bool) or not -end <= value < end:
        raise _misfit(value, wanted)
    return value


def _parsed(parse: Callable[[str], Any], value: Any, wanted: str) -> Any:
    if not isinstance(value, str):
        raise _misfit(value, wanted)
    try:
        return parse(value)
    except ValueError:
        raise _misfit(value, wanted) from None


_SCALARS: Final[Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, str], Convert]]]] = (
    (pa.types.is_null, _null),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _binary),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_time, _time),
    (pa.types.is_duration, _duration),
    (pa.types.is_decimal, _decimal),
)
