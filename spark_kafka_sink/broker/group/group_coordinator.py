"""The entry point for groups, which handlers call from any thread (Kafka's GroupCoordinatorService and Shard)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.cluster.metadata_image import GROUP_METADATA_TOPIC, NO_LEADER, MetadataImage
from spark_kafka_sink.broker.coordinator_log import CoordinatorLog
from spark_kafka_sink.broker.group.classic_group import Answer, ClassicGroup, GroupState, SyncReply, TimerKey
from spark_kafka_sink.broker.group.committed_offsets import (
    Codes,
    CommittedOffsets,
    Committer,
    FetchedOffset,
    Offsets,
    TransactionalProducer,
)
from spark_kafka_sink.broker.group.group_log import GroupLog, StoredGroup, StoredOffset
from spark_kafka_sink.broker.group.group_runner import GroupRunner
from spark_kafka_sink.broker.group.membership import Joiner, leave
from spark_kafka_sink.broker.group.rebalance import heartbeat, sync
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.broker.timer import Timer, TimerTask
from spark_kafka_sink.protocol.apis import groups as api
from spark_kafka_sink.protocol.error_codes import ErrorCode

GROUP_TYPE = "classic"


logger = logging.getLogger(__name__)

RETENTION_CHECK_INTERVAL_MS: Final = 10 * 60 * 1000
"""Kafka's `offsets.retention.check.interval.ms`."""


def described(group: ClassicGroup) -> api.DescribedGroup:
    """Returns a group's description. Protocol and subscriptions are included only while it is stable."""
    is_stable = group.state is GroupState.STABLE
    protocol = (group.protocol_name or "") if is_stable else ""
    return api.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=tuple(
            api.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.protocols.get(protocol, b""),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def unknown(group_id: str, *, has_code: bool) -> api.DescribedGroup:
    """Returns the description of a missing group, which is dead. `has_code` (v6, KIP-1043) adds Kafka's error and message."""
    return api.DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if has_code else ErrorCode.NONE,
        error_message=f"Group {group_id} not found." if has_code else None,
        group_id=group_id,
        group_state=GroupState.DEAD.value,
    )


class GroupCoordinator:
    """The group coordinator of all brokers. Each broker serves the groups whose `__consumer_offsets` partition it leads.

    There is one lock for all groups, like Kafka's one thread for all groups of a partition. A group's state and its log must
    change in one order, and a transaction's end affects many groups. In one interpreter, more locks would only help while one
    thread waits for a disk.

    The lock is held while a record is appended but never while a response is sent: responses are collected and sent afterwards.
    Timer events run on the timer's thread. Callers must not hold a lock that an append takes.
    """

    def __init__(self, log: CoordinatorLog, timer: Timer, config: BrokerConfig, wall_ms: Callable[[], int]) -> None:
        self._timer = timer
        self._log = GroupLog(log)
        self._lock = threading.Lock()
        self._groups = GroupRunner(self._log, timer, config, wall_ms, self._timed_out)
        self._offsets = CommittedOffsets(self._log, self._groups, config, wall_ms)
        self._retention_check: TimerTask | None = None
        self._is_active = True

    @contextmanager
    def _active(self) -> Iterator[None]:
        """Holds the lock. Raises COORDINATOR_NOT_AVAILABLE after the coordinator is closed."""
        with self._locked():
            if not self._is_active:
                raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        answers: list[Answer] = []
        try:
            with self._lock:
                try:
                    yield
                finally:
                    answers = self._groups.take_answers()
        finally:
            for answer in answers:
                try:
                    answer()
                except Exception:
                    # One failed response must not stop the others.
                    logger.exception("A response could not be sent")

    # Membership

    def join(self, group_id: str, joiner: Joiner) -> None:
        """Joins a member. `joiner.reply` gets the response, now or at the end of the rebalance. Raises ApiException."""
        with self._active():
            self._groups.join(group_id, joiner)

    def sync(self, request: api.SyncGroupRequest, reply: SyncReply) -> None:
        """Syncs a member. `reply` gets the response, now or after the leader has assigned. Raises ApiException."""
        with self._active():
            group = self._groups.known(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
            self._groups.run(group, lambda group, effects: sync(group, request, reply, effects))

    def heartbeat(self, request: api.HeartbeatRequest) -> ErrorCode:
        """Returns NONE or REBALANCE_IN_PROGRESS. Raises ApiException."""
        with self._active():
            group = self._groups.known(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return self._groups.run(group, lambda group, effects: heartbeat(group, request, effects))

    def leave(self, group_id: str, members: Sequence[api.MemberIdentity]) -> list[api.MemberResponse]:
        """Removes members and returns the responses in the order of `members`. An unknown group has no members."""
        with self._active():
            group = self._groups.find(group_id)
            if group is None:
                code = ErrorCode.UNKNOWN_MEMBER_ID
                return [api.MemberResponse(member.member_id, member.group_instance_id, code) for member in members]
            return self._groups.run(group, lambda group, effects: leave(group, members, effects))

    # Offsets

    def commit_offsets(self, by: Committer, offsets: Offsets, version: int) -> Codes:
        """Commits offsets and returns NONE or OFFSET_METADATA_TOO_LARGE by partition. Raises ApiException.

        `version`: of OffsetCommit.
        """
        with self._active():
            return self._offsets.commit(by, offsets, version)

    def commit_transactional_offsets(self, by: Committer, producer: TransactionalProducer, offsets: Offsets) -> Codes:
        """Stores offsets that take effect in `complete_transaction`. The caller has checked that the transaction is open.

        Raises ApiException: INVALID_PRODUCER_EPOCH for a fenced producer, or an error of `commit_offsets`.
        """
        with self._active():
            return self._offsets.commit_transactional(by, producer, offsets)

    def complete_transaction(self, producer_id: int, partitions: Collection[int], committed: bool) -> None:
        """Applies the producer's marker in partitions of `__consumer_offsets`, before its next transaction begins."""
        with self._active():
            self._offsets.end_transaction(producer_id, partitions, committed=committed)

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool = False
    ) -> dict[TopicPartition, FetchedOffset]:
        """Returns offsets of a group. `partitions` None: all that it has."""
        with self._active():
            return self._offsets.fetch(group_id, partitions, require_stable=require_stable)

    def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> Codes:
        """Deletes offsets and returns NONE or GROUP_SUBSCRIBED_TO_TOPIC by partition. Raises ApiException."""
        with self._active():
            return self._offsets.delete(group_id, partitions)

    def delete_topics(self, names: Collection[str]) -> None:
        """Deletes the offsets of deleted topics. Does nothing after the coordinator is closed."""
        with self._locked():
            if self._is_active:
                self._offsets.delete_topics(names)

    # Administration

    def describe_group(self, group_id: str) -> api.DescribedGroup | None:
        with self._active():
            group = self._groups.find(group_id)
            return None if group is None else described(group)

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[api.ListedGroup]:
        """Lists the groups of all brokers (`GroupMetadataManager.listGroups`).

        Filters ignore case. Empty filters match everything, unknown names match nothing.
        """

        def is_among(name: str, names: Collection[str]) -> bool:
            return not names or name.lower() in {one.strip().lower() for one in names}

        with self._active():
            return [
                api.ListedGroup(group.group_id, group.protocol_type or "", group.state.value, GROUP_TYPE)
                for group in self._groups.every()
                if is_among(group.state.value, states) and is_among(GROUP_TYPE, types)
            ]

    def delete_group(self, group_id: str) -> None:
        """Deletes a group and its offsets. Raises ApiException: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        with self._active():
            self._offsets.delete_group(group_id)

    # Life

    def follow(self, cluster: Cluster) -> None:
        """Follows the cluster's changes: coordinators move with leaders, and deleted topics lose their offsets.

        The cluster calls listeners under its lock, so the work is done later, on the timer's thread.
        """

        def changed(before: MetadataImage, after: MetadataImage) -> None:
            gone = before.topics.keys() - after.topics.keys()
            moved = frozenset(_moved(before, after))
            if gone:
                self._timer.after(0, lambda: self.delete_topics(gone))
            if moved:
                self._timer.after(0, lambda: self.move(moved))

        cluster.on_change(changed)

    def load(self) -> None:
        """Reads the topic once, before the first request. Members are unchanged, and their sessions start now."""
        with self._active():
            for stored in self._log.replay():
                if isinstance(stored, StoredGroup):
                    self._groups.replay(stored.group_id, stored.value)
                elif isinstance(stored, StoredOffset):
                    self._offsets.replay(stored)
                else:
                    self._offsets.end_transaction(stored.producer_id, {stored.partition}, committed=stored.committed)
            self._groups.loaded()
            self._check_retention_later()

    def move(self, partitions: Collection[int]) -> None:
        """Moves groups, because these partitions of `__consumer_offsets` have another leader.

        Groups are reloaded from the log. Clients that wait at the old coordinator get an error and find the new one. Does nothing
        after the coordinator is closed.
        """
        with self._locked():
            for group in self._groups.every() if self._is_active else ():
                if self._log.partition_of(group.group_id) in partitions:
                    self._groups.unload(group.group_id)
                    self._groups.reload(group.group_id)

    def close(self) -> None:
        """Sends NOT_COORDINATOR to waiting clients and cancels all timers."""
        with self._locked():
            if not self._is_active:
                return
            self._is_active = False
            for group in self._groups.every():
                self._groups.unload(group.group_id)
            if self._retention_check is not None:
                self._retention_check.cancel()

    def _timed_out(self, group_id: str, key: TimerKey) -> None:
        with self._locked():
            self._groups.time_out(group_id, key)

    def _check_retention_later(self) -> None:
        self._retention_check = self._timer.after(RETENTION_CHECK_INTERVAL_MS, self._check_retention)

    def _check_retention(self) -> None:
        with self._locked():
            if self._is_active:
                self._check_retention_later()
                self._offsets.expire()


def _moved(before: MetadataImage, after: MetadataImage) -> Iterator[int]:
    """Yields partitions that had a leader and now have another or none."""
    old, new = before.topics.get(GROUP_METADATA_TOPIC), after.topics.get(GROUP_METADATA_TOPIC)
    if old is not None and new is not None and old is not new:
        for one, other in zip(old.partitions, new.partitions, strict=False):
            if one.leader not in {NO_LEADER, other.leader}:
                yield one.index
