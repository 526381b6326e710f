"""Fields of a decoded Protobuf message, and the values of Google's and Confluent's well-known messages."""

from __future__ import annotations

import datetime
from collections.abc import Container, Mapping
from decimal import Context, Decimal
from typing import Any, Final

from spark_kafka_sink.verify.record_errors import MisfitError

_EXACT: Final = Context(prec=100)


def message_fields(message: Any, columns: Container[str]) -> Mapping[str, Any]:
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


def known_value(message: Any) -> Any:
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
