"""Selector with TLS: refusals are reported, decrypted bytes are not forgotten, and reads that need a write wait for that."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from selectors import EVENT_READ, EVENT_WRITE

import pytest

from spark_kafka_sink.errors import AuthenticationError, PeerError
from spark_kafka_sink.network.channel import Address, Buffer, PlainChannel
from spark_kafka_sink.network.selector import PollResult
from spark_kafka_sink.network.tls_channel import TlsChannel
from spark_kafka_sink.network.tls_failures import FarEnd
from tests.network.ends import Ends, framed, received
from tests.network.tls_ends import client_context
from tests.security.certificates import Certificates, server_context


def begun(ends: Ends, context: ssl.SSLContext, connection_id: int = 1) -> socket.socket:
    """Registers a TlsChannel that connects to the ends' listener. Returns the far end, which has said nothing."""
    address = Address(socket.AF_INET, ends.listener.getsockname())
    below = PlainChannel.connect(address)
    ends.selector.register(connection_id, TlsChannel(below, context, FarEnd(below.peer, "localhost", 9093)))
    ends.far[connection_id], _ = ends.listener.accept()
    ends.far[connection_id].settimeout(60)
    return ends.far[connection_id]


@pytest.fixture
def far(ends: Ends, certificates: Certificates, tmp_path: Path) -> Iterator[ssl.SSLSocket]:
    """The server's end of connection 1, which is connected."""
    plain = begun(ends, client_context(certificates))
    made: list[ssl.SSLSocket] = []
    context = server_context(certificates.server, tmp_path)
    server = threading.Thread(target=lambda: made.append(context.wrap_socket(plain, server_side=True)))
    server.start()
    ends.until(lambda result: result.connected == [1])
    server.join(60)
    yield made[0]
    made[0].close()


def test_frames_go_both_ways(ends: Ends, far: ssl.SSLSocket) -> None:
    ends.selector.send(1, [b"question", bytes(100_000)])
    assert ends.until(lambda result: bool(result.sent)).sent == [1]
    assert far.recv(12) == framed(b"question" + bytes(100_000))[:12]
    far.sendall(framed(b"answer"))
    assert received(ends.until(lambda result: bool(result.received))) == [(1, b"answer")]


def test_decrypted_frames_do_not_wait_for_a_long_write(ends: Ends, far: ssl.SSLSocket) -> None:
    far.sendall(framed(b"a") + framed(b"b") + framed(b"c"))
    assert received(ends.until(lambda result: bool(result.received))) == [(1, b"a")]
    ends.selector.send(1, [bytes(30_000_000)])
    assert received(ends.poll()) == [(1, b"b")]
    taken = 0
    while taken < 1_000_000:  # so there is room to write again
        taken += len(far.recv(100_000))
    result = ends.poll()
    assert received(result) == [(1, b"c")]
    assert result.sent == []


def test_an_idle_connection_does_not_keep_the_thread_busy(ends: Ends, far: ssl.SSLSocket) -> None:
    far.sendall(framed(b"a"))
    ends.until(lambda result: bool(result.received))
    ends.selector.take_counts()
    began = time.monotonic()
    assert ends.poll(60) == PollResult()
    assert time.monotonic() - began >= 0.055


def test_a_plain_client_at_a_tls_listener_is_told_so(ends: Ends, certificates: Certificates, tmp_path: Path) -> None:
    far = ends.connected()
    context = server_context(certificates.server, tmp_path)
    ends.selector.register_accepted(2, TlsChannel.accept(far, "client:1", context))
    ends.selector.send(1, [b"\0\x12\0\3\0\0\0\0\0\4test"])
    errors: dict[int, PeerError] = {}

    def both_lost(result: PollResult) -> bool:
        errors.update({lost.connection_id: lost.error for lost in result.disconnected})
        return len(errors) == 2

    ends.until(both_lost)
    assert [type(error) for error in errors.values()] == [AuthenticationError] * 2
    assert "speaks TLS, but this connection is not encrypted" in errors[1].message
    assert "Set security.protocol=SSL or SASL_SSL" in errors[1].message
    assert errors[2].message.startswith("client client:1: it does not speak TLS")


# What needs the other direction


class CrossedChannel(PlainChannel):
    """Stands for TLS at a key update: it cannot read before it has written, or not write before it has read."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        super().__init__(sock, peer)
        self.is_stuck = False
        self.reads = self.writes = 0

    def recv_into(self, buffer: memoryview) -> int | None:
        self.reads += 1
        if self.is_stuck and self.read_needs == EVENT_WRITE:
            return None
        return super().recv_into(buffer)

    def send(self, buffers: Sequence[Buffer]) -> int:
        self.writes += 1
        if self.is_stuck and self.write_needs == EVENT_READ:
            return 0
        return super().send(buffers)


@pytest.fixture
def crossed(ends: Ends) -> CrossedChannel:
    """Connection 1, connected."""
    channel = CrossedChannel.connect(Address(socket.AF_INET, ends.listener.getsockname()))
    ends.selector.register(1, channel)
    ends.far[1], _ = ends.listener.accept()
    ends.far[1].settimeout(60)
    ends.until(lambda result: result.connected == [1])
    return channel


def test_a_write_that_needs_a_read_waits_for_bytes_and_goes_on_with_them(ends: Ends, crossed: CrossedChannel) -> None:
    crossed.is_stuck, crossed.write_needs = True, EVENT_READ
    ends.selector.send(1, [b"question"])
    began = time.monotonic()
    for _ in range(3):
        assert ends.poll(20) == PollResult()
    assert crossed.writes == 1
    assert time.monotonic() - began >= 0.055  # it did not spin
    ends.far[1].sendall(framed(b"news"))
    crossed.is_stuck = False
    result = ends.poll(5_000)
    assert (received(result), result.sent) == ([(1, b"news")], [1])


def test_a_muted_connection_whose_write_needs_a_read_goes_on(ends: Ends, crossed: CrossedChannel) -> None:
    crossed.is_stuck, crossed.write_needs = True, EVENT_READ
    ends.selector.send(1, [b"answer"])
    ends.selector.mute(1)
    assert ends.poll(20) == PollResult()
    ends.far[1].sendall(framed(b"news"))
    crossed.is_stuck = False
    assert ends.until(lambda result: bool(result.sent)).received == []
    crossed.write_needs = EVENT_WRITE
    ends.selector.unmute(1)
    assert received(ends.poll(5_000)) == [(1, b"news")]


def test_a_read_that_needs_a_write_waits_for_room_and_goes_on_with_it(ends: Ends, crossed: CrossedChannel) -> None:
    ends.far[1].sendall(framed(b"news"))
    crossed.is_stuck, crossed.read_needs = True, EVENT_WRITE
    ends.selector.mute(1)
    ends.selector.unmute(1)  # it asks the system for what is needed now
    crossed.is_stuck = False
    assert received(ends.poll(5_000)) == [(1, b"news")]
    assert crossed.reads > 0
