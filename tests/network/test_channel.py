"""PlainChannel: a TCP socket that never blocks, with the options that Kafka's clients set."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from spark_kafka_sink.network.channel import Address, PlainChannel


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.settimeout(60)
        yield sock


def address_of(listener: socket.socket) -> Address:
    return Address(socket.AF_INET, listener.getsockname())


def finished(channel: PlainChannel) -> bool:
    assert select.select([], [channel], [], 5)[1], "the connection was not made in 5 s"
    return channel.finish_connect()


@pytest.fixture
def pair(listener: socket.socket) -> Iterator[tuple[PlainChannel, socket.socket]]:
    channel = PlainChannel.connect(address_of(listener))
    far_end, _ = listener.accept()
    assert finished(channel)
    yield channel, far_end
    channel.close()
    far_end.close()


def option(channel: PlainChannel, level: int, name: int) -> int:
    with socket.socket(fileno=socket.dup(channel.fileno())) as sock:
        return sock.getsockopt(level, name)


def test_requests_are_not_delayed_by_nagle_and_dead_peers_are_noticed(pair: tuple[PlainChannel, socket.socket]) -> None:
    assert option(pair[0], socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert option(pair[0], socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_buffer_sizes_are_set_where_they_are_given(listener: socket.socket) -> None:
    channel = PlainChannel.connect(address_of(listener), send_buffer=50_000, receive_buffer=40_000)
    system = PlainChannel.connect(address_of(listener))
    # Linux doubles what is asked for.
    assert option(channel, socket.SOL_SOCKET, socket.SO_SNDBUF) in (50_000, 100_000)
    assert option(channel, socket.SOL_SOCKET, socket.SO_RCVBUF) in (40_000, 80_000)
    assert option(system, socket.SOL_SOCKET, socket.SO_SNDBUF) not in (50_000, 100_000)
    channel.close()
    system.close()


def test_nothing_to_read_and_the_end_of_the_stream_are_told_apart(pair: tuple[PlainChannel, socket.socket]) -> None:
    channel, far_end = pair
    assert channel.recv_into(memoryview(bytearray(1))) is None
    far_end.close()
    select.select([channel], [], [], 5)
    assert channel.recv_into(memoryview(bytearray(1))) == 0


def test_sending_into_a_full_socket_takes_nothing_and_does_not_wait(pair: tuple[PlainChannel, socket.socket]) -> None:
    channel, _ = pair
    megabyte = bytes(1 << 20)
    assert any(channel.send([megabyte]) == 0 for _ in range(1000))


def test_a_connection_that_met_itself_counts_as_refused() -> None:
    """Where nobody listens, a socket bound to the very port it connects to meets itself."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.connect(sock.getsockname())
    channel = PlainChannel(sock, "itself")
    with pytest.raises(ConnectionRefusedError):
        channel.finish_connect()
    channel.close()


def test_a_connection_under_way_is_not_finished() -> None:
    channel = PlainChannel(socket.socket(), "nobody")
    assert channel.finish_connect() is False
    channel.close()


def test_an_address_of_no_network_fails_at_once_and_leaves_no_socket_open() -> None:
    with pytest.raises(OSError):
        PlainChannel.connect(Address(socket.AF_INET, ("255.255.255.255", 9092)))


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address(socket.AF_INET, ("127.0.0.1", 9092)), "127.0.0.1:9092"),
        (Address(socket.AF_INET6, ("::1", 9092, 0, 0)), "[::1]:9092"),
    ],
)
def test_an_address_reads_as_people_write_it(address: Address, text: str) -> None:
    assert str(address) == text
