"""Selector with channels that shake hands first and hold bytes back, as TLS does."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from selectors import EVENT_READ, EVENT_WRITE

import pytest

from spark_kafka_sink.network.channel import Address, Buffer, PlainChannel
from spark_kafka_sink.network.selector import PollResult
from tests.network.ends import Ends, framed, received
from tests.waiting import HOUR_MS


class TwoStepChannel(PlainChannel):
    """Stands for TLS: a handshake of one byte each way, and a buffer of its own from which bytes are read."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        super().__init__(sock, peer)
        self._begun = self._said = False
        self._held = bytearray()

    @property
    def interest(self) -> int:
        return EVENT_READ if self._said else EVENT_WRITE

    def handshake(self) -> bool:
        if not self._begun:
            self._begun = True
            return False
        if not self._said:
            self._said = super().send([b"?"]) == 1
        answer = bytearray(1)
        count = super().recv_into(memoryview(answer))
        if count == 0:
            raise EOFError
        return count == 1

    def recv_into(self, buffer: memoryview) -> int | None:
        if not self._held:
            more = bytearray(1000)
            count = super().recv_into(memoryview(more))
            if not count:
                return count
            self._held += more[:count]
        taken = self._held[: len(buffer)]
        buffer[: len(taken)] = taken
        del self._held[: len(taken)]
        return len(taken)

    def send(self, buffers: Sequence[Buffer]) -> int:
        return super().send(buffers)

    def has_buffered_bytes(self) -> bool:
        return bool(self._held)


@pytest.fixture
def handshaking(ends: Ends) -> socket.socket:
    """The far end of a connection that waits for its answer in the handshake."""
    address = Address(socket.AF_INET, ends.listener.getsockname())
    ends.selector.register(1, TwoStepChannel.connect(address))
    ends.far[1], _ = ends.listener.accept()
    ends.far[1].settimeout(60)
    for _ in range(2):
        assert ends.poll(1000).connected == []
    assert ends.far[1].recv(10) == b"?"
    return ends.far[1]


def test_a_channel_with_a_handshake_is_connected_only_after_it(ends: Ends, handshaking: socket.socket) -> None:
    assert ends.poll(10) == PollResult()
    assert not ends.selector.can_send(1)
    handshaking.sendall(b"!")
    assert ends.until(lambda result: bool(result.connected)).connected == [1]


def test_a_connection_closed_during_the_handshake_says_so(ends: Ends, handshaking: socket.socket) -> None:
    handshaking.shutdown(socket.SHUT_WR)
    assert ends.lost().message.endswith("it closed the connection during the handshake")


def test_frames_that_a_channel_holds_back_are_given_without_more_bytes_coming(ends: Ends, handshaking: socket.socket) -> None:
    handshaking.sendall(b"!" + framed(b"a") + framed(b"b") + framed(b"c"))
    ends.until(lambda result: bool(result.connected))
    messages = [received(ends.poll(HOUR_MS)) for _ in range(3)]
    assert messages == [[(1, b"a")], [(1, b"b")], [(1, b"c")]]


def test_frames_that_a_closed_channel_held_back_are_forgotten(ends: Ends, handshaking: socket.socket) -> None:
    handshaking.sendall(b"!" + framed(b"a") + framed(b"b"))
    ends.until(lambda result: bool(result.received))
    ends.selector.close_connection(1)
    began = time.monotonic()
    assert ends.poll(50) == PollResult()
    assert time.monotonic() - began >= 0.045


def test_frames_that_a_muted_channel_holds_back_wait(ends: Ends, handshaking: socket.socket) -> None:
    handshaking.sendall(b"!" + framed(b"a") + framed(b"b"))
    ends.until(lambda result: bool(result.received))
    ends.selector.mute(1)
    assert ends.poll(20).received == []
    ends.selector.unmute(1)
    assert received(ends.poll(1000)) == [(1, b"b")]
