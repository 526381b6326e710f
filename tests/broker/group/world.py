"""A group coordinator over a log in memory, in virtual time, and members of whom the test decides what they do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.metadata_image import partition_for
from spark_kafka_sink.broker.coordinator_log import KeyValue, Replayed, ReplayedMarker, ReplayedRecord
from spark_kafka_sink.broker.group.group_coordinator import GroupCoordinator
from spark_kafka_sink.broker.group.membership import Joiner
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import (
    DescribedGroup,
    HeartbeatRequest,
    JoinGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.broker.virtual_timer import VirtualTimer

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE: Mapping[str, bytes] = {"range": b"range of a member"}


class MemoryLog:
    """`refusals`: codes that the next appends are refused with."""

    topic = "__consumer_offsets"

    def __init__(self, partitions: int = 4) -> None:
        self.items: list[Replayed] = []
        self.refusals: list[ErrorCode] = []
        self._partitions = partitions

    def partition_for(self, key: str) -> int:
        return partition_for(key, self._partitions)

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        guard: VerificationGuard | None = None,
    ) -> int:
        if self.refusals:
            raise ApiException(self.refusals.pop(0))
        first = len(self.items)
        for offset, (key, value) in enumerate(records, first):
            self.items.append(ReplayedRecord(partition, offset, 0, key, value, producer_id, producer_epoch))
        return first

    def mark(self, partition: int, producer_id: int, *, committed: bool) -> None:
        self.items.append(ReplayedMarker(partition, producer_id, committed))

    def replay(self) -> Iterator[Replayed]:
        yield from list(self.items)


@dataclass
class Joined:
    """What became of a JoinGroup."""

    answers: list[JoinGroupResponse] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> JoinGroupResponse:
        (answer,) = self.answers
        return answer

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.answer.error_code)


@dataclass
class Synced:
    """What became of a SyncGroup."""

    answers: list[SyncGroupResponse] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> SyncGroupResponse:
        (answer,) = self.answers
        return answer

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.answer.error_code)


class World:
    def __init__(
        self, config: BrokerConfig | None = None, log: MemoryLog | None = None, timer: VirtualTimer | None = None
    ) -> None:
        self.config = BrokerConfig() if config is None else config
        self.log = MemoryLog() if log is None else log
        self.timer = VirtualTimer() if timer is None else timer
        self.coordinator = GroupCoordinator(self.log, self.timer, self.config, self.timer.wall_ms)
        self.coordinator.load()
        self._ids = itertools.count(1)

    def restarted(self) -> World:
        """Another coordinator, that knows what this one's log knows."""
        after = World(self.config, self.log, self.timer)
        after._ids = self._ids
        return after

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Mapping[str, bytes] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        group: str = GROUP,
    ) -> Joined:
        joined = Joined()
        joiner = Joiner(
            member_id=member_id,
            new_member_id=f"member-{next(self._ids)}",
            group_instance_id=instance,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=rebalance_ms,
            session_timeout_ms=session_ms,
            protocol_type=protocol_type,
            protocols=dict(protocols),
            requires_known_member_id=version >= 4,
            may_skip_assignment=version >= 9,
            reason="test",
            reply=joined.answers.append,
        )
        self.coordinator.join(group, joiner)
        return joined

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol: str | None = None,
        group: str = GROUP,
    ) -> Synced:
        synced = Synced()
        given = tuple(SyncGroupRequestAssignment(name, assignment) for name, assignment in (assignments or {}).items())
        request = SyncGroupRequest(group, generation, member_id, instance, protocol_name=protocol, assignments=given)
        self.coordinator.sync(request, synced.answers.append)
        return synced

    def heartbeat(self, member_id: str, generation: int, *, instance: str | None = None, group: str = GROUP) -> ErrorCode:
        try:
            return self.coordinator.heartbeat(HeartbeatRequest(group, generation, member_id, instance))
        except ApiException as error:
            return error.code

    def leave(self, *members: str, instance: str | None = None, group: str = GROUP) -> list[ErrorCode]:
        leaving = [MemberIdentity(member, instance) for member in members]
        return [ErrorCode(left.error_code) for left in self.coordinator.leave(group, leaving)]

    def described(self, group: str = GROUP) -> DescribedGroup:
        described = self.coordinator.describe_group(group)
        assert described is not None
        return described

    def state(self, group: str = GROUP) -> str:
        return self.described(group).group_state

    # In a few steps what a client's life begins with

    def joining(self, *, group: str = GROUP, protocols: Mapping[str, bytes] = RANGE) -> tuple[str, Joined]:
        """A dynamic member that has its id and asks with it."""
        member_id = self.join(group=group, protocols=protocols).answer.member_id
        return member_id, self.join(member_id, group=group, protocols=protocols)

    def stable(self, count: int = 1, *, group: str = GROUP, protocols: Mapping[str, bytes] = RANGE) -> list[str]:
        """Members of a new group's first generation, the leader first; each is assigned its own name."""
        members = [self.joining(group=group, protocols=protocols) for _ in range(count)]
        self.timer.advance(self.config.group_initial_rebalance_delay_ms)
        leader = next(name for name, joined in members if joined.answer.leader == name)
        names = sorted((name for name, _ in members), key=lambda name: name != leader)
        for name in names:
            self.sync(name, 1, {each: each.encode() for each in names} if name == leader else None, group=group)
        return names
