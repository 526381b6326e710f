"""What `__consumer_offsets` holds: committed offsets and the state of classic groups (Kafka's module group-coordinator)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.api import NEVER_FLEXIBLE
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.versioned import VersionedRecord, version_prefix
from spark_kafka_sink.protocol.wire_types import BYTES, INT32, INT64, STRING, UUID, ZERO_UUID, ArrayOf, Buffer


@message
class OffsetCommitKey(Message):
    group: str = wire(STRING)
    topic: str = wire(STRING)
    partition: int = wire(INT32)


@message
class OffsetCommitValue(Message):
    """Timestamps in ms since 1970. v1, and no other, is written where a commit has an expiry of its own."""

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
    """Timeouts in ms."""

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
    """A classic group when a generation is stable or it has become empty; protocol and leader are None without members."""

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
"""v3 as Kafka 4.1, which keeps to the last version without tagged fields while it has none."""

_LEGACY_OFFSET_COMMIT_KEY: Final = VersionedRecord(OffsetCommitKey, 0, NEVER_FLEXIBLE, key_type=0)
"""Before 0.9; Kafka still reads it."""

_KEYS: Final[Mapping[int | None, VersionedRecord[Any]]] = {
    key.key_type: key for key in (_LEGACY_OFFSET_COMMIT_KEY, OFFSET_COMMIT_KEY, GROUP_METADATA_KEY)
}


def decode_group_key(data: Buffer) -> OffsetCommitKey | GroupMetadataKey:
    """The key of a record of `__consumer_offsets`.

    Raises UnsupportedVersionError for the records of newer group protocols, ProtocolError where it cannot be read.
    """
    key_type = version_prefix(data)
    record = _KEYS.get(key_type)
    if record is None:
        raise UnsupportedVersionError(f"a key of type {key_type} is not spoken here", version=key_type)
    key: OffsetCommitKey | GroupMetadataKey = record.decode(data)
    return key
