"""What a producer's parts are told of its life: whether it can be used, why not, and when it may end for want of use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from spark_kafka_sink.errors import KafkaSinkError, UsageError
from spark_kafka_sink.producer.base.lifecycle import FOREVER_MS, Lifecycle, callbacks

HOUR_MS = 3_600_000


@dataclass
class Running:
    """A lifecycle whose sender's thread runs until it is let go."""

    idle_close_ms: int | None = None
    wakeups: list[int] = field(default_factory=list)
    in_thread: list[object] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.lifecycle = Lifecycle(lambda: self.wakeups.append(threading.get_ident()), idle_close_ms=self.idle_close_ms)
        self.lifecycle.start(self._run, "sender")

    def _run(self) -> None:
        self.lifecycle.wake_sender()
        self.in_thread.append(self.lifecycle.must_not_wait)
        assert self.ended.wait(10)

    def end(self) -> None:
        self.ended.set()
        assert self.lifecycle.join(10)


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.end()


def test_while_its_thread_runs_a_producer_can_be_used(running: Running) -> None:
    running.lifecycle.check_usable()
    running.lifecycle.check_may_wait()
    assert running.lifecycle.is_usable


def test_after_the_end_of_its_thread_it_is_closed(running: Running) -> None:
    running.end()
    assert not running.lifecycle.is_usable
    with pytest.raises(UsageError, match="the producer is closed"):
        running.lifecycle.check_alive()


def test_what_is_closed_goes_on_with_what_it_has_and_takes_nothing_new(running: Running) -> None:
    running.lifecycle.close()
    running.lifecycle.check_alive()
    with pytest.raises(UsageError, match="the producer is closed"):
        running.lifecycle.check_usable()
    with pytest.raises(UsageError, match="the producer is closed"):
        running.lifecycle.scope_opened()


def test_the_first_failure_is_the_cause_of_all_that_comes_after_it(running: Running) -> None:
    closed = UsageError("buffer pool: closed")
    with pytest.raises(UsageError, match="buffer pool"):
        running.lifecycle.raise_true_cause(closed)
    running.lifecycle.fail(KafkaSinkError("first"))
    running.lifecycle.fail(KafkaSinkError("second"))
    for raising in (running.lifecycle.check_alive, lambda: running.lifecycle.raise_true_cause(closed)):
        with pytest.raises(KafkaSinkError, match="first"):
            raising()


def test_the_senders_thread_neither_waits_nor_wakes_itself(running: Running) -> None:
    running.lifecycle.wake_sender()
    running.end()
    assert running.wakeups == [threading.get_ident()]
    assert running.in_thread == [True]


def test_in_a_callback_nothing_may_be_waited_for(running: Running) -> None:
    with callbacks, pytest.raises(UsageError, match="callback must not wait"):
        running.lifecycle.check_may_wait()
    running.lifecycle.check_may_wait()


def test_a_transaction_is_alone_with_its_producer(running: Running) -> None:
    running.lifecycle.scope_opened()
    with pytest.raises(UsageError, match="open transaction"):
        running.lifecycle.scope_opened(alone=True)
    running.lifecycle.scope_closed()
    running.lifecycle.scope_opened(alone=True)


@pytest.mark.parametrize("busy", ["scope", "records"])
def test_a_producer_in_use_does_not_close_for_want_of_use(busy: str) -> None:
    running = Running(idle_close_ms=0)
    if busy == "scope":
        running.lifecycle.scope_opened()
    assert running.lifecycle.ms_until_idle_close(2**40, lambda: busy == "records") == FOREVER_MS
    assert running.lifecycle.is_usable
    running.end()


def test_an_idle_producer_closes_when_its_time_is_over_and_takes_no_scope_any_more() -> None:
    running = Running(idle_close_ms=HOUR_MS)
    running.lifecycle.scope_opened()
    running.lifecycle.scope_closed()
    assert running.lifecycle.ms_until_idle_close(0, lambda: False) > 0
    running.lifecycle.close_when_idle()
    assert running.lifecycle.ms_until_idle_close(2**40, lambda: False) == 0
    with pytest.raises(UsageError, match="the producer is closed"):
        running.lifecycle.scope_opened()
    running.end()


def test_without_a_time_for_it_no_producer_closes_itself(running: Running) -> None:
    assert running.lifecycle.ms_until_idle_close(2**40, lambda: False) == FOREVER_MS
