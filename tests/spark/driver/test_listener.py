from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pytest

from spark_kafka_sink.spark.driver import listener as module
from spark_kafka_sink.spark.driver.listener import MOST_PEERS, MetricsListener
from spark_kafka_sink.spark.reports_to_driver import MAX_MESSAGE_BYTES, ListenerAddress, UnreachableError, send
from tests.spark.counting import driver_listener
from tests.waiting import HOUR_S, wait_until


def number(content: bytes) -> int:
    return int(content)


@contextmanager
def listening() -> Iterator[tuple[ListenerAddress, list[bytes]]]:
    """Takes any content of kind C, and numbers of kind N, which it answers."""
    received: list[bytes] = []
    with driver_listener({b"C": received.append, b"N": number}) as address:
        yield address, received


@pytest.fixture
def waits_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener waits so long for a message. Whoever waits for its end is ended by the time-out of the test."""
    monkeypatch.setattr(module, "RECEIVE_TIMEOUT_S", HOUR_S)


def send_raw(address: ListenerAddress, data: bytes) -> bytes:
    """What the listener answers to these bytes: nothing, when it refuses them."""
    with socket.create_connection(("127.0.0.1", address.port), timeout=10) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(1)
        except OSError:  # a reset is a refusal, too
            return b""


@pytest.mark.parametrize("size", [0, 1, 100_000, 8_000_000])
def test_a_message_is_there_once_sending_has_returned(size: int) -> None:
    with listening() as (address, received):
        assert send(address, b"C", b"x" * size) == 1
        assert received == [b"x" * size]


def test_a_message_with_the_wrong_token_is_refused_and_the_next_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    with listening() as (address, received):
        for _ in range(20):
            with pytest.raises(OSError):
                send(replace(address, token="0" * 32), b"C", b"one")
        send(address, b"C", b"two")
        assert received == [b"two"]
    assert caplog.text.count("its token is wrong") == 1  # a line a minute: a stranger must not fill the log


@pytest.mark.parametrize("kind", [b"", b"c", b"R", b"\0", b"\xff", b"{"])
def test_a_kind_that_is_not_known_is_refused_whatever_follows(kind: bytes) -> None:
    with listening() as (address, received):
        for content in (b"", b"5"):
            text = address.token.encode() + kind + content
            assert send_raw(address, struct.pack(">I", len(text)) + text) == b""
        send(address, b"C", b"")
        assert received == [b""]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), RuntimeError("x"), ZeroDivisionError(), MemoryError()])
def test_whatever_a_handler_raises_the_next_message_is_taken(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    def fail(content: bytes) -> None:
        raise error

    with driver_listener({b"F": fail, b"N": number}) as address:
        for _ in range(2):
            with pytest.raises(ConnectionError):
                send(address, b"F", b"")
            assert send(address, b"N", b"3") == 3
    assert f"the metrics listener refused 1 message, at last: {type(error).__name__}" in caplog.text


@pytest.mark.usefixtures("waits_an_hour")
@pytest.mark.parametrize("length", [0, 31, 32, MAX_MESSAGE_BYTES + 1, 2**32 - 1])
def test_an_impossible_length_is_refused_before_anything_is_read(length: int) -> None:
    with listening() as (address, received):
        with socket.create_connection(("127.0.0.1", address.port)) as connection:
            # Less than what the listener would wait for the rest of a message that it takes.
            connection.settimeout(60)
            connection.sendall(struct.pack(">I", length) + address.token.encode())
            with suppress(ConnectionError):
                assert connection.recv(1) == b""
        send(address, b"C", b"it")
        assert received == [b"it"]


def test_a_message_that_ends_early_is_refused() -> None:
    with listening() as (address, received):
        assert send_raw(address, struct.pack(">I", 100) + address.token.encode() + b"C{") == b""
        assert received == []


@pytest.mark.usefixtures("waits_an_hour")
def test_silent_peers_hold_nobody_up() -> None:
    with listening() as (address, received), ExitStack() as silent:
        for _ in range(MOST_PEERS // 2):
            silent.enter_context(socket.create_connection(("127.0.0.1", address.port)))
        send(address, b"C", b"it", timeout_s=60)
        assert received == [b"it"]


def test_a_message_in_many_parts_is_taken_whole() -> None:
    with listening() as (address, received):
        text = address.token.encode() + b"C" + b"content"
        data = struct.pack(">I", len(text)) + text
        with socket.create_connection(("127.0.0.1", address.port), timeout=10) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for each in data:
                connection.sendall(bytes([each]))
            assert connection.recv(1) == b"\x01"
        assert received == [b"content"]


def test_the_token_is_never_printed() -> None:
    with listening() as (address, _):
        assert address.token not in repr(address)
        assert len(address.token) == 32


def test_stop_closes_the_port_and_ends_the_thread() -> None:
    before = set(threading.enumerate())
    with listening() as (address, _):
        started = set(threading.enumerate()) - before
        assert [thread.daemon for thread in started] == [True]
    assert not any(thread.is_alive() for thread in started)
    with pytest.raises(OSError):
        send(address, b"C", b"it")


def test_a_host_that_is_not_here_is_an_error() -> None:
    with pytest.raises(OSError):
        MetricsListener({}, "192.0.2.1")


def test_on_another_host_it_listens_to_its_own_machine_as_well() -> None:
    before = set(threading.enumerate())
    with driver_listener({b"N": number}, "127.0.0.2") as remote:
        assert (remote.host, remote.local.host) == ("127.0.0.2", "127.0.0.1")
        assert send(remote, b"N", b"7") == send(remote.local, b"N", b"7") == 7
    assert set(threading.enumerate()) <= before
    for address in (remote, remote.local):
        with pytest.raises(UnreachableError):
            send(address, b"N", b"7")


@pytest.mark.usefixtures("waits_an_hour")
def test_each_port_serves_a_limited_number_at_once() -> None:
    with driver_listener({b"N": number}, "127.0.0.2") as remote:
        for address, other in ((remote.local, remote), (remote, remote.local)):
            with ExitStack() as silent:
                for _ in range(MOST_PEERS + 10):
                    silent.enter_context(socket.create_connection((address.host, address.port)))
                with pytest.raises(TimeoutError):
                    send(address, b"N", b"7", timeout_s=0.5)
                assert send(other, b"N", b"7", timeout_s=60) == 7


def test_at_a_limit_of_the_system_it_pauses_and_takes_the_message_afterwards(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, tried, is_limited = socket.socket.accept, [], True

    def limited(server: socket.socket) -> tuple[socket.socket, object]:
        tried.append(server)
        if is_limited:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(server)

    monkeypatch.setattr(socket.socket, "accept", limited)
    began = time.monotonic()
    with listening() as (address, received):
        with pytest.raises(TimeoutError):
            send(address, b"C", b"no", timeout_s=0.5)
        wait_until(lambda: len(tried) >= 3, "it tries again")
        assert len(tried) <= 1 + (time.monotonic() - began) / module._PAUSE_S
        is_limited = False
        send(address, b"C", b"yes")
    assert received[-1] == b"yes"
    assert caplog.text.count(os.strerror(errno.EMFILE)) == 1


def test_a_sender_waits_for_the_whole_exchange_no_longer_than_it_wants() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(TimeoutError):
        send(ListenerAddress(server.getsockname()[1], "0" * 32), b"N", b"0" * 30_000_000, timeout_s=0.5)
