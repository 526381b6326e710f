"""Committed offsets and offsets of open transactions, with the checks for commits, deletions and expiry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.group.classic_group import ClassicGroup, GroupState
from spark_kafka_sink.broker.group.effects import Effects
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.protocol.error_codes import ErrorCode

NO_EPOCH: Final = -1
NO_EXPIRY: Final = -1


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


Offsets = dict[TopicPartition, OffsetAndMetadata]


@dataclass(slots=True)
class OffsetStore:
    """The offsets by group. `pending`: by group and producer id, until its transaction ends."""

    committed: dict[str, Offsets] = field(default_factory=lambda: defaultdict(dict))
    pending: dict[str, dict[int, Offsets]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(dict)))

    def of(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self.committed.get(group_id, {})

    def commit(self, group_id: str, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        self.committed[group_id][partition] = offset

    def commit_pending(self, group_id: str, producer_id: int, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        self.pending[group_id][producer_id][partition] = offset

    def has_pending(self, group_id: str, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self.pending.get(group_id, {}).values())

    def has_open_transaction(self, group_id: str) -> bool:
        """Returns whether the group has an open transaction, even if its offsets were deleted in the meantime."""
        return group_id in self.pending

    def every(self, group_id: str) -> Iterator[TopicPartition]:
        """Yields each partition that has a committed or pending offset of the group, once."""
        pending = (partition for offsets in self.pending.get(group_id, {}).values() for partition in offsets)
        return iter(dict.fromkeys([*self.of(group_id), *pending]))

    def forget(self, group_id: str, partition: TopicPartition) -> None:
        """Applies a tombstone, which deletes pending offsets too."""
        committed = self.committed.get(group_id, {})
        committed.pop(partition, None)
        if not committed:
            self.committed.pop(group_id, None)
        for offsets in self.pending.get(group_id, {}).values():
            offsets.pop(partition, None)

    def end_transaction(self, producer_id: int, *, committed: bool, is_in: Callable[[str], bool]) -> None:
        """Ends a transaction in the groups for which `is_in` returns True.

        These are the groups of the partition of `__consumer_offsets` that received the marker.
        """
        for group_id in [group_id for group_id, open_ones in self.pending.items() if producer_id in open_ones]:
            if is_in(group_id):
                offsets = self.pending[group_id].pop(producer_id)
                if not self.pending[group_id]:
                    del self.pending[group_id]
                for partition, offset in offsets.items() if committed else ():
                    known = self.of(group_id).get(partition)
                    # The later record wins even if an ordinary commit came during a transaction, as after compaction.
                    if known is None or offset.record_offset > known.record_offset:
                        self.commit(group_id, partition, offset)

    def groups(self) -> Collection[str]:
        return {*self.committed, *self.pending}


_WITH_MEMBERS: Final = frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE})

_COMMITS_SHOW_LIFE: Final = frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE})
"""Restarts a member's session: a commit counts as a heartbeat."""


def check_commit(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool
) -> None:
    """Implements `ClassicGroup.validateOffsetCommit`. Raises ApiException."""
    if generation < 0 and group.is_empty:
        return  # an administrator, or a consumer that assigns partitions itself
    if generation >= 0 or member_id or group_instance_id is not None:
        group.member_of(member_id, group_instance_id)
        if generation != group.generation:
            raise ApiException(ErrorCode.ILLEGAL_GENERATION)
    elif not transactional:
        # Older producers commit without a member: TxnOffsetCommit before v3.
        raise ApiException(ErrorCode.UNKNOWN_MEMBER_ID)
    if not transactional and group.state is GroupState.COMPLETING_REBALANCE:
        raise ApiException(ErrorCode.REBALANCE_IN_PROGRESS)


def note_commit(group: ClassicGroup, member_id: str, effects: Effects) -> None:
    member = group.members.get(member_id)
    if member is not None and group.state in _COMMITS_SHOW_LIFE:
        effects.expect_heartbeat(member)


def check_offset_delete(group: ClassicGroup) -> None:
    """Checks a deletion of offsets: consumers may delete those of unsubscribed topics; other groups raise NON_EMPTY_GROUP."""
    if group.state in _WITH_MEMBERS and not group.uses_consumer_protocol:
        raise ApiException(ErrorCode.NON_EMPTY_GROUP)


def check_group_delete(group: ClassicGroup) -> None:
    if group.state in _WITH_MEMBERS:
        raise ApiException(ErrorCode.NON_EMPTY_GROUP)


def expired(group: ClassicGroup, offsets: OffsetStore, now_ms: int, retention_ms: int) -> Iterator[TopicPartition]:
    """Yields the partitions with expired offsets (`cleanupExpiredOffsets`, KIP-211).

    The retention time does not pass while a group has members. For a simple consumer it begins with the commit.
    """
    has_left = group.protocol_type is not None and group.is_empty
    consumes = group.state is GroupState.STABLE and group.uses_consumer_protocol and group.subscribed is not None
    if not (group.protocol_type is None or group.is_empty or consumes):
        return
    for partition, offset in offsets.of(group.group_id).items():
        since_ms = group.state_since_ms if has_left and group.state_since_ms is not None else offset.commit_timestamp_ms
        end_ms = since_ms + retention_ms if offset.expire_timestamp_ms == NO_EXPIRY else offset.expire_timestamp_ms
        is_needed = group.is_subscribed_to(partition.topic) or offsets.has_pending(group.group_id, partition)
        if now_ms >= end_ms and not is_needed:
            yield partition
