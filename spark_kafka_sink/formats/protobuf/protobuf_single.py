"""Encodes a single Python value.

The bytes are those of a column of one row with the same value. It also takes what has no type in Arrow: values of recursive
messages.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import numpy as np

from spark_kafka_sink.formats import single_values as single
from spark_kafka_sink.formats.protobuf.message_types import (
    DURATION,
    ENUM,
    GROUP,
    GROUP_PROBLEM,
    LIMITS_S,
    MESSAGE,
    NO_NULL_ELEMENT,
    NO_NULL_IN_MAP,
    NOT_SUPPORTED,
    TIMESTAMP,
    WRAPPERS,
    Enum,
    Field,
    Message,
    ProtobufSchema,
    tag,
)
from spark_kafka_sink.formats.protobuf.protobuf_scalars import FIXED32, FIXED64, LIMITS, SIZED, VARINT, WIRE_TYPES
from spark_kafka_sink.formats.single_values import BadValueError, refused
from spark_kafka_sink.records.varints import unsigned_varint, varint

_PER_SECOND: Final = 10**9


def encode_value(schema: ProtobufSchema, value: Any, prefix: bytes = b"") -> bytes | None:
    """Encodes one value, after `prefix`. None is a null and has no bytes.

    Messages are dicts, named tuples, Spark's Rows, or objects of Protobuf's own class of the message. Fields that are missing are
    left out, and so is None if the field can be null. For a Timestamp, a datetime without a zone is local time.

    Raises:
        SerializationError: The message cannot hold the value. `facts` has path.
    """
    if value is None:
        return None
    return single.whole_value(lambda: prefix + _Writer(schema).message(schema.root, value))


class _Writer:
    """Writes values with the types of one schema."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._schema = schema

    def message(self, message: Message, value: Any) -> bytes:
        """Returns the bytes of a message, without tag and size."""
        if message.name in NOT_SUPPORTED:
            raise BadValueError(f"{message} is not supported: use another one, or leave the field out")
        own = _own_bytes(message, value)
        if own is not None:
            return own
        if message.name == TIMESTAMP and isinstance(value, datetime.datetime):
            return _seconds_and_nanos(TIMESTAMP, _nanos_since_epoch(value))
        if message.name == DURATION and isinstance(value, datetime.timedelta):
            whole = datetime.timedelta(value.days, value.seconds, value.microseconds)
            return _seconds_and_nanos(DURATION, whole // single.MICROSECOND * 1000 + getattr(value, "nanoseconds", 0))
        fields = single.fields_of(value)
        if fields is None:
            if message.name in WRAPPERS:
                return self._one(message.fields[0], value, always=False)
            wanted = {TIMESTAMP: "datetime", DURATION: "timedelta"}.get(message.name, "a dict, a named tuple or a Row")
            raise refused(value, wanted)
        return self._fields(message, fields)

    def _fields(self, message: Message, value: Mapping[Any, Any]) -> bytes:
        out = bytearray()
        used = 0
        set_in: dict[str, str] = {}
        for field in message.fields:
            found = value.get(field.name)
            used += field.name in value
            try:
                if found is None:
                    if field.null_problem is not None and (field.required or field.name in value):
                        raise BadValueError(field.null_problem)
                    continue
                if field.oneof and set_in.setdefault(field.oneof, field.name) != field.name:
                    both = f"{set_in[field.oneof]} and {field.name}"
                    raise BadValueError(f"{both} have a value, and the oneof {field.oneof} can hold only one")
                out += self._field(field, found)
            except BadValueError as bad:
                raise bad.inside(f".{field.name}") from None
        if used < len(value):
            single.check_names(value, message.fields, message)
        return bytes(out)

    def _field(self, field: Field, value: Any) -> bytes:
        if field.kind == GROUP:
            raise BadValueError(GROUP_PROBLEM)
        if not field.repeated:
            return self._one(field, value, always=field.presence)
        if self._schema.is_map(field):
            return self._map(field, value)
        if not isinstance(value, list | tuple) or hasattr(value, "_fields") or hasattr(value, "__fields__"):
            raise refused(value, "a list")
        items = bytearray()
        for place, one in enumerate(value):
            try:
                if one is None:
                    raise BadValueError(NO_NULL_ELEMENT)
                items += self._scalar(field, one) if field.packed else self._one(field, one, always=True)
            except BadValueError as bad:
                raise bad.inside(f"[{place}]") from None
        return tag(field.number, SIZED) + _sized(bytes(items)) if field.packed and items else bytes(items)

    def _map(self, field: Field, value: Any) -> bytes:
        if not isinstance(value, Mapping):
            raise refused(value, "a dict")
        members = self._schema.messages[field.type_name].fields
        out = bytearray()
        for place, pair in enumerate(value.items()):
            entry = b""
            for member, one in zip(members, pair, strict=True):
                try:
                    if one is None:
                        raise BadValueError(NO_NULL_IN_MAP)
                    entry += self._one(member, one, always=True)
                except BadValueError as bad:
                    raise bad.inside(f"[{place}].{member.name}") from None
            out += tag(field.number, SIZED) + _sized(entry)
        return bytes(out)

    def _one(self, field: Field, value: Any, *, always: bool) -> bytes:
        """Returns a value with its tag. always: the default is written, too."""
        if field.kind == MESSAGE:
            return tag(field.number, SIZED) + _sized(self.message(self._schema.messages[field.type_name], value))
        data = self._scalar(field, value)
        if not always and data == _DEFAULTS[WIRE_TYPES[field.kind]]:
            return b""
        return tag(field.number, WIRE_TYPES[field.kind]) + data

    def _scalar(self, field: Field, value: Any) -> bytes:
        if field.kind == ENUM:
            return _enum(self._schema.enums[field.type_name], value)
        return _whole(field.kind, value) if field.kind in LIMITS else _OTHERS[field.kind](value)


_DEFAULTS: Final[Mapping[int, bytes]] = {VARINT: b"\0", FIXED64: bytes(8), SIZED: b"\0", FIXED32: bytes(4)}


def _own_bytes(message: Message, value: Any) -> bytes | None:
    """Returns the bytes of an object of Protobuf's own class; None for other values."""
    descriptor = getattr(value, "DESCRIPTOR", None)
    if descriptor is None or not hasattr(value, "SerializeToString"):
        return None
    if descriptor.full_name != message.name:
        raise BadValueError(f"a {descriptor.full_name} is not supported, must be {message.name}")
    if not value.IsInitialized():
        raise BadValueError("the object lacks required fields")
    data: bytes = value.SerializeToString(deterministic=True)
    return data


def _nanos_since_epoch(value: datetime.datetime) -> int:
    """Returns a datetime as nanoseconds. Those of pandas have more digits than microseconds."""
    _refuse_nat(value)
    nanos = getattr(value, "nanosecond", 0)
    plain = datetime.datetime.combine(value.date(), value.timetz())
    try:
        since = (plain.astimezone() if plain.tzinfo is None else plain) - single.EPOCH
    except (OverflowError, ValueError, OSError):  # the platform's range of local times
        raise BadValueError(f"the value is out of range for {TIMESTAMP}") from None
    return since // single.MICROSECOND * 1000 + nanos


def _refuse_nat(value: datetime.datetime) -> None:
    if value != value:  # noqa: PLR0124  # pandas' NaT is a datetime
        raise BadValueError("NaT is not supported: use None")


def _seconds_and_nanos(name: str, nanos: int) -> bytes:
    seconds, rest = divmod(nanos, _PER_SECOND)
    if name == DURATION and seconds < 0 and rest:  # both have the sign of the duration
        seconds, rest = seconds + 1, rest - _PER_SECOND
    least, greatest = LIMITS_S[name]
    if not least <= seconds <= greatest:
        raise BadValueError(f"the value is out of range for {name}")
    return b"".join(tag(number, VARINT) + _code(one) for number, one in ((1, seconds), (2, rest)) if one)


def _code(number: int) -> bytes:
    return unsigned_varint(number & (2**64 - 1))


def _sized(data: bytes) -> bytes:
    return unsigned_varint(len(data)) + data


# Scalar types


def _enum(schema: Enum, value: Any) -> bytes:
    if isinstance(value, str):
        found = next((number for name, number in schema.values if name == value), None)
        if found is None:
            raise BadValueError(f"the text is not a name of {schema}: {schema.listed()}")
        return _code(found)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise refused(value, "str or int")
    if int(value) not in {number for _, number in schema.values}:
        raise BadValueError(f"{int(value)} is not a number of {schema}: {schema.listed()}")
    return _code(int(value))


def _whole(kind: str, value: Any) -> bytes:
    number = _number_of(kind, value)
    least, greatest = LIMITS[kind]
    if not least <= number <= greatest:
        raise BadValueError(f"{number} is out of range for {kind}")
    wire_type = WIRE_TYPES[kind]
    if wire_type == VARINT:
        return varint(number) if kind.startswith("s") else _code(number)
    return number.to_bytes(8 if kind.endswith("64") else 4, "little", signed=kind.startswith("s"))


def _number_of(kind: str, value: Any) -> int:
    """Returns a value as a whole number: a date as days, a time as nanoseconds, a datetime without a zone as microseconds."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    is_signed = LIMITS[kind][0] < 0
    if is_signed and kind.endswith("64") and isinstance(value, datetime.datetime) and value.tzinfo is None:
        _refuse_nat(value)
        return (value - single.LOCAL_EPOCH) // single.MICROSECOND
    if is_signed and isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.toordinal() - single.DAY_ONE
    if kind.endswith("64") and isinstance(value, datetime.time) and value.tzinfo is None:
        return ((value.hour * 60 + value.minute) * 60 + value.second) * _PER_SECOND + value.microsecond * 1000
    raise refused(value, "int")


def _string(value: Any) -> bytes:
    if isinstance(value, Decimal) and value.is_finite():
        value = format(value, "f")
    elif isinstance(value, UUID):
        value = str(value)
    return _sized(single.utf8(value))


_OTHERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "bool": single.boolean,
    "float": lambda value: single.floating(value, "float"),
    "double": lambda value: single.floating(value, "double"),
    "string": _string,
    "bytes": lambda value: _sized(single.blob(value)),
}
