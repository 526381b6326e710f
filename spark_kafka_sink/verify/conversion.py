"""Converts values as other clients decode them into values of a column's type, without accepting what the column cannot hold."""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import struct
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.verify.record_errors import MisfitError

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

    source: what the values were decoded from. defaults: values of a record's fields that may be there without a column.
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
    members = _members(fields)

    def convert(value: Any) -> Any:
        if hasattr(value, "DESCRIPTOR"):
            value = _message_fields(value, fields)
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


def _members(fields: Mapping[str, Convert]) -> Convert | None:
    """Returns how a union's value becomes a struct of `member0`, `member1` and so on; None for any other struct."""
    if not fields or list(fields) != [f"member{number}" for number in range(len(fields))]:
        return None

    def convert(value: Any) -> dict[str, Any]:
        for name, one in fields.items():
            try:
                return {**dict.fromkeys(fields), name: one(value)}
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
    convert = next((convert for test, convert in _SCALARS if test(kind)), None)
    if convert is None:
        raise MisfitError(f"has a column of type {kind}, which cannot be compared")
    if source == PROTOBUF:
        return lambda value: convert(_known_value(value) if hasattr(value, "DESCRIPTOR") else value, kind, source)
    return lambda value: convert(value, kind, source)


def _null(value: Any, kind: pa.DataType, source: str) -> Any:
    raise _misfit(value, "null")


def _boolean(value: Any, kind: pa.DataType, source: str) -> bool:
    if not isinstance(value, bool):
        raise _misfit(value, "a boolean")
    return value


def _integer(value: Any, kind: pa.DataType, source: str) -> int:
    number = int(value) if isinstance(value, Decimal) and value.adjusted() < 20 and value == int(value) else value
    return _whole(number, f"a whole number of {kind.bit_width} bits", kind.bit_width, value)


def _floating(value: Any, kind: pa.DataType, source: str) -> float:
    if source == JSON and isinstance(value, str) and value in _NOT_NUMBERS:
        return float(_NOT_NUMBERS[value])
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _misfit(value, "a number")
    held = _held(Decimal(value) if source == JSON else value, kind.bit_width)
    if held is None:
        raise _misfit(value, f"a number that {kind.bit_width} bits hold exactly")
    return held


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


def _text(value: Any, kind: pa.DataType, source: str) -> str:
    if isinstance(value, uuid.UUID):
        return str(value)
    if not isinstance(value, str):
        raise _misfit(value, "text")
    return value


def _binary(value: Any, kind: pa.DataType, source: str) -> bytes:
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


def _date(value: Any, kind: pa.DataType, source: str) -> int:
    if source == JSON:
        value = _parsed(datetime.date.fromisoformat, value, "a date")
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return (value - _FIRST_DAY).days
    return _whole(value, "a date", 32)


def _timestamp(value: Any, kind: pa.DataType, source: str) -> int:
    has_zone = kind.tz is not None
    wanted = "a timestamp" if has_zone else "a timestamp without a zone"
    if source == JSON:
        value = _parsed(datetime.datetime.fromisoformat, value, wanted)
    if isinstance(value, datetime.datetime):
        if (value.tzinfo is not None) is not has_zone:
            raise _misfit(value, wanted)
        return (value - (_EPOCH_UTC if has_zone else _EPOCH)) // _MICROSECOND
    # Avro's readers have no class for nanoseconds.
    return _whole(_whole(value, wanted) // (1000 if source == AVRO else 1), wanted)


def _time(value: Any, kind: pa.DataType, source: str) -> int:
    if source == JSON:
        value = _parsed(datetime.time.fromisoformat, value, "a time")
    if isinstance(value, datetime.time):
        return _microseconds(value) * 1000
    if not 0 <= _whole(value, "a time") < _DAY_NS:
        raise _misfit(value, "a time")
    return int(value)


def _microseconds(value: datetime.time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _duration(value: Any, kind: pa.DataType, source: str) -> int:
    return _whole(value, "an interval")


def _decimal(value: Any, kind: pa.DataType, source: str) -> Decimal | None:
    if source == PROTOBUF and value == "":
        return None  # as Protobuf reads a text that is not there
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise _misfit(value, kind)
    try:
        exact = Decimal(value)
        scaled = exact.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    except InvalidOperation:
        raise _misfit(value, kind) from None
    if scaled != exact or scaled.adjusted() >= kind.precision - kind.scale:
        raise _misfit(value, kind)
    return scaled


def _whole(value: Any, wanted: str, bits: int = 64, shown: Any = None) -> int:
    end = 1 << (bits - 1)
    if not isinstance(value, int) or isinstance(value, bool) or not -end <= value < end:
        raise _misfit(value if shown is None else shown, wanted)
    return value


def _parsed(parse: Callable[[str], Any], value: Any, wanted: str) -> Any:
    if not isinstance(value, str):
        raise _misfit(value, wanted)
    try:
        return parse(value)
    except ValueError:
        raise _misfit(value, wanted) from None


_SCALARS: Final[Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType, str], Any]]]] = (
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


# Protobuf's messages, and the values of Google's and Confluent's well-known ones


def _message_fields(message: Any, columns: Container[str]) -> Mapping[str, Any]:
    """Returns the fields of a message that are set, and the columns among those that cannot be unset.

    A field without presence that has its default is not on the wire, so it needs no column.
    """
    found = {}
    is_set = {field.name for field, _ in message.ListFields()}
    for field in message.DESCRIPTOR.fields:
        if field.name not in is_set and (field.has_presence or field.name not in columns):
            continue
        value = getattr(message, field.name)
        enum = field.enum_type
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            enum = field.message_type.fields_by_name["value"].enum_type
        found[field.name] = value if enum is None else _symbols(value, enum)
    return found


def _symbols(value: Any, enum: Any) -> Any:
    """Returns the names of an enum's numbers."""
    if isinstance(value, int):
        named = enum.values_by_number.get(value)
        return value if named is None else named.name
    if hasattr(value, "items"):
        return {name: _symbols(one, enum) for name, one in value.items()}
    return [_symbols(one, enum) for one in value]


def _known_value(message: Any) -> Any:
    """Returns the value of one of Google's well-known messages."""
    name = message.DESCRIPTOR.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return message.seconds * 1_000_000 + message.nanos // 1000
    if name == "google.type.Date":
        try:
            return datetime.date(message.year, message.month, message.day)
        except ValueError:  # a year or a month alone has zeros
            raise MisfitError(f"is {message.year}-{message.month}-{message.day} (google.type.Date), not a date") from None
    if name == "google.type.TimeOfDay":
        return ((message.hours * 60 + message.minutes) * 60 + message.seconds) * 1_000_000_000 + message.nanos
    if name in ("confluent.type.Decimal", "google.type.Decimal"):
        if not hasattr(message, "scale"):
            return message.value
        try:
            return Decimal(int.from_bytes(message.value, "big", signed=True)).scaleb(-message.scale, _EXACT)
        except ArithmeticError:
            raise MisfitError(f"has the scale {message.scale} (confluent.type.Decimal), which no decimal has") from None
    return message.value if name.startswith("google.protobuf.") and name.endswith("Value") else message
