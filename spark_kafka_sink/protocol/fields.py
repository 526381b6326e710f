"""Declarations of messages: classes of typed fields, each with its wire type and the versions that have it."""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, dataclass
from typing import Any, Final, NamedTuple, TypeVar, dataclass_transform

from spark_kafka_sink.protocol.wire_types import WireType

T = TypeVar("T")

LATEST: Final = 0x7FFF
"""Greater than any version, because versions are int16."""

_WIRE: Final = "wire"


@dataclass(slots=True)
class Message:
    """The base of every message and every nested struct."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The wire type and position of a field. Versions are inclusive."""

    type: WireType
    since: int
    until: int
    nullable_since: int
    tag: int | None
    ignorable: bool


class WireField(NamedTuple):
    """A field of a message class. `default` is MISSING if every version has the field."""

    name: str
    wire: Wire
    default: Any

    def is_in(self, version: int) -> bool:
        return self.wire.since <= version <= self.wire.until


def wire(
    type: WireType,
    *,
    since: int = 0,
    until: int = LATEST,
    nullable_since: int = LATEST + 1,
    tag: int | None = None,
    ignorable: bool = False,
    default: Any = MISSING,
) -> Any:
    """Declares a field. It needs a default if some version lacks it.

    A version that lacks the field cannot carry a value other than the default, unless the field is `ignorable` (as in Kafka's own
    message definitions). Tagged fields (KIP-482) are always ignorable; they need a default and come last.
    """
    return dataclasses.field(default=default, metadata={_WIRE: Wire(type, since, until, nullable_since, tag, ignorable)})


@dataclass_transform(field_specifiers=(wire,))
def message(cls: type[T]) -> type[T]:
    """Makes `cls` a message class: a dataclass with slots. It is not frozen, which would make construction three times slower."""
    return dataclass(slots=True)(cls)


def wire_fields(cls: type) -> tuple[WireField, ...]:
    """Returns the fields of a message class in wire order, tagged ones last."""
    declared = (field for field in dataclasses.fields(cls) if _WIRE in field.metadata)
    return tuple(WireField(field.name, field.metadata[_WIRE], field.default) for field in declared)
