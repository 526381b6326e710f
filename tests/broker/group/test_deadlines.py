"""Timers of groups: what is set last holds, and heartbeats do not pile up in the timer."""

from __future__ import annotations

from spark_kafka_sink.broker.group.effects import (
    JOIN_TIMER,
    InitialDelay,
    JoinTimeout,
    SessionTimeout,
    Timeout,
    TimerKey,
    TimerRequest,
)
from spark_kafka_sink.broker.group.group_runner import Deadlines
from tests.broker.virtual_timer import VirtualTimer

SESSION = SessionTimeout("member")


class Due:
    """Deadlines, and what became due when."""

    def __init__(self) -> None:
        self.timer = VirtualTimer(0)
        self.deadlines = Deadlines(self.timer, self._due)
        self.seen: list[tuple[float, Timeout]] = []

    def _due(self, group_id: str, key: TimerKey) -> None:
        timeout = self.deadlines.taken(group_id, key)
        if timeout is not None:
            self.seen.append((self.timer.now_ms(), timeout))

    def set(self, delay_ms: int, key: TimerKey = SESSION, timeout: Timeout = SESSION) -> None:
        self.deadlines.set("g", key, TimerRequest(delay_ms, timeout))


def test_a_deadline_that_is_moved_comes_once_and_then() -> None:
    due = Due()
    due.set(10)
    due.timer.advance(9)
    due.set(10)
    due.timer.advance(100)

    assert due.seen == [(19, SESSION)]


def test_a_deadline_may_come_earlier_than_it_was_set_before() -> None:
    due = Due()
    due.set(100, JOIN_TIMER, JoinTimeout())
    due.set(10, JOIN_TIMER, InitialDelay(0, 0))
    due.timer.advance(100)

    assert due.seen == [(10, InitialDelay(0, 0))]


def test_what_was_cancelled_does_not_come() -> None:
    due = Due()
    due.set(10)
    due.deadlines.set("g", SESSION, None)
    due.set(10, JOIN_TIMER, JoinTimeout())
    due.deadlines.cancel_all("g")
    due.deadlines.set("g", SESSION, None)
    due.timer.advance(100)

    assert due.seen == []
    assert due.timer.pending() == 0


def test_what_is_set_again_after_it_was_cancelled_comes() -> None:
    due = Due()
    due.set(10)
    due.deadlines.set("g", SESSION, None)
    due.timer.advance(5)
    due.set(10)
    due.timer.advance(100)

    assert due.seen == [(15, SESSION)]


def test_a_thousand_heartbeats_are_one_task_of_the_timer() -> None:
    due = Due()
    for _ in range(1000):
        due.set(45_000)
        due.timer.advance(10)

    assert due.timer.pending() == 1
    due.timer.advance(44_989)
    assert due.seen == []
    due.timer.advance(1)
    assert due.seen == [(54_990, SESSION)]


def test_a_task_that_runs_while_its_deadline_is_moved_runs_again_later() -> None:
    """The timer's thread waited for the lock under which it was moved."""
    due = Due()
    timer, deadlines = due.timer, due.deadlines
    late: list[tuple[str, TimerKey]] = []
    waiting = Deadlines(timer, lambda group_id, key: late.append((group_id, key)))
    waiting.set("g", SESSION, TimerRequest(10, SESSION))
    timer.advance(10)
    waiting.set("g", SESSION, TimerRequest(10, SESSION))
    assert waiting.taken(*late.pop()) is None
    timer.advance(10)

    assert waiting.taken(*late.pop()) == SESSION
    assert deadlines.taken("g", SESSION) is None
