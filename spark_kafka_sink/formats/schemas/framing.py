"""The id of a schema in Confluent's wire format: before the data, or in a header."""

from __future__ import annotations

import struct
import uuid
from typing import Final

_PREFIX: Final = struct.Struct(">bI")
_MAGIC_OF_ID: Final = 0
_MAGIC_OF_GUID: Final = 1


def id_prefix(schema_id: int) -> bytes:
    """Returns the five bytes before a key or a value."""
    return _PREFIX.pack(_MAGIC_OF_ID, schema_id)


def id_header_name(part: str) -> str:
    """Returns the name of the header that may have the id. Readers prefer it to the bytes before the data."""
    return f"__{part}_schema_id"


def id_header(part: str, guid: str, after_id: bytes) -> tuple[str, bytes]:
    """Returns the header of a record.

    Args:
        part: key or value.
        guid: the schema's globally unique id.
        after_id: bytes after the id, such as Protobuf's indexes of the message.

    Raises:
        ValueError: the guid is not valid.
    """
    return id_header_name(part), bytes([_MAGIC_OF_GUID]) + uuid.UUID(guid).bytes + after_id
