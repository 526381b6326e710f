"""The records of Kafka's internal topics."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError
from spark_kafka_sink.protocol.api import NEVER_FLEXIBLE
from spark_kafka_sink.protocol.codec import message_codec, read_part, write_parts
from spark_kafka_sink.protocol.fields import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    ZERO_UUID,
    ArrayOf,
    Buffer,
    Message,
    message,
    wire,
)
from spark_kafka_sink.protocol.values import Codec

MessageT = TypeVar("MessageT", bound=Message)

_VERSION: Final = struct.Struct(">h")


def version_prefix(data: Buffer) -> int:
    """Returns the first two bytes. Raises ProtocolError if they are missing."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a record of {counted(len(data), 'byte')} cannot be decoded: it is shorter than its version")
    (version,) = _VERSION.unpack_from(data)
    return int(version)


@dataclass(frozen=True, slots=True)
class VersionedRecord(Generic[MessageT]):
    """Two bytes of version followed by a message in versions 0 to `max_version`. Tagged fields exist from `flexible_from` on.

    In keys of the internal topics, the two bytes are not a version but the record's type, `key_type` (Kafka's
    MessageUtil.toCoordinatorTypePrefixedBytes). Every key is in version 0.
    """

    message: type[MessageT]
    max_version: int
    flexible_from: int
    written_version: int = 0
    key_type: int | None = None

    def encode(self, body: MessageT, version: int | None = None) -> bytes:
        """Encodes in `version`, by default `written_version`. Raises UsageError if a value does not fit its field."""
        version = self.written_version if version is None else version
        prefix = version if self.key_type is None else self.key_type
        parts = write_parts(f"{self.message.__name__} v{version}", (self._codec(version), body))
        return _VERSION.pack(prefix) + b"".join(parts)

    def decode(self, data: Buffer) -> MessageT:
        """Decodes exactly one record. Raises ProtocolError if it is invalid, UnsupportedVersionError for another version."""
        prefix = version_prefix(data)
        what = f"{self.message.__name__} v{prefix}"
        if self.key_type not in {None, prefix}:
            raise UnsupportedVersionError(f"the key has type {prefix} instead of {self.key_type}", version=prefix)
        view = memoryview(data)
        codec = self._codec(prefix if self.key_type is None else self.max_version)
        body: MessageT
        body, offset = read_part(codec, view, _VERSION.size, what)
        if offset != len(view):
            raise ProtocolError(f"{what} of {counted(len(view), 'byte')} cannot be decoded: it ends at byte {offset:,}")
        return body

    def _codec(self, version: int) -> Codec:
        if not 0 <= version <= self.max_version:
            raise UnsupportedVersionError(f"{self.message.__name__} v{version} is not supported", version=version)
        cls: type = self.message
        return message_codec(cls, version, version >= self.flexible_from)


# Records of `__consumer_offsets`: committed offsets and the state of classic groups (Kafka's module group-coordinator).


@message
class OffsetCommitKey(Message):
    group: str = wire(STRING)
    topic: str = wire(STRING)
    partition: int = wire(INT32)


@message
class OffsetCommitValue(Message):
    """A committed offset. Timestamps are in ms since 1970. Only a commit with its own expiry is written, in v1."""

    offset: int = wire(INT64)
    leader_epoch: int = wire(INT32, since=3, default=-1, ignorable=True)
    metadata: str = wire(STRING, default="")
    commit_timestamp: int = wire(INT64, default=0)
    expire_timestamp: int = wire(INT64, since=1, until=1, default=-1, ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=4, tag=0, default=ZERO_UUID)


@message
class GroupMetadataKey(Message):
    group: str = wire(STRING)


@message
class MemberMetadata(Message):
    """A member of a group. Timeouts are in ms."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, nullable_since=3, default=None, ignorable=True)
    client_id: str = wire(STRING, default="")
    client_host: str = wire(STRING, default="")
    rebalance_timeout: int = wire(INT32, since=1, default=-1, ignorable=True)
    session_timeout: int = wire(INT32, default=0)
    subscription: bytes = wire(BYTES, default=b"")
    assignment: bytes = wire(BYTES, default=b"")


@message
class GroupMetadataValue(Message):
    """A classic group that is stable or has become empty. Protocol and leader are None without members."""

    protocol_type: str = wire(STRING)
    generation: int = wire(INT32)
    protocol: str | None = wire(STRING, nullable_since=0)
    leader: str | None = wire(STRING, nullable_since=0)
    current_state_timestamp: int = wire(INT64, since=2, default=-1, ignorable=True)
    members: Sequence[MemberMetadata] = wire(ArrayOf(MemberMetadata), default=())


OFFSET_COMMIT_KEY: Final = VersionedRecord(OffsetCommitKey, 0, NEVER_FLEXIBLE, key_type=1)
OFFSET_COMMIT_VALUE: Final = VersionedRecord(OffsetCommitValue, 4, 4, written_version=4)
GROUP_METADATA_KEY: Final = VersionedRecord(GroupMetadataKey, 0, NEVER_FLEXIBLE, key_type=2)
GROUP_METADATA_VALUE: Final = VersionedRecord(GroupMetadataValue, 4, 4, written_version=3)
"""v3, as in Kafka 4.1, which stays at the last version without tagged fields while it needs none."""

_LEGACY_OFFSET_COMMIT_KEY: Final = VersionedRecord(OffsetCommitKey, 0, NEVER_FLEXIBLE, key_type=0)
"""The key before Kafka 0.9, which Kafka still reads."""

_KEYS: Final[Mapping[int | None, VersionedRecord[Any]]] = {
    key.key_type: key for key in (_LEGACY_OFFSET_COMMIT_KEY, OFFSET_COMMIT_KEY, GROUP_METADATA_KEY)
}


def decode_group_key(data: Buffer) -> OffsetCommitKey | GroupMetadataKey:
    """Decodes the key of a record of `__consumer_offsets`.

    Raises:
        UnsupportedVersionError: the record belongs to a newer group protocol.
        ProtocolError: the key is invalid.
    """
    key_type = version_prefix(data)
    record = _KEYS.get(key_type)
    if record is None:
        raise UnsupportedVersionError(f"a key of type {key_type} is not supported", version=key_type)
    key: OffsetCommitKey | GroupMetadataKey = record.decode(data)
    return key


# Records of `__transaction_state` (Kafka's module transaction-coordinator).


@message
class TransactionLogKey(Message):
    transactional_id: str = wire(STRING)


@message
class PartitionsSchema(Message):
    topic: str = wire(STRING)
    partition_ids: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class TransactionLogValue(Message):
    """A transactional id: v0 with transaction version 0, otherwise v1. `transaction_partitions` is None in state Empty.

    `transaction_status`: 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort, 6 Dead, 7
    PrepareEpochFence.
    """

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    transaction_timeout_ms: int = wire(INT32)
    transaction_status: int = wire(INT8)
    transaction_partitions: Sequence[PartitionsSchema] | None = wire(ArrayOf(PartitionsSchema), nullable_since=0)
    transaction_last_update_timestamp_ms: int = wire(INT64)
    transaction_start_timestamp_ms: int = wire(INT64)
    previous_producer_id: int = wire(INT64, since=1, tag=0, default=-1)
    next_producer_id: int = wire(INT64, since=1, tag=1, default=-1)
    client_transaction_version: int = wire(INT16, since=1, tag=2, default=0)
    next_producer_epoch: int = wire(INT16, since=1, tag=3, default=-1)


TRANSACTION_LOG_KEY: Final = VersionedRecord(TransactionLogKey, 0, NEVER_FLEXIBLE, key_type=0)
TRANSACTION_LOG_VALUE: Final = VersionedRecord(TransactionLogValue, 1, 1, written_version=1)
