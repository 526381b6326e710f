"""Who waits is finished once: by what it waits for, by its time, or by the end of the broker."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spark_kafka_sink.broker.purgatory import DelayedOperation, DelayedOperationPurgatory
from tests.broker.virtual_timer import VirtualTimer


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


def test_what_is_there_already_is_not_waited_for() -> None:
    timer = VirtualTimer()
    purgatory, waiter = DelayedOperationPurgatory(timer), Waiter(ready=True)

    purgatory.try_complete_else_watch(waiter.operation, ["a"], 100)

    assert (waiter.finished, purgatory.watched(), timer.pending()) == (1, 0, 0)


def test_news_of_its_key_finish_it_and_news_of_another_do_not() -> None:
    timer = VirtualTimer()
    purgatory, waiter = DelayedOperationPurgatory(timer), Waiter()
    purgatory.try_complete_else_watch(waiter.operation, ["a", "b"], 100)
    waiter.ready = True

    purgatory.check_and_complete("c")
    before = waiter.finished
    purgatory.check_and_complete("b")

    assert (before, waiter.finished, purgatory.watched(), timer.pending()) == (0, 1, 0, 0)


def test_it_is_finished_when_its_time_is_over() -> None:
    timer = VirtualTimer()
    purgatory, waiter = DelayedOperationPurgatory(timer), Waiter()
    purgatory.try_complete_else_watch(waiter.operation, ["a"], 100)

    timer.advance(99)
    before = waiter.finished
    timer.advance(1)
    waiter.ready = True
    purgatory.check_and_complete("a")

    assert (before, waiter.finished, purgatory.watched()) == (0, 1, 0)


def test_the_end_of_the_broker_finishes_everything() -> None:
    purgatory, waiters = DelayedOperationPurgatory(VirtualTimer()), [Waiter(), Waiter()]
    for waiter in waiters:
        purgatory.try_complete_else_watch(waiter.operation, ["a", "b"], 100)

    purgatory.complete_all()

    assert [waiter.finished for waiter in waiters] == [1, 1]
    assert purgatory.watched() == 0


def test_news_that_come_while_somebody_looks_are_not_missed() -> None:
    """One thread looks, sees nothing and is held there; the news comes from another thread, which must not wait."""
    looking, go_on = threading.Event(), threading.Event()
    answers = iter([False, True])
    finished = threading.Event()

    def look() -> bool:
        answer = next(answers)
        if not answer:
            looking.set()
            assert go_on.wait(10)
        return answer

    operation = DelayedOperation(look, finished.set)
    first = threading.Thread(target=operation.try_complete)
    first.start()
    assert looking.wait(10)

    assert not operation.try_complete()  # returns at once
    go_on.set()
    first.join(10)

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
