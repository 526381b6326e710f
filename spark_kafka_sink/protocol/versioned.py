"""Versioned records: two bytes of version and then a message, as the keys and values of Kafka's internal topics are."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError
from spark_kafka_sink.protocol.codec import message_codec
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.parts import check_end, read_part, write_parts
from spark_kafka_sink.protocol.values import Codec
from spark_kafka_sink.protocol.wire_types import Buffer

MessageT = TypeVar("MessageT", bound=Message)

_VERSION: Final = struct.Struct(">h")


def version_prefix(data: Buffer) -> int:
    """The first two bytes. Raises ProtocolError where they are missing."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a record of {len(data)} bytes cannot be read: it is shorter than its version")
    (version,) = _VERSION.unpack_from(data)
    return int(version)


@dataclass(frozen=True, slots=True)
class VersionedRecord(Generic[MessageT]):
    """Versions 0 to `max_version` of one message class; from `flexible_from` on there are tagged fields.

    In keys of the internal topics the two bytes are not a version but say which of the topic's records this is (Kafka's
    MessageUtil.toCoordinatorTypePrefixedBytes), and every key is in version 0: `key_type`.
    """

    message: type[MessageT]
    max_version: int
    flexible_from: int
    written_version: int = 0
    key_type: int | None = None

    def encode(self, body: MessageT, version: int | None = None) -> bytes:
        """In `written_version` where none is named. Raises UsageError where a value does not fit its field."""
        version = self.written_version if version is None else version
        prefix = version if self.key_type is None else self.key_type
        parts = write_parts(f"{self.message.__name__} v{version}", (self._codec(version), body))
        return _VERSION.pack(prefix) + b"".join(parts)

    def decode(self, data: Buffer) -> MessageT:
        """Raises ProtocolError on anything but one whole record, UnsupportedVersionError where the first bytes are others."""
        prefix = version_prefix(data)
        what = f"{self.message.__name__} v{prefix}"
        if self.key_type not in {None, prefix}:
            raise UnsupportedVersionError(f"the key has type {prefix}, not {self.key_type}", version=prefix)
        view = memoryview(data)
        codec = self._codec(prefix if self.key_type is None else self.max_version)
        body: MessageT
        body, offset = read_part(codec, view, _VERSION.size, what)
        check_end(view, offset, what)
        return body

    def _codec(self, version: int) -> Codec:
        if not 0 <= version <= self.max_version:
            raise UnsupportedVersionError(f"{self.message.__name__} v{version} is not spoken here", version=version)
        cls: type = self.message
        return message_codec(cls, version, version >= self.flexible_from)
