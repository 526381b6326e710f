"""The effects of an event in a group, as values: answers to send, timers to set, a record to store."""

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
"""Sends it. To be called without any lock: an answer is encoded then and there."""


@dataclass(frozen=True, slots=True)
class SessionTimeout:
    member_id: str


@dataclass(frozen=True, slots=True)
class InitialDelay:
    """The first members of a group have had `delay_ms`; others may come for another `remaining_ms`."""

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
"""A group has one timer for each; setting it again replaces it (the keys of Kafka's CoordinatorTimer)."""

JOIN_TIMER: TimerKey = "join"
SYNC_TIMER: TimerKey = "sync"


@dataclass(frozen=True, slots=True)
class TimerRequest:
    delay_ms: int
    timeout: Timeout


@dataclass(frozen=True, slots=True)
class Store:
    """Append this state of the group; `done` is told how that went (NONE: it is stored) and may ask for more."""

    value: GroupMetadataValue
    done: Callable[[ErrorCode], None]


@dataclass(slots=True)
class Effects:
    """Gathered while an event is dealt with. `timers`: None cancels. No event stores twice at once."""

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
        """Its session begins anew."""
        self.expect_within(member.member_id, member.session_timeout_ms)

    def expect_within(self, member_id: str, delay_ms: int) -> None:
        session = SessionTimeout(member_id)
        self.set_timer(session, delay_ms, session)

    def end_session(self, member_id: str) -> None:
        self.cancel_timer(SessionTimeout(member_id))

    def take_store(self) -> Store | None:
        store, self.store = self.store, None
        return store
