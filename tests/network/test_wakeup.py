"""Wakeup: a wait ends for whoever calls, once for many calls, and never too late."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator

import pytest

from spark_kafka_sink.network.wakeup import Wakeup


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    wakeup = Wakeup()
    yield wakeup
    wakeup.close()


def is_signalled(wakeup: Wakeup, timeout_s: float = 0) -> bool:
    return bool(select.select([wakeup], [], [], timeout_s)[0])


def test_it_is_signalled_from_the_call_until_it_is_drained(wakeup: Wakeup) -> None:
    assert not is_signalled(wakeup)
    wakeup.wakeup()
    assert is_signalled(wakeup)
    wakeup.drain()
    assert not is_signalled(wakeup)
    wakeup.wakeup()
    assert is_signalled(wakeup)


def test_many_calls_are_one_signal(wakeup: Wakeup) -> None:
    for _ in range(1_000_000):
        wakeup.wakeup()
    wakeup.drain()

    assert not is_signalled(wakeup)


def test_draining_without_a_signal_does_not_wait(wakeup: Wakeup) -> None:
    wakeup.drain()

    assert not is_signalled(wakeup)


def test_another_thread_ends_the_wait(wakeup: Wakeup) -> None:
    caller = threading.Thread(target=wakeup.wakeup)
    began = time.monotonic()
    caller.start()
    assert is_signalled(wakeup, 5)
    assert time.monotonic() - began < 4
    caller.join()


def test_a_call_after_close_is_harmless() -> None:
    wakeup = Wakeup()
    wakeup.close()
    wakeup.wakeup()


def test_no_call_is_lost_between_draining_and_waiting(wakeup: Wakeup) -> None:
    """The caller raises the number first; whoever was woken and saw an older number is woken again."""
    last, number = 20_000, [0]

    def count() -> None:
        for _ in range(last):
            number[0] += 1
            wakeup.wakeup()

    caller = threading.Thread(target=count)
    caller.start()
    seen = 0
    while seen < last:
        assert is_signalled(wakeup, 5), f"nobody was woken for {last - seen} calls"
        wakeup.drain()
        seen = number[0]
    caller.join()
