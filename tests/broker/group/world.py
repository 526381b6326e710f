"""A group coordinator over a log in memory, in virtual time, and members of whom the test decides what they do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.group.group_coordinator import GroupCoordinator
from spark_kafka_sink.broker.group.membership import Joiner
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
from tests.broker.memory_coordinator_log import MemoryCoordinatorLog
from tests.broker.virtual_timer import VirtualTimer

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE: Mapping[str, bytes] = {"range": b"range of a member"}


BodyT = TypeVar("BodyT", JoinGroupResponse, SyncGroupResponse)


@dataclass
class Asked(Generic[BodyT]):
    """What became of a JoinGroup or a SyncGroup."""

    answers: list[BodyT] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> BodyT:
        (answer,) = self.answers
        return answer

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.answer.error_code)


Joined = Asked[JoinGroupResponse]
Synced = Asked[SyncGroupResponse]


class World:
    def __init__(
        self,
        config: BrokerConfig | None = None,
        log: MemoryCoordinatorLog | None = None,
        timer: VirtualTimer | None = None,
        ids: Iterator[int] | None = None,
    ) -> None:
        self.config = BrokerConfig() if config is None else config
        self.log = MemoryCoordinatorLog("__consumer_offsets") if log is None else log
        self.timer = VirtualTimer() if timer is None else timer
        self.coordinator = GroupCoordinator(self.log, self.timer, self.config, self.timer.wall_ms)
        self.coordinator.load()
        self._ids = itertools.count(1) if ids is None else ids

    def restarted(self) -> World:
        """Another coordinator, that knows what this one's log knows."""
        return World(self.config, self.log, self.timer, self._ids)

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
