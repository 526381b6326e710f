"""The effects of an event in a group, as values: responses to send, timers to set, a record to store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from spark_kafka_sink.broker.group.classic_group import GroupMember
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.internal_topics import GroupMetadataValue

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


@dataclass(frozen=True, slots=True)
class JoinTimeout:
    pass


@dataclass(frozen=True, slots=True)
class SyncTimeout:
    pass


Timeout: TypeAlias = SessionTimeout | InitialDelay | JoinTimeout | SyncTimeout

TimerKey: TypeAlias = str | SessionTimeout
"""The timers of a group, one of each kind. Setting one again replaces it (the keys of Kafka's CoordinatorTimer)."""

JOIN_TIMER: TimerKey = "join"
SYNC_TIMER: TimerKey = "sync"


@dataclass(frozen=True, slots=True)
class TimerRequest:
    delay_ms: int
    timeout: Timeout


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

    def set_timer(self, key: TimerKey, delay_ms: int, timeout: Timeout) -> None:
        self.timers[key] = TimerRequest(delay_ms, timeout)

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers[key] = None

    def expect_heartbeat(self, member: GroupMember) -> None:
        """Restarts the member's session."""
        self.expect_within(member.member_id, member.session_timeout_ms)

    def expect_within(self, member_id: str, delay_ms: int) -> None:
        session = SessionTimeout(member_id)
        self.set_timer(session, delay_ms, session)

    def end_session(self, member_id: str) -> None:
        self.cancel_timer(SessionTimeout(member_id))

    def take_store(self) -> Store | None:
        store, self.store = self.store, None
        return store
