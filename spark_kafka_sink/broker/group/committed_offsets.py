"""Committed offsets: requests, ends of transactions and expiry (Kafka's OffsetMetadataManager)."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.group.classic_group import ClassicGroup, Effects, GroupState
from spark_kafka_sink.broker.group.group_log import (
    NO_EPOCH,
    NO_EXPIRY,
    NO_PRODUCER,
    GroupLog,
    OffsetAndMetadata,
    StoredOffset,
    client_code,
)
from spark_kafka_sink.broker.group.group_runner import GroupRunner
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)


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


def _note_commit(group: ClassicGroup, member_id: str, effects: Effects) -> None:
    member = group.members.get(member_id)
    if member is not None and group.state in _COMMITS_SHOW_LIFE:
        effects.expect_heartbeat(member)


_GROUP_ID_NOT_FOUND_SINCE: Final = 9
"""The first version of OffsetCommit whose clients understand it."""


@dataclass(frozen=True, slots=True)
class Committer:
    """The client that commits. It is not a member if it has generation -1, no member id and no instance id."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """The producer of a transaction. `guard` lets the log accept the transaction's first offsets."""

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None = None


class FetchedOffset(NamedTuple):
    """The result of a fetch. With `error_code` NONE and NO_OFFSET, the group has no offset."""

    offset: OffsetAndMetadata
    error_code: ErrorCode = ErrorCode.NONE


NO_OFFSET: Final = OffsetAndMetadata(-1, NO_EPOCH, "", 0)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Codes = Mapping[TopicPartition, ErrorCode]


class CommittedOffsets:
    """The committed offsets of all groups. Called only under the coordinator's lock.

    `_committed`: by group. `_pending`: by group and producer id, until its transaction ends.
    """

    def __init__(self, log: GroupLog, groups: GroupRunner, config: BrokerConfig, wall_ms: Callable[[], int]) -> None:
        self._log = log
        self._groups = groups
        self._config = config
        self._wall_ms = wall_ms
        self._committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = defaultdict(dict)
        self._pending: dict[str, dict[int, dict[TopicPartition, OffsetAndMetadata]]] = defaultdict(lambda: defaultdict(dict))

    def commit(self, by: Committer, offsets: Offsets, version: int) -> Codes:
        older = version < _GROUP_ID_NOT_FOUND_SINCE
        group = self._committing(by, ErrorCode.ILLEGAL_GENERATION if older else ErrorCode.GROUP_ID_NOT_FOUND)
        check_commit(group, by.member_id, by.group_instance_id, by.generation, transactional=False)
        self._groups.run(group, lambda group, effects: _note_commit(group, by.member_id, effects))
        return self._store(by.group_id, offsets)

    def commit_transactional(self, by: Committer, producer: TransactionalProducer, offsets: Offsets) -> Codes:
        group = self._committing(by, ErrorCode.ILLEGAL_GENERATION)
        check_commit(group, by.member_id, by.group_instance_id, by.generation, transactional=True)
        return self._store(by.group_id, offsets, producer)

    def _committing(self, by: Committer, code: ErrorCode) -> ClassicGroup:
        """Returns the group that a commit is for. An unknown group may have offsets unless the client claims to be its member."""
        if by.generation >= 0:
            return self._groups.known(by.group_id, code)
        return self._groups.find(by.group_id) or self._groups.new(by.group_id)

    def _store(self, group_id: str, offsets: Offsets, producer: TransactionalProducer | None = None) -> Codes:
        """Stores the offsets whose metadata is not too large, and returns a code for each."""
        maximum = self._config.offset_metadata_max_bytes
        accepted = {partition: offset for partition, offset in offsets.items() if len(offset.metadata) <= maximum}
        if accepted:
            by = producer or TransactionalProducer(NO_PRODUCER, -1)
            try:
                first = self._log.store_offsets(
                    group_id, accepted, producer_id=by.producer_id, producer_epoch=by.producer_epoch, guard=by.guard
                )
            except ApiException as error:
                raise ApiException(client_code(error.code), error.message) from error
            self._groups.ensure(group_id)
            kept = self._committed[group_id] if producer is None else self._pending[group_id][producer.producer_id]
            for index, (partition, offset) in enumerate(accepted.items()):
                kept[partition] = replace(offset, record_offset=first + index)
        return {one: ErrorCode.NONE if one in accepted else ErrorCode.OFFSET_METADATA_TOO_LARGE for one in offsets}

    def end_transaction(self, producer_id: int, partitions: Collection[int], *, committed: bool) -> None:
        """Ends a transaction in the groups of those partitions of `__consumer_offsets` that received the marker."""
        for group_id in [group_id for group_id, open_ones in self._pending.items() if producer_id in open_ones]:
            if self._log.partition_of(group_id) in partitions:
                offsets = self._pending[group_id].pop(producer_id)
                if not self._pending[group_id]:
                    del self._pending[group_id]
                for partition, offset in offsets.items() if committed else ():
                    known = self._of(group_id).get(partition)
                    # The later record wins even if an ordinary commit came during a transaction, as after compaction.
                    if known is None or offset.record_offset > known.record_offset:
                        self._committed[group_id][partition] = offset

    # Reading

    def _of(self, group_id: str) -> Offsets:
        return self._committed.get(group_id, {})

    def _has_pending(self, group_id: str, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self._pending.get(group_id, {}).values())

    def _every(self, group_id: str) -> list[TopicPartition]:
        """Returns each partition that has a committed or pending offset of the group, once."""
        pending = (partition for offsets in self._pending.get(group_id, {}).values() for partition in offsets)
        return list(dict.fromkeys([*self._of(group_id), *pending]))

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """Returns offsets of a group. `partitions` None: all that it has. An unknown group has none."""
        offsets = self._of(group_id)
        fetched = {partition: FetchedOffset(offsets.get(partition, NO_OFFSET)) for partition in partitions or ()}
        if partitions is None:
            fetched = {partition: FetchedOffset(offset) for partition, offset in offsets.items()}
        for partition in fetched if require_stable else ():
            if self._has_pending(group_id, partition):
                fetched[partition] = FetchedOffset(NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return fetched

    # Deleting

    def delete(self, group_id: str, partitions: Collection[TopicPartition]) -> Codes:
        group = self._groups.known(group_id)
        if group.state in _WITH_MEMBERS and not group.uses_consumer_protocol:
            # Consumers may delete the offsets of topics to which they do not subscribe.
            raise ApiException(ErrorCode.NON_EMPTY_GROUP)
        codes = {
            one: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(one.topic) else ErrorCode.NONE
            for one in partitions
        }
        known = set(self._every(group_id))
        self._forget(group_id, [one for one, code in codes.items() if code is ErrorCode.NONE and one in known])
        return codes

    def delete_group(self, group_id: str) -> None:
        if self._groups.known(group_id).state in _WITH_MEMBERS:
            raise ApiException(ErrorCode.NON_EMPTY_GROUP)
        self._forget(group_id, self._every(group_id), whole_group=True)

    def delete_topics(self, names: Collection[str]) -> None:
        """Deletes the offsets of deleted topics (`onPartitionsDeleted`)."""
        for group_id in {*self._committed, *self._pending}:
            self._forget(group_id, [one for one in self._every(group_id) if one.topic in names])

    def expire(self) -> None:
        """Deletes expired offsets, and groups without offsets and members (`cleanupGroupMetadata`)."""
        for group in self._groups.every():
            over = list(self._expired(group, self._wall_ms()))
            is_last = len(over) == len(self._of(group.group_id))
            # A transaction may be open even if its offsets were deleted in the meantime.
            whole = is_last and group.is_empty and group.group_id not in self._pending
            self._forget(group.group_id, over, whole_group=whole)

    def _expired(self, group: ClassicGroup, now_ms: int) -> Iterator[TopicPartition]:
        """Yields the partitions with expired offsets (`cleanupExpiredOffsets`, KIP-211).

        The retention time does not pass while a group has members. For a simple consumer it begins with the commit.
        """
        has_left = group.protocol_type is not None and group.is_empty
        consumes = group.state is GroupState.STABLE and group.uses_consumer_protocol and group.subscribed is not None
        if not (group.protocol_type is None or group.is_empty or consumes):
            return
        retention_ms = self._config.offsets_retention_ms
        for partition, offset in self._of(group.group_id).items():
            since_ms = group.state_since_ms if has_left and group.state_since_ms is not None else offset.commit_timestamp_ms
            end_ms = since_ms + retention_ms if offset.expire_timestamp_ms == NO_EXPIRY else offset.expire_timestamp_ms
            is_needed = group.is_subscribed_to(partition.topic) or self._has_pending(group.group_id, partition)
            if now_ms >= end_ms and not is_needed:
                yield partition

    def _forget(self, group_id: str, partitions: list[TopicPartition], *, whole_group: bool = False) -> None:
        try:
            self._log.forget(group_id, partitions, whole_group=whole_group)
        except ApiException as error:
            raise ApiException(client_code(error.code), error.message) from error
        for partition in partitions:
            self._apply_tombstone(group_id, partition)
        if whole_group:
            self._groups.remove(group_id)

    def _apply_tombstone(self, group_id: str, partition: TopicPartition) -> None:
        """Deletes an offset, and pending ones too."""
        committed = self._committed.get(group_id, {})
        committed.pop(partition, None)
        if not committed:
            self._committed.pop(group_id, None)
        for offsets in self._pending.get(group_id, {}).values():
            offsets.pop(partition, None)

    # Loading

    def replay(self, stored: StoredOffset) -> None:
        group_id, partition = stored.group_id, stored.partition
        if stored.offset is None:
            self._apply_tombstone(group_id, partition)
            return
        self._groups.ensure(group_id)
        kept = self._committed[group_id] if stored.producer_id == NO_PRODUCER else self._pending[group_id][stored.producer_id]
        kept[partition] = stored.offset
