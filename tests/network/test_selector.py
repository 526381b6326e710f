"""Selector: what happened on many connections, told once per poll; those that fail are closed and told with the cause."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from selectors import EVENT_READ, EVENT_WRITE

import pytest

from spark_kafka_sink.errors import DisconnectedError, PeerError, ProtocolError, UsageError
from spark_kafka_sink.network.channel import Address, Buffer, PlainChannel
from spark_kafka_sink.network.selector import PollResult, Selector
from tests.network.black_hole import black_hole

LIMIT = 1_000_000
IDLE_MS = 5_000


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


class Ends:
    """A selector and the far ends of its connections, by connection id."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.selector = Selector(max_frame_size=LIMIT, max_idle_ms=IDLE_MS, clock=self.clock)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(5)
        self.far: dict[int, socket.socket] = {}

    def connecting(self, connection_id: int) -> socket.socket:
        address = Address(socket.AF_INET, self.listener.getsockname())
        self.selector.register(connection_id, PlainChannel.connect(address, send_buffer=50_000))
        self.far[connection_id], _ = self.listener.accept()
        self.far[connection_id].settimeout(5)
        return self.far[connection_id]

    def connected(self, connection_id: int = 1) -> socket.socket:
        far = self.connecting(connection_id)
        self.until(lambda result: connection_id in result.connected)
        return far

    def poll(self, timeout_ms: int = 0) -> PollResult:
        return self.selector.poll(timeout_ms)

    def until(self, reached: Callable[[PollResult], bool]) -> PollResult:
        deadline = time.monotonic() + 5
        while not reached(result := self.selector.poll(20)):
            assert time.monotonic() < deadline, f"it did not come about in 5 s; last: {result}"
        return result

    def lost(self) -> PeerError:
        (lost,) = self.until(lambda result: bool(result.disconnected)).disconnected
        assert not self.selector.can_send(lost.connection_id)
        return lost.error

    def close(self) -> None:
        self.selector.close()
        self.listener.close()
        for far in self.far.values():
            far.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def received(result: PollResult) -> list[tuple[int, bytes]]:
    return [(connection_id, bytes(frame)) for connection_id, frame in result.received]


def reset(far: socket.socket) -> None:
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()


def test_a_connection_is_told_when_it_is_made_and_can_send_from_then_on(ends: Ends) -> None:
    ends.connecting(1)
    assert not ends.selector.can_send(1)
    assert ends.until(lambda result: bool(result.connected)).connected == [1]
    assert ends.selector.can_send(1)
    assert ends.poll().connected == []


def test_messages_go_both_ways_in_frames(ends: Ends) -> None:
    far = ends.connected()
    ends.selector.send(1, [b"req", bytearray(b"uest")])
    assert ends.poll().sent == [1]
    assert far.recv(100) == framed(b"request")
    far.sendall(framed(b"answer"))
    assert received(ends.until(lambda result: bool(result.received))) == [(1, b"answer")]


def test_a_poll_that_sent_does_not_wait_for_answers(ends: Ends) -> None:
    ends.connected()
    ends.selector.send(1, [b"the caller may have more to send"])
    began = time.monotonic()
    assert ends.poll(10_000).sent == [1]
    assert time.monotonic() - began < 5


def test_a_frame_larger_than_the_sockets_buffers_goes_out_as_the_far_end_reads(ends: Ends) -> None:
    far = ends.connected()
    message = bytes(range(256)) * 80_000
    ends.selector.send(1, [message])
    assert ends.poll().sent == []
    assert not ends.selector.can_send(1)
    with pytest.raises(UsageError, match="has a frame on its way"):
        ends.selector.send(1, [b"another"])
    got = bytearray()
    sent = False
    while len(got) < len(message) + 4:
        got += far.recv(1 << 20)
        sent = sent or ends.poll().sent == [1]
    assert sent
    assert got == framed(message)
    assert ends.selector.can_send(1)


def test_a_poll_gives_at_most_one_frame_per_connection_and_the_others_after_it(ends: Ends) -> None:
    far, other = ends.connected(1), ends.connected(2)
    far.sendall(framed(b"one") + framed(b"two") + framed(b"three"))
    other.sendall(framed(b"mine"))
    seen: list[tuple[int, bytes]] = []
    while len(seen) < 4:
        now = received(ends.until(lambda result: bool(result.received)))
        assert len({connection_id for connection_id, _ in now}) == len(now)
        seen += now
    assert [message for connection_id, message in seen if connection_id == 1] == [b"one", b"two", b"three"]


def test_a_muted_connection_is_silent_until_it_is_unmuted(ends: Ends) -> None:
    far = ends.connected()
    ends.selector.mute(1)
    far.sendall(framed(b"later"))
    assert ends.poll(50).received == []
    ends.selector.unmute(1)
    assert received(ends.until(lambda result: bool(result.received))) == [(1, b"later")]


def test_a_muted_connection_still_sends(ends: Ends) -> None:
    far = ends.connected()
    ends.selector.mute(1)
    ends.selector.send(1, [b"out"])
    assert ends.poll().sent == [1]
    assert far.recv(100) == framed(b"out")


def test_a_refused_connection_is_told_with_its_address(ends: Ends) -> None:
    address = Address(socket.AF_INET, ends.listener.getsockname())
    ends.listener.close()
    ends.selector.register(1, PlainChannel.connect(address))
    error = ends.lost()
    assert isinstance(error, DisconnectedError)
    assert error.message == f"could not connect to {address}: Connection refused"


def test_a_connection_that_nobody_answers_is_neither_made_nor_lost(ends: Ends) -> None:
    with black_hole() as address:
        ends.selector.register(1, PlainChannel.connect(Address(socket.AF_INET, address)))
        assert ends.poll(50) == PollResult()
        ends.selector.close_connection(1)


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (b"", "it closed the connection"),
        (b"\0\0", "it closed the connection after 2 of a size's 4 bytes"),
        (framed(b"truncated")[:-1], "it closed the connection after 8 of a frame's 9 bytes"),
    ],
)
def test_a_connection_closed_by_the_far_end_is_lost(ends: Ends, before: bytes, says: str) -> None:
    far = ends.connected()
    far.sendall(before)
    far.close()
    error = ends.lost()
    assert isinstance(error, DisconnectedError)
    assert error.message.endswith(f": {says}")


def test_a_frame_that_came_before_the_end_is_still_given(ends: Ends) -> None:
    far = ends.connected()
    far.sendall(framed(b"last words"))
    far.close()
    assert received(ends.until(lambda result: bool(result.received))) == [(1, b"last words")]
    assert isinstance(ends.lost(), DisconnectedError)


def test_a_reset_connection_is_lost_also_while_sending(ends: Ends) -> None:
    far = ends.connected()
    ends.selector.send(1, [bytes(20_000_000)])
    ends.poll()
    reset(far)
    error = ends.lost()
    assert isinstance(error, DisconnectedError)
    assert "lost the connection to 127.0.0.1:" in error.message


@pytest.mark.parametrize(
    "hostile", [b"HTTP/1.1 200 OK", b"\x15\x03\x03\0\2", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"]
)
def test_hostile_bytes_close_their_connection_and_no_other(ends: Ends, hostile: bytes) -> None:
    far, other = ends.connected(1), ends.connected(2)
    far.sendall(hostile)
    assert isinstance(ends.lost(), ProtocolError)
    with pytest.raises(UsageError):
        ends.selector.send(1, [b"too late"])
    other.sendall(framed(b"fine"))
    assert received(ends.until(lambda result: bool(result.received))) == [(2, b"fine")]


def test_a_frame_that_comes_a_byte_at_a_time_is_given_once_it_is_whole(ends: Ends) -> None:
    far = ends.connected()
    stream = framed(b"slow")
    for number, byte in enumerate(stream, start=1):
        far.send(bytes([byte]))
        result = ends.poll(20 if number < len(stream) else 5000)
        assert received(result) == ([(1, b"slow")] if number == len(stream) else [])


def test_a_connection_on_which_nothing_happens_is_closed_as_idle(ends: Ends) -> None:
    ends.connected(1)
    ends.clock.now_ms += 2_000
    ends.connected(2)
    ends.clock.now_ms += 3_000
    assert ends.poll().disconnected == []
    ends.clock.now_ms += 1
    (lost,) = ends.poll().disconnected
    assert (lost.connection_id, lost.idle) == (1, True)
    assert "connections.max.idle.ms" in lost.error.message
    assert ends.selector.can_send(2)


def test_sending_and_receiving_keep_a_connection_from_being_idle(ends: Ends) -> None:
    far = ends.connected()
    ends.clock.now_ms += IDLE_MS - 1
    ends.selector.send(1, [b"still here"])
    ends.poll()
    ends.clock.now_ms += IDLE_MS - 1
    assert ends.poll().disconnected == []
    far.sendall(framed(b"so am I"))
    ends.until(lambda result: bool(result.received))
    ends.clock.now_ms += IDLE_MS - 1
    assert ends.poll().disconnected == []


def test_a_poll_waits_no_longer_than_until_a_connection_is_idle(ends: Ends) -> None:
    ends.connected()
    ends.clock.now_ms += IDLE_MS - 10
    began = time.monotonic()
    ends.poll(60_000)
    assert time.monotonic() - began < 5


def test_a_connection_closed_by_its_owner_is_not_told(ends: Ends) -> None:
    far = ends.connected()
    ends.selector.send(1, [b"dropped"])
    ends.selector.close_connection(1)
    assert ends.poll() == PollResult()
    assert far.recv(100) == b""
    ends.selector.close_connection(1)


def test_an_id_is_free_again_once_its_connection_is_closed(ends: Ends) -> None:
    first = ends.connected(1)
    another = PlainChannel.connect(Address(socket.AF_INET, ends.listener.getsockname()))
    with pytest.raises(UsageError, match="connection 1 is there already"):
        ends.selector.register(1, another)
    another.close()
    ends.listener.accept()[0].close()
    ends.selector.close_connection(1)
    first.close()
    second = ends.connected(1)
    ends.selector.send(1, [b"to the second"])
    ends.poll()
    assert second.recv(100) == framed(b"to the second")


def test_another_thread_wakes_a_poll(ends: Ends) -> None:
    ends.connected()
    caller = threading.Timer(0.05, ends.selector.wakeup)
    caller.start()
    began = time.monotonic()
    assert ends.poll(60_000) == PollResult()
    assert time.monotonic() - began < 5
    caller.join()


def test_a_call_before_the_poll_ends_it_at_once_and_only_that_one(ends: Ends) -> None:
    ends.selector.wakeup()
    began = time.monotonic()
    ends.poll(60_000)
    assert time.monotonic() - began < 5
    began = time.monotonic()
    ends.poll(50)
    assert time.monotonic() - began >= 0.045


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
    ends.far[1].settimeout(5)
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
    began = time.monotonic()
    messages = [received(ends.poll(4_000)) for _ in range(3)]
    assert messages == [[(1, b"a")], [(1, b"b")], [(1, b"c")]]
    assert time.monotonic() - began < 4


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
