"""Declarations of Kafka's wire types. They describe fields; codec.py reads and writes them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

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
"""A wire type. A message class (fields.py) is its own wire type."""

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
