"""Conversion of groups and offsets to and from records of `__consumer_offsets` (Kafka's GroupCoordinatorRecordHelpers)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.coordinator_log import CoordinatorLog, KeyValue, ReplayedMarker, ReplayedRecord
from spark_kafka_sink.broker.group.classic_group import ClassicGroup, GroupMember, GroupState
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError
from spark_kafka_sink.protocol import internal_topics
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP

logger = logging.getLogger(__name__)

NO_EPOCH: Final = -1
NO_EXPIRY: Final = -1
NO_PRODUCER: Final = -1

GROUP_METADATA_VERSION: Final = 3
"""The version that Kafka 4.1 writes."""

# Kafka 4.1 does this too: only v1 has a field for an expiry.
OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset: the next one to read. Timestamps are in ms since 1970.

    expire_timestamp_ms: NO_EXPIRY, or the time that a client before v5 requested. record_offset: the record's offset in
    `__consumer_offsets`.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    record_offset: int = -1


def metadata_of(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> internal_topics.GroupMetadataValue:
    """Returns a group's record. `assignments`: those about to take effect; None: the current ones."""
    return internal_topics.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=NO_TIMESTAMP if group.state_since_ms is None else group.state_since_ms,
        members=tuple(
            internal_topics.MemberMetadata(
                member_id=name,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols.get(group.protocol_name or "", b""),
                assignment=member.assignment if assignments is None else assignments[name],
            )
            for name, member in group.members.items()
        ),
    )


def group_of(
    group_id: str, value: internal_topics.GroupMetadataValue, wall_ms: Callable[[], int], config: BrokerConfig
) -> ClassicGroup:
    """Returns the group as it was stored: stable or empty (`GroupMetadataManager.replay`)."""
    group = ClassicGroup(group_id, wall_ms, config)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.state_since_ms = None if value.current_state_timestamp == NO_TIMESTAMP else value.current_state_timestamp
    for stored in value.members:
        member = GroupMember(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
            session_timeout_ms=stored.session_timeout,
            protocol_type=value.protocol_type,
            protocols={value.protocol or "": stored.subscription},
            assignment=stored.assignment,
        )
        group.add(member)
    if value.leader in group.members:
        group.leader = value.leader
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.know_subscriptions()
    return group


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group's record. `value`: None if the group was deleted."""

    group_id: str
    value: internal_topics.GroupMetadataValue | None


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """An offset's record. `offset`: None if it was deleted. `producer_id`: NO_PRODUCER outside transactions."""

    group_id: str
    partition: TopicPartition
    offset: OffsetAndMetadata | None
    producer_id: int


Stored: TypeAlias = StoredGroup | StoredOffset | ReplayedMarker


def group_record(group_id: str, value: internal_topics.GroupMetadataValue | None) -> KeyValue:
    encoded = None if value is None else internal_topics.GROUP_METADATA_VALUE.encode(value, GROUP_METADATA_VERSION)
    return internal_topics.GROUP_METADATA_KEY.encode(internal_topics.GroupMetadataKey(group_id)), encoded


def offset_record(group_id: str, partition: TopicPartition, offset: OffsetAndMetadata | None) -> KeyValue:
    key = internal_topics.OFFSET_COMMIT_KEY.encode(internal_topics.OffsetCommitKey(group_id, *partition))
    if offset is None:
        return key, None
    expires = offset.expire_timestamp_ms != NO_EXPIRY
    version = OFFSET_COMMIT_VERSION_WITH_EXPIRY if expires else OFFSET_COMMIT_VERSION
    value = internal_topics.OffsetCommitValue(
        offset.offset, offset.leader_epoch, offset.metadata, offset.commit_timestamp_ms, offset.expire_timestamp_ms
    )
    return key, internal_topics.OFFSET_COMMIT_VALUE.encode(value, version)


class GroupLog:
    """Appends and reads records. It has no state. Callers hold the coordinator's lock, so log and memory have one order."""

    def __init__(self, log: CoordinatorLog) -> None:
        self._log = log

    def partition_of(self, group_id: str) -> int:
        return self._log.partition_for(group_id)

    def store_group(self, group_id: str, value: internal_topics.GroupMetadataValue) -> None:
        """Raises ApiException, like every method that appends."""
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
        """Appends one batch and returns the offset of its first record."""
        records = [offset_record(group_id, partition, offset) for partition, offset in offsets.items()]
        return self._log.append(
            self.partition_of(group_id), records, producer_id=producer_id, producer_epoch=producer_epoch, guard=guard
        )

    def forget(self, group_id: str, partitions: list[TopicPartition], *, whole_group: bool = False) -> None:
        """Appends tombstones for the partitions, and with `whole_group` for the group."""
        records = [offset_record(group_id, partition, None) for partition in partitions]
        if whole_group:
            records.append(group_record(group_id, None))
        if records:
            self._log.append(self.partition_of(group_id), records)

    def replay(self) -> Iterator[Stored]:
        """Yields all records. Those that cannot be read, such as records of newer group protocols, are logged and skipped."""
        for item in self._log.replay():
            if isinstance(item, ReplayedMarker):
                yield item
                continue
            try:
                yield _stored(item)
            except (ProtocolError, UnsupportedVersionError) as error:
                logger.warning("Skipped record %d of partition %d of %s: %s", item.offset, item.partition, self._log.topic, error)


def _stored(record: ReplayedRecord) -> Stored:
    key = internal_topics.decode_group_key(record.key)
    if isinstance(key, internal_topics.GroupMetadataKey):
        return StoredGroup(key.group, None if record.value is None else internal_topics.GROUP_METADATA_VALUE.decode(record.value))
    partition = TopicPartition(key.topic, key.partition)
    if record.value is None:
        return StoredOffset(key.group, partition, None, record.producer_id)
    value = internal_topics.OFFSET_COMMIT_VALUE.decode(record.value)
    timestamps = value.commit_timestamp, value.expire_timestamp
    offset = OffsetAndMetadata(value.offset, value.leader_epoch, value.metadata, *timestamps, record.offset)
    return StoredOffset(key.group, partition, offset, record.producer_id)


_CLIENT_CODES: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def client_code(code: ErrorCode) -> ErrorCode:
    """Returns the client's error code for a failed append (`CoordinatorOperationExceptionHelper`)."""
    return _CLIENT_CODES.get(code, code)
