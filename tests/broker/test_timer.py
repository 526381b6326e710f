"""What happens later: tasks with a due time, and requests that wait in the purgatory."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spark_kafka_sink.broker.timer import DelayedOperation, DelayedOperationPurgatory, SystemTimer
from tests.broker.virtual_timer import VirtualTimer

DEADLINE_S = 60.0


@pytest.fixture
def timer() -> Iterator[SystemTimer]:
    made = SystemTimer()
    made.start()
    yield made
    made.stop()


def wait(event: threading.Event) -> None:
    assert event.wait(DEADLINE_S)


def test_a_cancelled_task_does_not_run_and_holds_nothing(timer: SystemTimer) -> None:
    class Held:
        def run(self) -> None:
            raise AssertionError("it was cancelled")

    held, done = Held(), threading.Event()
    gone = weakref.ref(held)
    task = timer.after(20, held.run)
    task.cancel()
    del held
    gc.collect()
    timer.after(40, done.set)
    wait(done)

    assert gone() is None
    assert task.is_cancelled


def test_a_task_that_fails_is_logged_and_the_next_one_runs(timer: SystemTimer, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        raise RuntimeError("no luck")

    with caplog.at_level(logging.ERROR):
        timer.after(0, fail)
        timer.after(1, done.set)
        wait(done)

    assert [record.getMessage() for record in caplog.records] == ["A delayed task failed"]


def test_after_stop_nothing_runs() -> None:
    timer = SystemTimer("stopped-timer")
    ran: list[str] = []
    timer.start()
    timer.after(0.5, lambda: ran.append("dropped"))
    timer.stop()
    timer.after(0, lambda: ran.append("late"))

    assert "stopped-timer" not in {thread.name for thread in threading.enumerate()}
    assert "late" not in ran


def test_tasks_that_were_cancelled_do_not_gather() -> None:
    timer = SystemTimer()
    kept = [timer.after(60_000, lambda: None) for _ in range(100)]
    for _ in range(20_000):
        timer.after(60_000, lambda: None).cancel()
    assert len(kept) <= timer.waiting() < 2_000


# The purgatory


@dataclass
class Waiter:
    """Satisfied when told so; counts how often it was finished."""

    ready: bool = False
    finished: int = 0
    operation: DelayedOperation = field(init=False)

    def __post_init__(self) -> None:
        self.operation = DelayedOperation(lambda: self.ready, self._finish)

    def _finish(self) -> None:
        self.finished += 1


def test_news_that_come_while_somebody_looks_are_not_missed() -> None:
    """One thread looks, sees nothing and is held there; the news comes from another thread, which must not wait."""
    looking, go_on = threading.Event(), threading.Event()
    answers = iter([False, True])
    finished = threading.Event()

    def look() -> bool:
        answer = next(answers)
        if not answer:
            looking.set()
            assert go_on.wait(60)
        return answer

    operation = DelayedOperation(look, finished.set)
    first = threading.Thread(target=operation.try_complete)
    first.start()
    assert looking.wait(60)

    assert not operation.try_complete()  # returns at once
    go_on.set()
    first.join(60)

    assert finished.is_set()


class Purgatories(RuleBasedStateMachine):
    """Random news, times and keys: nobody is finished twice, nobody who is ready or late is left, nothing is kept of the done."""

    def __init__(self) -> None:
        super().__init__()
        self.timer = VirtualTimer()
        self.purgatory = DelayedOperationPurgatory(self.timer)
        self.waiters: list[tuple[Waiter, tuple[str, ...], float]] = []

    @rule(keys=st.sets(st.sampled_from("abc"), min_size=1), timeout=st.integers(1, 100), ready=st.booleans())
    def wait(self, keys: set[str], timeout: int, ready: bool) -> None:
        waiter = Waiter(ready)
        self.waiters.append((waiter, tuple(keys), self.timer.now_ms() + timeout))
        self.purgatory.try_complete_else_watch(waiter.operation, tuple(keys), timeout)

    @rule(key=st.sampled_from("abc"))
    def news(self, key: str) -> None:
        for waiter, keys, _ in self.waiters:
            waiter.ready |= key in keys
        self.purgatory.check_and_complete(key)

    @rule(delay=st.integers(1, 60))
    def time_passes(self, delay: int) -> None:
        self.timer.advance(delay)

    @invariant()
    def each_is_finished_once_when_it_is_due(self) -> None:
        now = self.timer.now_ms()
        for waiter, _, due in self.waiters:
            assert waiter.finished == (1 if waiter.ready or due <= now else 0)

    @invariant()
    def only_who_waits_is_kept(self) -> None:
        waiting = [keys for waiter, keys, _ in self.waiters if not waiter.finished]
        assert self.purgatory.watched() == sum(map(len, waiting))
        assert self.timer.pending() == len(waiting)


TestPurgatories = Purgatories.TestCase
TestPurgatories.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
