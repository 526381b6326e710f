"""Declarations of messages: classes of typed fields, each with its wire type and the versions that have it.

They only describe the fields; codec.py reads and writes them.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, dataclass_transform

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Contiguous bytes. A memoryview must have one dimension and format 'B'."""

Records: TypeAlias = Sequence[Buffer]
"""Record batches in their buffers, which are written in this order without copying."""

ZERO_UUID: Final = uuid.UUID(int=0)
"""Kafka's Uuid.ZERO_UUID: no topic id."""


@dataclass(frozen=True, slots=True)
class FixedType:
    """A fixed-size number. `code`: its letter in the struct module. It is big-endian on the wire."""

    code: str


@dataclass(frozen=True, slots=True)
class StringType:
    """UTF-8 text. `always_classic`: the length is int16 even in flexible versions, as for client_id in the request header."""

    always_classic: bool = False


@dataclass(frozen=True, slots=True)
class UuidType:
    """A UUID of 16 bytes. ZERO_UUID stands for none."""


@dataclass(frozen=True, slots=True)
class BytesType:
    """Bytes in another format. They are read as a copy, because they are small and outlive their message."""


@dataclass(frozen=True, slots=True)
class RecordsType:
    """Record batches: opaque bytes with a length."""


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """A sequence of a wire type or a message class, read as a tuple."""

    element: WireType


WireType: TypeAlias = FixedType | StringType | UuidType | BytesType | RecordsType | ArrayOf | type
"""A wire type. A message class is its own wire type."""

BOOLEAN: Final = FixedType("?")
INT8: Final = FixedType("b")
INT16: Final = FixedType("h")
INT32: Final = FixedType("i")
INT64: Final = FixedType("q")
STRING: Final = StringType()
CLASSIC_STRING: Final = StringType(always_classic=True)
UUID: Final = UuidType()
BYTES: Final = BytesType()
RECORDS: Final = RecordsType()


# Fields

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
