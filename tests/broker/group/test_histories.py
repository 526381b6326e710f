"""Members join, die, leave, come back and lose answers in any order: the group always ends well, and never lies on the way."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import JoinGroupResponse, SyncGroupResponse
from tests.broker.group.world import REBALANCE_MS, SESSION_MS, Joined, Synced, World

pytestmark = pytest.mark.slow

STEP_MS = 1000
BEGIN_ANEW = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


@dataclass
class Member:
    """A client as Kafka's own: it joins, syncs, sends heartbeats, and does as it is told.

    instance: a static one. protocols: it changes them sometimes. is_alive: a dead one does nothing and hears nothing.
    """

    world: World
    instance: str | None = None
    protocols: dict[str, bytes] = field(default_factory=lambda: {"range": b"0"})
    is_alive: bool = True
    member_id: str = ""
    generation: int = -1
    assignment: bytes | None = None
    joining: Joined | None = None
    syncing: Synced | None = None

    def step(self) -> None:
        """What it does in a second."""
        if self.joining is not None:
            self._look_for_join(self.joining)
        elif self.syncing is not None:
            self._look_for_sync(self.syncing)
        elif self.assignment is None:
            self.join()
        else:
            self._beat()

    def join(self) -> None:
        self.assignment = self.syncing = None
        self.joining = self.world.join(self.member_id, instance=self.instance, protocols=self.protocols)

    def forget_answers(self) -> None:
        """Its connection broke: whatever comes there goes nowhere."""
        self.joining = self.syncing = self.assignment = None

    def restart(self) -> None:
        """A static member's program comes up again."""
        self.forget_answers()
        self.member_id, self.generation, self.is_alive = "", -1, True

    def _look_for_join(self, joining: Joined) -> None:
        if joining.waits:
            return
        self.joining = None
        answer = joining.answer
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.syncing = self.world.sync(self.member_id, self.generation, self._assigned(answer), instance=self.instance)
        elif answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        else:
            self._told(answer.error_code)

    def _assigned(self, answer: JoinGroupResponse) -> dict[str, bytes] | None:
        if answer.leader != self.member_id or answer.skip_assignment:
            return None
        generation = answer.generation_id
        return {member.member_id: f"{member.member_id} in {generation}".encode() for member in answer.members}

    def _look_for_sync(self, syncing: Synced) -> None:
        if syncing.waits:
            return
        self.syncing = None
        answer: SyncGroupResponse = syncing.answer
        if answer.error_code == ErrorCode.NONE:
            self.assignment = answer.assignment
        else:
            self._told(answer.error_code)

    def _beat(self) -> None:
        self._told(self.world.heartbeat(self.member_id, self.generation, instance=self.instance))

    def _told(self, code: int) -> None:
        if code in BEGIN_ANEW:
            self.member_id = ""
        if code != ErrorCode.NONE:
            self.assignment = None


class History:
    """Members and what chance does to them. `step` is a second."""

    def __init__(self, seed: int, *, refusals: bool = True) -> None:
        self.refusals = refusals
        self.chance = random.Random(seed)
        delay = self.chance.choice([0, 3000])
        self.world = World(BrokerConfig(group_initial_rebalance_delay_ms=delay, group_max_size=self.chance.choice([3, 100])))
        self.members = [Member(self.world) for _ in range(3)] + [Member(self.world, f"instance-{index}") for index in range(2)]
        self.generations = [0]

    def step(self, *, quiet: bool = False) -> None:
        if not quiet and self.chance.random() < 0.25:
            self.chance.choice(self._mishaps())()
        members = [member for member in self.members if member.is_alive]
        self.chance.shuffle(members)
        for member in members:
            member.step()
        self.world.timer.advance(STEP_MS)
        self.check()

    def _mishaps(self) -> list[Callable[[], None]]:
        member = self.chance.choice(self.members)
        return [
            lambda: setattr(member, "is_alive", False),
            lambda: self._come_back(member),
            lambda: self._leave(member),
            member.forget_answers,
            lambda: self._change(member),
            self._refuse if self.refusals else member.restart,
            self._pass_a_session,
            self._move,
            self._restart,
        ]

    def _come_back(self, member: Member) -> None:
        if member.instance is not None:
            member.restart()
        elif not member.is_alive:
            self.members[self.members.index(member)] = Member(self.world)

    def _leave(self, member: Member) -> None:
        self.world.leave(member.member_id, instance=member.instance)
        member.restart()

    def _change(self, member: Member) -> None:
        member.protocols = {"range": self.chance.randbytes(1)}
        member.forget_answers()

    def _refuse(self) -> None:
        self.world.log.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS] * self.chance.choice([1, 2])

    def _pass_a_session(self) -> None:
        self.world.timer.advance(self.chance.choice([SESSION_MS // 2, SESSION_MS]))

    def _move(self) -> None:
        self.world.coordinator.move(range(4))

    def _restart(self) -> None:
        self.world.coordinator.close()
        self.world = self.world.restarted()
        for member in self.members:
            member.world = self.world

    # What always holds

    def check(self) -> None:
        described = self.world.coordinator.describe_group("readers")
        if described is None:
            return
        ids = [member.member_id for member in described.members]
        assert len(ids) == len(set(ids))
        instances = [member.group_instance_id for member in described.members if member.group_instance_id is not None]
        assert len(instances) == len(set(instances))
        assert (described.group_state == "Empty") == (not ids) or described.group_state == "PreparingRebalance"
        if described.group_state == "Stable":
            self._check_assignments({member.member_id: member.member_assignment for member in described.members})

    def _check_assignments(self, assignments: dict[str, bytes]) -> None:
        """Who believes that he is in the current generation has what the log says, of one generation for all."""
        for member in self.members:
            if member.is_alive and member.assignment is not None and member.member_id in assignments:
                told = self.world.heartbeat(member.member_id, member.generation, instance=member.instance)
                if told is ErrorCode.NONE:
                    assert member.assignment == assignments[member.member_id]
                    self.generations.append(member.generation)
        assert len({assignment.partition(b" in ")[2] for assignment in assignments.values()}) <= 1

    def end(self) -> list[Member]:
        """Nothing goes wrong any more."""
        self.world.log.refusals = []
        for _ in range(4 * REBALANCE_MS // STEP_MS):
            self.step(quiet=True)
        return [member for member in self.members if member.is_alive]


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 80))
def test_after_any_history_those_who_live_share_one_generation(seed: int, steps: int) -> None:
    history = History(seed)
    for _ in range(steps):
        history.step()
    living = history.end()
    most = history.world.config.group_max_size
    inside = [member for member in living if member.assignment is not None]

    # Nobody waits; all who fit are in, each with its own share of the one generation; nobody else is.
    assert len(inside) == min(len(living), most)
    assert [member for member in inside if member.joining or member.syncing] == []
    assert {member.generation for member in inside} <= {max((member.generation for member in inside), default=0)}
    described = history.world.coordinator.describe_group("readers")
    known = {} if described is None else {member.member_id: member.member_assignment for member in described.members}
    assert known == {member.member_id: member.assignment for member in inside}


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 80))
def test_after_any_history_another_coordinator_knows_the_same(seed: int, steps: int) -> None:
    # An empty generation that could not be stored is the one difference that Kafka allows.
    history = History(seed, refusals=False)
    for _ in range(steps):
        history.step()
    history.end()
    live, replayed = history.world.coordinator, history.world.restarted().coordinator

    assert replayed.list_groups() == live.list_groups()
    assert replayed.describe_group("readers") == live.describe_group("readers")


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 80))
def test_a_generation_is_never_used_twice(seed: int, steps: int) -> None:
    history = History(seed)
    shares: dict[tuple[str, int], bytes] = {}
    for _ in range(steps):
        history.step()
        for member in history.members:
            if member.is_alive and member.assignment is not None:
                share = shares.setdefault((member.member_id, member.generation), member.assignment)
                assert share == member.assignment
    assert history.generations == sorted(history.generations)
