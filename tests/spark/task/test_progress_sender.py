from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_sink.spark.driver.listener import FORGET_S, LiveTasks
from spark_kafka_sink.spark.feed import Counts
from spark_kafka_sink.spark.open_transactions import OpenTransaction
from spark_kafka_sink.spark.reports_to_driver import ListenerAddress
from spark_kafka_sink.spark.task import progress_sender
from spark_kafka_sink.spark.task.progress_sender import PROGRESS, ProgressReporter
from tests.spark.counting import driver_listener


def message(name: str, records: int, *, call: str = "c", is_running: bool = True) -> bytes:
    return json.dumps([name, call, is_running, None, records, 10 * records, 1]).encode()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_running_tasks_add_up_by_call() -> None:
    tasks = LiveTasks()
    assert tasks.running() == (0, Counts())
    for name, records, call in (("1", 5, "a"), ("2", 7, "a"), ("3", 100, "b"), ("1", 6, "a")):
        tasks.take(message(name, records, call=call))
    assert tasks.running("a") == (2, Counts(13, 130, 2))
    assert tasks.running() == (3, Counts(113, 1130, 3))


def test_a_task_that_has_ended_does_not_run() -> None:
    tasks = LiveTasks()
    tasks.take(message("1", 5))
    tasks.take(message("1", 9, is_running=False))
    tasks.take(message("2", 9, is_running=False))
    assert tasks.running() == (0, Counts())


def test_a_task_that_says_nothing_any_more_is_forgotten() -> None:
    clock = Clock()
    tasks = LiveTasks(clock)
    tasks.take(message("killed", 5))
    clock.now += FORGET_S / 2
    tasks.take(message("slow", 5))
    assert tasks.running()[0] == 2
    clock.now += FORGET_S / 2 + 1
    assert tasks.running()[0] == 1


def test_the_transaction_of_a_running_task_is_open_until_the_task_ends() -> None:
    tasks = LiveTasks()
    opened = OpenTransaction("q", 3, 1_700_000_000.0, 60.0)
    values = ["1", "c", True, opened, 5, 50, 0]
    tasks.take(json.dumps(values).encode())
    tasks.take(message("2", 5))
    assert tasks.transactions() == [opened]
    tasks.take(message("1", 5, is_running=False))
    assert tasks.transactions() == []


def test_tasks_that_were_killed_are_forgotten_although_nobody_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_kafka_sink.spark.driver.listener.PER_SECOND", 2)
    clock = Clock()
    tasks = LiveTasks(clock)
    tasks.take(message("slow", 1))
    for number in range(18):
        tasks.take(message(f"killed {number}", 1))
    clock.now += FORGET_S
    assert tasks.take(message("slow", 1)) == 1 + 19 // 2
    clock.now += FORGET_S
    assert tasks.take(message("new", 1)) == 1 + 2 // 2
    assert tasks.running()[0] == 2


def test_many_tasks_are_told_to_say_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_kafka_sink.spark.driver.listener.PER_SECOND", 2)
    tasks = LiveTasks()
    pauses = [tasks.take(message(str(number), 1)) for number in range(1000)]
    assert (pauses[0], pauses[19], pauses[-1]) == (1, 11, 255)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ListenerAddress, LiveTasks, threading.Event]]:
    """A listener's address, what it heard, and an event for each message. Tasks tell after 50 ms."""
    monkeypatch.setattr(progress_sender, "INTERVAL_S", 0.05)
    tasks, came = LiveTasks(), threading.Event()

    def take(content: bytes) -> int:
        tasks.take(content)
        came.set()
        return 0

    with driver_listener({PROGRESS: take}) as address:
        yield address, tasks, came


def test_a_running_task_tells_again_and_again_and_once_when_it_ends(
    heard: tuple[ListenerAddress, LiveTasks, threading.Event],
) -> None:
    address, tasks, came = heard
    records = iter(range(1, 1000))
    with ProgressReporter().watching(address, "1", "c", lambda: Counts(next(records))):
        for _ in range(3):
            assert came.wait(10)
            came.clear()
        count, counts = tasks.running("c")
        assert count == 1
        assert counts.records >= 3
    assert tasks.running() == (0, Counts())


def test_a_driver_that_cannot_be_reached_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_sender, "INTERVAL_S", 0.01)
    with driver_listener({}) as address:
        pass
    asked = threading.Semaphore(0)

    def counts() -> Counts:
        asked.release()
        return Counts()

    with ProgressReporter().watching(address, "1", "c", counts):
        assert asked.acquire(timeout=10)
        assert not asked.acquire(timeout=0.3)


def test_a_task_that_ends_while_the_driver_is_slow_does_not_run_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_sender, "INTERVAL_S", 0.05)
    monkeypatch.setattr(progress_sender, "TIMEOUT_S", 0.3)
    tasks, answered, paused_s = LiveTasks(), threading.Event(), 2 * progress_sender.TIMEOUT_S

    def take(content: bytes) -> int:
        tasks.take(content)
        if not answered.is_set():
            threading.Event().wait(paused_s)  # the driver program is paused
            answered.set()
        return 0

    with driver_listener({PROGRESS: take}) as address:
        with ProgressReporter().watching(address, "1", "c", lambda: Counts(1_000_000)):
            assert answered.wait(60)
            monkeypatch.setattr(progress_sender, "TIMEOUT_S", 60)  # only the first message shall be late
            assert tasks.running()[0] == 1
        assert tasks.running()[0] == 0


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Semaphore, threading.Event]]:
    """Is released for each look-up of the host name driver.test, which is answered when the event is set."""
    resolve, asked, answered = socket.getaddrinfo, threading.Semaphore(0), threading.Event()

    def slow(host: str, *rest: Any, **named: Any) -> Any:
        if host != "driver.test":
            return resolve(host, *rest, **named)
        asked.release()
        answered.wait()
        # Nothing listens on the first, as if the name had an address of IPv6 as well.
        return [each for host in ("127.0.0.2", "127.0.0.1") for each in resolve(host, *rest, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    yield asked, answered
    answered.set()


def test_a_task_does_not_wait_for_a_slow_resolver(
    heard: tuple[ListenerAddress, LiveTasks, threading.Event], lookups: tuple[threading.Semaphore, threading.Event]
) -> None:
    address, asked = replace(heard[0], host="driver.test"), lookups[0]
    reporter = ProgressReporter()
    with reporter.watching(address, "1", "c", Counts), reporter.watching(address, "2", "c", Counts):
        assert asked.acquire(timeout=10)


def test_the_drivers_host_is_looked_up_once(
    heard: tuple[ListenerAddress, LiveTasks, threading.Event], lookups: tuple[threading.Semaphore, threading.Event]
) -> None:
    address, tasks, came = heard
    asked, answered = lookups
    answered.set()
    with ProgressReporter().watching(replace(address, host="driver.test"), "1", "c", Counts):
        for _ in range(3):
            assert came.wait(10)
            came.clear()
    assert tasks.running()[0] == 0
    assert asked.acquire(blocking=False)
    assert not asked.acquire(blocking=False)


def test_without_a_listener_no_thread_starts() -> None:
    before = set(threading.enumerate())
    with ProgressReporter().watching(None, "1", "c", Counts):
        assert set(threading.enumerate()) <= before


def test_the_thread_ends_when_nothing_runs(
    heard: tuple[ListenerAddress, LiveTasks, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_sender, "IDLE_S", 0.05)
    before = set(threading.enumerate())
    reporter = ProgressReporter()
    for _ in range(2):
        with reporter.watching(heard[0], "1", "c", Counts):
            (started,) = set(threading.enumerate()) - before
        started.join(10)
        assert not started.is_alive()


def test_a_forked_child_starts_without_tasks_and_may_tell_of_its_own(
    heard: tuple[ListenerAddress, LiveTasks, threading.Event],
) -> None:
    address, _, came = heard
    reporter = ProgressReporter()
    with reporter.watching(address, "parent", "c", Counts):
        assert came.wait(10)
        pid = os.fork()
        if pid == 0:
            try:
                done = threading.Event()

                def counts() -> Counts:
                    done.set()
                    return Counts(1)

                with reporter.watching(address, "child", "c", counts):
                    os._exit(0 if done.wait(10) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
