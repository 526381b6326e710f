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
from spark_kafka_sink.protocol.apis.groups import (
    DescribedGroup,
    HeartbeatRequest,
    JoinGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
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
        protocols: Mapping[str, bytes] = RANGE,
        version: int = 9,
    ) -> Joined:
        joined = Joined()
        joiner = Joiner(
            member_id=member_id,
            new_member_id=f"member-{next(self._ids)}",
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=REBALANCE_MS,
            session_timeout_ms=SESSION_MS,
            protocol_type="consumer",
            protocols=dict(protocols),
            requires_known_member_id=version >= 4,
            may_skip_assignment=version >= 9,
            reason="test",
            reply=joined.answers.append,
        )
        self.coordinator.join(GROUP, joiner)
        return joined

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
    ) -> Synced:
        synced = Synced()
        given = tuple(SyncGroupRequestAssignment(name, assignment) for name, assignment in (assignments or {}).items())
        request = SyncGroupRequest(GROUP, generation, member_id, assignments=given)
        self.coordinator.sync(request, synced.answers.append)
        return synced

    def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        try:
            return self.coordinator.heartbeat(HeartbeatRequest(GROUP, generation, member_id))
        except ApiException as error:
            return error.code

    def leave(self, member: str) -> None:
        self.coordinator.leave(GROUP, [MemberIdentity(member)])

    def described(self) -> DescribedGroup:
        described = self.coordinator.describe_group(GROUP)
        assert described is not None
        return described

    def state(self) -> str:
        return self.described().group_state

    # In a few steps what a client's life begins with

    def joining(self, protocols: Mapping[str, bytes] = RANGE) -> tuple[str, Joined]:
        """A dynamic member that has its id and asks with it."""
        member_id = self.join(protocols=protocols).answer.member_id
        return member_id, self.join(member_id, protocols=protocols)

    def stable(self, count: int = 1, *, protocols: Mapping[str, bytes] = RANGE) -> list[str]:
        """Members of a new group's first generation, the leader first; each is assigned its own name."""
        members = [self.joining(protocols) for _ in range(count)]
        self.timer.advance(self.config.group_initial_rebalance_delay_ms)
        leader = next(name for name, joined in members if joined.answer.leader == name)
        names = sorted((name for name, _ in members), key=lambda name: name != leader)
        for name in names:
            self.sync(name, 1, {each: each.encode() for each in names} if name == leader else None)
        return names
