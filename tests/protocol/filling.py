"""Messages with a value of its own in every field, by the rules of golden/GoldenMessages.java."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

from spark_kafka_sink.protocol.fields import (
    BOOLEAN,
    BYTES,
    RECORDS,
    STRING,
    UUID,
    ArrayOf,
    FixedType,
    WireField,
    WireType,
    wire_fields,
)

_BASES = {"b": 0, "h": 300, "i": 70_000, "q": 1 << 40}
"""By the letters of the struct module: added, so that no number fits a smaller type."""


class Filling:
    """`full`: arrays have two elements, those of structs one; else whatever can be null is, and arrays are empty."""

    def __init__(self, full: bool) -> None:
        self._full = full
        self._numbers = itertools.count(1)

    def message(self, cls: type, version: int) -> Any:
        """The fields that the version lacks have their defaults; without `full` the tagged ones, too."""
        present = [field for field in wire_fields(cls) if field.is_in(version) and (self._full or field.wire.tag is None)]
        return cls(**{field.name: self._field(field, version) for field in present})

    def _field(self, field: WireField, version: int) -> Any:
        if not self._full and version >= field.wire.nullable_since:
            return None
        return self._value(field.wire.type, version)

    def _value(self, wire_type: WireType, version: int) -> Any:
        match wire_type:
            case ArrayOf(element=element):
                return self._array(element, version) if self._full else ()
            case type():
                return self.message(wire_type, version)
            case _:
                return _scalar(wire_type, next(self._numbers))

    def _array(self, element: WireType, version: int) -> tuple[Any, ...]:
        return tuple(self._value(element, version) for _ in range(1 if isinstance(element, type) else 2))


def _scalar(wire_type: WireType, number: int) -> Any:
    if isinstance(wire_type, FixedType):
        return True if wire_type == BOOLEAN else _BASES[wire_type.code] + number
    two_bytes = bytes((number, 0xFF))
    # The number and its negative, each in 64 bits with sign.
    of_java = uuid.UUID(int=(number << 64) + (1 << 64) - number)
    return {STRING: f"ü{number}", UUID: of_java, BYTES: two_bytes, RECORDS: (two_bytes,)}[wire_type]
