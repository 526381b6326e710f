"""Kafka's wire types as declarations: what a field is, not how it is read or written (codec.py interprets them)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Contiguous bytes; a memoryview has one dimension and format 'B'."""

Records: TypeAlias = Sequence[Buffer]
"""Record batches as the buffers they lie in; written in this order, never copied."""

ZERO_UUID: Final = uuid.UUID(int=0)
"""Kafka's Uuid.ZERO_UUID: no topic id."""


@dataclass(frozen=True, slots=True)
class FixedType:
    """A number of fixed size; `code` is its letter in the struct module (big-endian on the wire)."""

    code: str


@dataclass(frozen=True, slots=True)
class StringType:
    """UTF-8 text. `always_classic`: an int16 length also in flexible versions, as client_id in the request header has it."""

    always_classic: bool = False


@dataclass(frozen=True, slots=True)
class UuidType:
    """16 bytes; ZERO_UUID stands for none."""


@dataclass(frozen=True, slots=True)
class BytesType:
    """Bytes of someone else's format, read as a copy: they are small and outlive the message they came in."""


@dataclass(frozen=True, slots=True)
class RecordsType:
    """Record batches: opaque bytes with a length."""


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """A sequence of a wire type or of a message class; read as a tuple."""

    element: WireType


WireType: TypeAlias = FixedType | StringType | UuidType | BytesType | RecordsType | ArrayOf | type
"""A message class (fields.py) is the wire type of itself."""

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
