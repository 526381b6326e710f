"""Selector when a connection fails or is closed: it is told once, with the cause, and no other connection notices."""

from __future__ import annotations

import socket

import pytest

from spark_kafka_sink.errors import DisconnectedError, ProtocolError, UsageError
from spark_kafka_sink.network.channel import Address, PlainChannel
from spark_kafka_sink.network.selector import PollResult
from tests.network.black_hole import black_hole
from tests.network.ends import Ends, framed, received, reset


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


@pytest.mark.fault("hostile bytes", "HTTP or a TLS alert instead of Kafka")
@pytest.mark.parametrize(
    "hostile", [b"HTTP/1.1 200 OK", b"\x16\x03\x03\0\2", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"]
)
def test_hostile_bytes_close_their_connection_and_no_other(ends: Ends, hostile: bytes) -> None:
    far, other = ends.connected(1), ends.connected(2)
    far.sendall(hostile)
    assert isinstance(ends.lost(), ProtocolError)
    with pytest.raises(UsageError):
        ends.selector.send(1, [b"too late"])
    other.sendall(framed(b"fine"))
    assert received(ends.until(lambda result: bool(result.received))) == [(2, b"fine")]


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
    with pytest.raises(UsageError, match="connection 1 already exists"):
        ends.selector.register(1, another)
    another.close()
    ends.listener.accept()[0].close()
    ends.selector.close_connection(1)
    first.close()
    second = ends.connected(1)
    ends.selector.send(1, [b"to the second"])
    ends.poll()
    assert second.recv(100) == framed(b"to the second")
