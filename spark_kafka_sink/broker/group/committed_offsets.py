"""Committed offsets: requests, ends of transactions and expiry (Kafka's OffsetMetadataManager)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.group.classic_group import ClassicGroup
from spark_kafka_sink.broker.group.group_log import NO_PRODUCER, GroupLog, StoredOffset, client_code
from spark_kafka_sink.broker.group.group_runner import GroupRunner
from spark_kafka_sink.broker.group.offsets import (
    NO_EPOCH,
    OffsetAndMetadata,
    OffsetStore,
    check_commit,
    check_group_delete,
    check_offset_delete,
    expired,
    note_commit,
)
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

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
    """The committed offsets of all groups. Called only under the coordinator's lock."""

    def __init__(self, log: GroupLog, groups: GroupRunner, config: BrokerConfig, wall_ms: Callable[[], int]) -> None:
        self._log = log
        self._groups = groups
        self._config = config
        self._wall_ms = wall_ms
        self._offsets = OffsetStore()

    def commit(self, by: Committer, offsets: Offsets, version: int) -> Codes:
        """Commits offsets. `version`: of OffsetCommit. Raises ApiException if none of the offsets is accepted."""
        older = version < _GROUP_ID_NOT_FOUND_SINCE
        group = self._committing(by, ErrorCode.ILLEGAL_GENERATION if older else ErrorCode.GROUP_ID_NOT_FOUND)
        check_commit(group, by.member_id, by.group_instance_id, by.generation, transactional=False)
        self._groups.run(group, lambda group, effects: note_commit(group, by.member_id, effects))
        accepted = self._accepted(offsets)
        first = self._stored(by.group_id, accepted)
        for index, (partition, offset) in enumerate(accepted.items()):
            self._offsets.commit(by.group_id, partition, replace(offset, record_offset=first + index))
        return self._codes(offsets, accepted)

    def commit_transactional(self, by: Committer, producer: TransactionalProducer, offsets: Offsets) -> Codes:
        """Stores offsets that take effect when the transaction commits."""
        group = self._committing(by, ErrorCode.ILLEGAL_GENERATION)
        check_commit(group, by.member_id, by.group_instance_id, by.generation, transactional=True)
        accepted = self._accepted(offsets)
        first = self._stored(by.group_id, accepted, producer)
        for index, (partition, offset) in enumerate(accepted.items()):
            kept = replace(offset, record_offset=first + index)
            self._offsets.commit_pending(by.group_id, producer.producer_id, partition, kept)
        return self._codes(offsets, accepted)

    def _committing(self, by: Committer, code: ErrorCode) -> ClassicGroup:
        """Returns the group that a commit is for. An unknown group may have offsets unless the client claims to be its member."""
        if by.generation >= 0:
            return self._groups.known(by.group_id, code)
        return self._groups.find(by.group_id) or self._groups.new(by.group_id)

    def _accepted(self, offsets: Offsets) -> Offsets:
        maximum = self._config.offset_metadata_max_bytes
        return {partition: offset for partition, offset in offsets.items() if len(offset.metadata) <= maximum}

    def _codes(self, asked: Offsets, accepted: Offsets) -> Codes:
        return {one: ErrorCode.NONE if one in accepted else ErrorCode.OFFSET_METADATA_TOO_LARGE for one in asked}

    def _stored(self, group_id: str, offsets: Offsets, producer: TransactionalProducer | None = None) -> int:
        if not offsets:
            return -1
        by = producer or TransactionalProducer(NO_PRODUCER, -1)
        try:
            first = self._log.store_offsets(
                group_id, offsets, producer_id=by.producer_id, producer_epoch=by.producer_epoch, guard=by.guard
            )
        except ApiException as error:
            raise ApiException(client_code(error.code), error.message) from error
        self._groups.ensure(group_id)
        return first

    def end_transaction(self, producer_id: int, partitions: Collection[int], *, committed: bool) -> None:
        is_in = lambda group_id: self._log.partition_of(group_id) in partitions  # noqa: E731
        self._offsets.end_transaction(producer_id, committed=committed, is_in=is_in)

    # Reading

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """Returns offsets of a group. `partitions` None: all that it has. An unknown group has none."""
        offsets = self._offsets.of(group_id)
        fetched = {partition: FetchedOffset(offsets.get(partition, NO_OFFSET)) for partition in partitions or ()}
        if partitions is None:
            fetched = {partition: FetchedOffset(offset) for partition, offset in offsets.items()}
        for partition in fetched if require_stable else ():
            if self._offsets.has_pending(group_id, partition):
                fetched[partition] = FetchedOffset(NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return fetched

    # Deleting

    def delete(self, group_id: str, partitions: Collection[TopicPartition]) -> Codes:
        """Deletes offsets (OffsetDelete, KIP-496). Raises ApiException."""
        group = self._groups.known(group_id)
        check_offset_delete(group)
        codes = {
            one: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(one.topic) else ErrorCode.NONE
            for one in partitions
        }
        known = set(self._offsets.every(group_id))
        self._forget(group_id, [one for one, code in codes.items() if code is ErrorCode.NONE and one in known])
        return codes

    def delete_group(self, group_id: str) -> None:
        """Deletes a group and all its offsets. Raises ApiException."""
        check_group_delete(self._groups.known(group_id))
        self._forget(group_id, list(self._offsets.every(group_id)), whole_group=True)

    def delete_topics(self, names: Collection[str]) -> None:
        """Deletes the offsets of deleted topics (`onPartitionsDeleted`)."""
        for group_id in self._offsets.groups():
            self._forget(group_id, [one for one in self._offsets.every(group_id) if one.topic in names])

    def expire(self) -> None:
        """Deletes expired offsets, and groups without offsets and members (`cleanupGroupMetadata`)."""
        for group in self._groups.every():
            over = list(expired(group, self._offsets, self._wall_ms(), self._config.offsets_retention_ms))
            is_last = len(over) == len(self._offsets.of(group.group_id))
            whole = is_last and group.is_empty and not self._offsets.has_open_transaction(group.group_id)
            self._forget(group.group_id, over, whole_group=whole)

    def _forget(self, group_id: str, partitions: list[TopicPartition], *, whole_group: bool = False) -> None:
        try:
            self._log.forget(group_id, partitions, whole_group=whole_group)
        except ApiException as error:
            raise ApiException(client_code(error.code), error.message) from error
        for partition in partitions:
            self._offsets.forget(group_id, partition)
        if whole_group:
            self._groups.remove(group_id)

    # Loading

    def replay(self, stored: StoredOffset) -> None:
        group_id, partition = stored.group_id, stored.partition
        if stored.offset is None:
            self._offsets.forget(group_id, partition)
            return
        self._groups.ensure(group_id)
        if stored.producer_id == NO_PRODUCER:
            self._offsets.commit(group_id, partition, stored.offset)
        else:
            self._offsets.commit_pending(group_id, stored.producer_id, partition, stored.offset)
