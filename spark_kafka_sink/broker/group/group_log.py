"""`__consumer_offsets` in terms of groups and offsets: keys and values are encoded and decoded here."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from spark_kafka_sink.broker.coordinator_log import CoordinatorLog, KeyValue, ReplayedMarker, ReplayedRecord
from spark_kafka_sink.broker.group.offsets import NO_EXPIRY, OffsetAndMetadata, TopicPartition, offset_of
from spark_kafka_sink.broker.log.verification_state import VerificationGuard
from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError
from spark_kafka_sink.protocol.internal_topics import (
    GROUP_METADATA_KEY,
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    decode_group_key,
)

logger = logging.getLogger(__name__)

NO_PRODUCER: Final = -1

GROUP_METADATA_VERSION: Final = 3
"""What Kafka 4.1 writes."""

# Kafka 4.1 as well: only v1 has room for an expiry.
OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """`value`: None where the group was deleted."""

    group_id: str
    value: GroupMetadataValue | None


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """`offset`: None where it was deleted. `producer_id`: NO_PRODUCER outside transactions."""

    group_id: str
    partition: TopicPartition
    offset: OffsetAndMetadata | None
    producer_id: int


Stored: TypeAlias = StoredGroup | StoredOffset | ReplayedMarker


def group_record(group_id: str, value: GroupMetadataValue | None) -> KeyValue:
    encoded = None if value is None else GROUP_METADATA_VALUE.encode(value, GROUP_METADATA_VERSION)
    return GROUP_METADATA_KEY.encode(GroupMetadataKey(group_id)), encoded


def offset_record(group_id: str, partition: TopicPartition, offset: OffsetAndMetadata | None) -> KeyValue:
    key = OFFSET_COMMIT_KEY.encode(OffsetCommitKey(group_id, *partition))
    return key, None if offset is None else _offset_value(offset)


def _offset_value(offset: OffsetAndMetadata) -> bytes:
    expires = offset.expire_timestamp_ms != NO_EXPIRY
    return OFFSET_COMMIT_VALUE.encode(offset.record(), OFFSET_COMMIT_VERSION_WITH_EXPIRY if expires else OFFSET_COMMIT_VERSION)


class GroupLog:
    """Without state; who calls holds the coordinator's lock, so that the log has the order of what is in memory."""

    def __init__(self, log: CoordinatorLog) -> None:
        self._log = log

    def partition_of(self, group_id: str) -> int:
        return self._log.partition_for(group_id)

    def store_group(self, group_id: str, value: GroupMetadataValue) -> None:
        """Raises ApiException, as all that append."""
        self._log.append(self.partition_of(group_id), [group_record(group_id, value)])

    def store_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
        guard: VerificationGuard | None = None,
    ) -> int:
        """One batch; the offset of its first record."""
        records = [offset_record(group_id, partition, offset) for partition, offset in offsets.items()]
        return self._log.append(
            self.partition_of(group_id), records, producer_id=producer_id, producer_epoch=producer_epoch, guard=guard
        )

    def forget(self, group_id: str, partitions: list[TopicPartition], *, whole_group: bool = False) -> None:
        """Tombstones; with `whole_group` also the group's own."""
        records = [offset_record(group_id, partition, None) for partition in partitions]
        if whole_group:
            records.append(group_record(group_id, None))
        if records:
            self._log.append(self.partition_of(group_id), records)

    def replay(self) -> Iterator[Stored]:
        """What cannot be read, such as records of newer group protocols, is logged and left out."""
        for item in self._log.replay():
            if isinstance(item, ReplayedMarker):
                yield item
                continue
            try:
                yield _stored(item)
            except (ProtocolError, UnsupportedVersionError) as error:
                logger.warning("Record %d of partition %d of %s: %s", item.offset, item.partition, self._log.topic, error)


def _stored(record: ReplayedRecord) -> Stored:
    key = decode_group_key(record.key)
    if isinstance(key, GroupMetadataKey):
        return StoredGroup(key.group, None if record.value is None else GROUP_METADATA_VALUE.decode(record.value))
    partition = TopicPartition(key.topic, key.partition)
    value = None if record.value is None else offset_of(OFFSET_COMMIT_VALUE.decode(record.value), record.offset)
    return StoredOffset(key.group, partition, value, record.producer_id)
