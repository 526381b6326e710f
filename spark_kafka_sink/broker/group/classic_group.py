"""A group, its members and their protocol (Kafka's ClassicGroup, ClassicGroupMember), and the effects of its events. Pure."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias, TypeVar

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.protocol.apis.groups import JoinGroupResponse, SyncGroupResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.internal_topics import GroupMetadataValue


class GroupState(Enum):
    """The states of a group. The value is the name that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""The allowed previous states by new state."""


CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers. The metadata of other types (Connect's workers) is opaque."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Returns the topics of all subscriptions; None if one of them is not a ConsumerProtocolSubscription."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(_topics(subscription))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def _topics(subscription: bytes) -> Iterable[str]:
    """Returns the topics of a subscription (`ClassicGroup.computeSubscribedTopics`).

    Every version starts like v0: the version, then an array of strings.
    """
    _INT16.unpack_from(subscription, 0)
    (count,) = _INT32.unpack_from(subscription, 2)
    offset = 6
    for _ in range(count):
        (size,) = _INT16.unpack_from(subscription, offset)
        offset += 2
        if size < 0 or offset + size > len(subscription):
            raise ValueError(f"a topic of {size} bytes")
        yield subscription[offset : offset + size].decode()
        offset += size


JoinReply: TypeAlias = Callable[[JoinGroupResponse], None]
SyncReply: TypeAlias = Callable[[SyncGroupResponse], None]

Protocols: TypeAlias = Mapping[str, bytes]
"""Assignors in the member's order of preference, each with the member's subscription in that assignor's format."""

NO_ASSIGNMENT: Final = b""


@dataclass(slots=True)
class GroupMember:
    """A member of a group. Timeouts are in ms.

    `join_reply`, `sync_reply`: the callback for the response that this member waits for. `is_new`: it does not know its
    generation yet, so it cannot send heartbeats.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None

    @property
    def awaits_join(self) -> bool:
        return self.join_reply is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Returns whether the member is alive. One that waits for a response cannot send heartbeats, but a new member still
        expires.
        """
        return not self.is_new and (self.awaits_join or self.sync_reply is not None)


class ClassicGroup:
    """A group, changed by the events in membership.py and rebalance.py, which follow its table of states.

    pending_join: ids given out (KIP-394) to members that have not come back with them. pending_sync: members of this generation
    that have not requested their assignment. state_since_ms: in ms since 1970; None if the log does not contain it.
    """

    def __init__(self, group_id: str, wall_ms: Callable[[], int], config: BrokerConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.wall_ms = wall_ms
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_since_ms: int | None = wall_ms()
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, GroupMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join: set[str] = set()
        self.pending_sync: set[str] = set()
        self.subscribed: frozenset[str] | None = None
        self.new_member_added = False

    def transition_to(self, state: GroupState) -> None:
        if self.state not in VALID_PREVIOUS[state]:
            raise RuntimeError(f"Group {self.group_id} cannot change from {self.state.value} to {state.value}")
        self.previous_state, self.state = self.state, state
        self.state_since_ms = self.wall_ms()

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS[GroupState.PREPARING_REBALANCE]

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    # Members

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    def add(self, member: GroupMember) -> None:
        """Adds a member. Its protocols must be checked, and a static member's instance must not be in the group."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Removes a member, which may also be pending or unknown."""
        removed = self.members.pop(member_id, None)
        if removed is not None and removed.group_instance_id is not None:
            self.static_members.pop(removed.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader = next(iter(self.members), None)
        self.pending_join.discard(member_id)

    def swap(self, old: GroupMember, new: GroupMember) -> None:
        """Replaces a static member's id, in the same place (`ClassicGroup.replaceStaticMember`)."""
        assert new.group_instance_id is not None
        every = (new if member is old else member for member in self.members.values())
        self.members = {member.member_id: member for member in every}
        self.static_members[new.group_instance_id] = new.member_id
        self.pending_sync.discard(old.member_id)
        if self.is_leader(old.member_id):
            self.leader = new.member_id

    def member_of(self, member_id: str, group_instance_id: str | None) -> GroupMember:
        """Returns the member. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID (`ClassicGroup.validateMember`)."""
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is not None and existing != member_id:
                raise ApiException(ErrorCode.FENCED_INSTANCE_ID)
            if existing is None:
                raise ApiException(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise ApiException(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def has_all_members_joined(self) -> bool:
        return not self.pending_join and all(member.awaits_join for member in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Keeps the leader if it has joined, or else picks another member that has. Returns False if no member has."""
        leader = None if self.leader is None else self.members[self.leader]
        if leader is not None and not leader.awaits_join:
            leader = next((member for member in self.members.values() if member.awaits_join), None)
            self.leader = self.leader if leader is None else leader.member_id
        return leader is not None

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Returns whether a client with these protocols can join: all members must support one of them."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(map(self._is_common, protocols))

    def select_protocol(self) -> str:
        """Returns the protocol that most members prefer among those that all support; the first of several."""
        anyone = next(iter(self.members.values()))
        candidates = set(filter(self._is_common, anyone.protocols))
        votes = Counter(next(name for name in member.protocols if name in candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _is_common(self, protocol: str) -> bool:
        return all(protocol in member.protocols for member in self.members.values())

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns whether a member subscribes to the topic. An unreadable subscription counts as one to every topic."""
        return self.uses_consumer_protocol if self.subscribed is None else topic in self.subscribed

    def know_subscriptions(self) -> None:
        """Implements `ClassicGroup.computeSubscribedTopics`."""
        if not self.uses_consumer_protocol:
            self.subscribed = None
        elif not self.members:
            self.subscribed = frozenset()
        else:
            protocol = self.protocol_name or ""
            self.subscribed = subscribed_topics(member.protocols.get(protocol, b"") for member in self.members.values())

    def next_generation(self) -> None:
        """Starts the next generation with the members that have joined (`ClassicGroup.initNextGeneration`)."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.know_subscriptions()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY)
        self.pending_sync.clear()


BodyT = TypeVar("BodyT", bound=Message)

Answer: TypeAlias = Callable[[], None]
"""Sends a response. Call it without any lock, because it encodes the response at once."""


@dataclass(frozen=True, slots=True)
class SessionTimeout:
    member_id: str


@dataclass(frozen=True, slots=True)
class InitialDelay:
    """A group's initial delay: `delay_ms` have passed, and other members may take another `remaining_ms`."""

    delay_ms: int
    remaining_ms: int


TimerKey: TypeAlias = str | SessionTimeout
"""The timers of a group, one of each kind. Setting one again replaces it (the keys of Kafka's CoordinatorTimer)."""

JOIN_TIMER: TimerKey = "join"
SYNC_TIMER: TimerKey = "sync"


class TimerRequest(NamedTuple):
    """A timer to set. `initial`: only for JOIN_TIMER, during a group's initial delay."""

    delay_ms: int
    initial: InitialDelay | None


@dataclass(frozen=True, slots=True)
class Store:
    """A request to append this state of the group. `done` is called with the result (NONE: stored) and may add effects."""

    value: GroupMetadataValue
    done: Callable[[ErrorCode], None]


@dataclass(slots=True)
class Effects:
    """The effects of one event. `timers`: None cancels. An event stores at most once at a time."""

    answers: list[Answer] = field(default_factory=list)
    timers: dict[TimerKey, TimerRequest | None] = field(default_factory=dict)
    store: Store | None = None

    def answer(self, reply: Callable[[BodyT], None], body: BodyT) -> None:
        self.answers.append(lambda: reply(body))

    def set_timer(self, key: TimerKey, delay_ms: int, initial: InitialDelay | None = None) -> None:
        self.timers[key] = TimerRequest(delay_ms, initial)

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers[key] = None

    def expect_heartbeat(self, member: GroupMember) -> None:
        """Restarts the member's session."""
        self.expect_within(member.member_id, member.session_timeout_ms)

    def expect_within(self, member_id: str, delay_ms: int) -> None:
        self.set_timer(SessionTimeout(member_id), delay_ms)

    def end_session(self, member_id: str) -> None:
        self.cancel_timer(SessionTimeout(member_id))
