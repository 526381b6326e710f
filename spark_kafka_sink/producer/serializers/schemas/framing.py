"""The bytes that Confluent's wire format puts before the data: a zero byte and the schema's id."""

from __future__ import annotations

import struct
from typing import Final

_PREFIX: Final = struct.Struct(">bI")
MAGIC: Final = 0


def id_prefix(schema_id: int) -> bytes:
    """Returns the five bytes before a key or a value."""
    return _PREFIX.pack(MAGIC, schema_id)
