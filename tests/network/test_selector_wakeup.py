"""Wakeup: a wait ends for whoever calls, once for many calls, and never too late."""

from __future__ import annotations

import errno
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_kafka_sink.network.selector import Wakeup
from tests.waiting import DEADLINE_S


class Sender(socket.socket):
    """The sending end of a Wakeup; the system has no memory for its next sends."""

    failures = 0

    def send(self, data: Any, flags: int = 0, /) -> int:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.ENOBUFS, "no memory")
        return super().send(data, flags)


@pytest.fixture
def ends() -> tuple[socket.socket, Sender]:
    receiver, sender = socket.socketpair()
    return receiver, Sender(fileno=sender.detach())


@pytest.fixture
def wakeup(ends: tuple[socket.socket, Sender]) -> Iterator[Wakeup]:
    wakeup = Wakeup(ends)
    yield wakeup
    wakeup.close()


@contextmanager
def two_ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


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


def test_a_call_after_close_reaches_nobody_else() -> None:
    wakeup = Wakeup()
    wakeup.close()
    with two_ends() as others:  # the system gives out the same numbers again
        wakeup.wakeup()
        assert select.select(others, [], [], 0)[0] == []


def test_a_call_while_it_is_being_closed_is_no_error(ends: tuple[socket.socket, Sender], wakeup: Wakeup) -> None:
    ends[0].close()
    wakeup.wakeup()
    assert wakeup.fileno() == -1


def test_a_full_pair_ends_the_wait_by_what_is_in_it(ends: tuple[socket.socket, Sender], wakeup: Wakeup) -> None:
    with pytest.raises(BlockingIOError):
        while True:
            ends[1].send(bytes(4096))
    wakeup.wakeup()
    assert is_signalled(wakeup)
    wakeup.drain()
    assert not is_signalled(wakeup)


def test_a_call_that_failed_is_told_and_not_taken_for_a_signal(ends: tuple[socket.socket, Sender], wakeup: Wakeup) -> None:
    ends[1].failures = 1
    with pytest.raises(OSError, match="no memory"):
        wakeup.wakeup()
    wakeup.wakeup()
    assert is_signalled(wakeup)


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
        assert is_signalled(wakeup, DEADLINE_S), f"nobody was woken for {last - seen} calls"
        wakeup.drain()
        seen = number[0]
    caller.join()
