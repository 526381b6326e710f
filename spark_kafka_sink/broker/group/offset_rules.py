"""Who may commit, delete and lose offsets, by the state of the group (Kafka's ClassicGroup, OffsetMetadataManager). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.group.classic_group import ClassicGroup
from spark_kafka_sink.broker.group.effects import Effects
from spark_kafka_sink.broker.group.group_state import GroupState
from spark_kafka_sink.broker.group.offsets import NO_EXPIRY, OffsetAndMetadata, OffsetStore, TopicPartition
from spark_kafka_sink.protocol.error_codes import ErrorCode

_WITH_MEMBERS: Final = frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE})

_COMMITS_SHOW_LIFE: Final = frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE})
"""A commit counts as a heartbeat."""


def check_commit(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool
) -> None:
    """`ClassicGroup.validateOffsetCommit`. Raises ApiException."""
    if generation < 0 and group.is_empty:
        return  # an administrator, or a consumer that assigns its partitions itself
    if generation >= 0 or member_id or group_instance_id is not None:
        group.member_of(member_id, group_instance_id)
        if generation != group.generation:
            raise ApiException(ErrorCode.ILLEGAL_GENERATION)
    elif not transactional:
        # Older producers commit without saying for whom: TxnOffsetCommit before v3.
        raise ApiException(ErrorCode.UNKNOWN_MEMBER_ID)
    if not transactional and group.state is GroupState.COMPLETING_REBALANCE:
        raise ApiException(ErrorCode.REBALANCE_IN_PROGRESS)


def note_commit(group: ClassicGroup, member_id: str, effects: Effects) -> None:
    member = group.members.get(member_id)
    if member is not None and group.state in _COMMITS_SHOW_LIFE:
        effects.expect_heartbeat(member)


def check_offset_delete(group: ClassicGroup) -> None:
    """Of a group of consumers those topics that nobody subscribes to may go. Raises NON_EMPTY_GROUP for other groups."""
    if group.state in _WITH_MEMBERS and not group.uses_consumer_protocol:
        raise ApiException(ErrorCode.NON_EMPTY_GROUP)


def check_group_delete(group: ClassicGroup) -> None:
    if group.state in _WITH_MEMBERS:
        raise ApiException(ErrorCode.NON_EMPTY_GROUP)


def expired(group: ClassicGroup, offsets: OffsetStore, now_ms: int, retention_ms: int) -> Iterator[TopicPartition]:
    """Offsets that nobody needs any more (`cleanupExpiredOffsets`, KIP-211)."""
    if not _can_expire(group):
        return
    for partition, offset in offsets.of(group.group_id).items():
        if (
            not group.is_subscribed_to(partition.topic)
            and _is_over(offset, _since_ms(group, offset), now_ms, retention_ms)
            and not offsets.has_pending(group.group_id, partition)
        ):
            yield partition


def _can_expire(group: ClassicGroup) -> bool:
    if group.protocol_type is None or group.is_empty:
        return True
    return group.state is GroupState.STABLE and group.uses_consumer_protocol and group.subscribed is not None


def _since_ms(group: ClassicGroup, offset: OffsetAndMetadata) -> int:
    """A group's offsets are kept while it has members; a simple consumer's count from the commit."""
    if group.protocol_type is not None and group.is_empty and group.state_since_ms is not None:
        return group.state_since_ms
    return offset.commit_timestamp_ms


def _is_over(offset: OffsetAndMetadata, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if offset.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= offset.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms


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
    """What a client is told when the log refused (`CoordinatorOperationExceptionHelper`): it knows no log, only a coordinator."""
    return _CLIENT_CODES.get(code, code)
