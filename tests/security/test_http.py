"""The deadlines of one HTTP request. Each step has the time that the steps before it left."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from spark_kafka_sink.security import http
from spark_kafka_sink.security.http import HttpProxy, HttpRequest, HttpTimeouts, send
from tests.security.sasl.http_servers import raw_server, silent
from tests.waiting import HOUR_S

LATE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"


class Clock:
    """Seconds that pass when a test says so."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=clock))
    return clock


def late(answer: bytes, clock: Clock) -> Callable[[socket.socket], None]:
    """Answers the first request so late that a tenth of a second is left, and then nothing."""

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        clock.now_s = HOUR_S - 0.1
        connection.sendall(answer)
        silent(connection)

    return serve


def time_out(url: str, timeouts: HttpTimeouts, proxy: HttpProxy | None = None) -> None:
    with pytest.raises(TimeoutError):
        send(HttpRequest("GET", url, {}), timeouts, ssl.create_default_context(), proxy)


def test_a_handshake_behind_a_late_proxy_has_what_the_proxy_left(clock: Clock) -> None:
    with raw_server(late(b"HTTP/1.1 200 Connection established\r\n\r\n", clock)) as url:
        proxy = HttpProxy(url.removeprefix("http://").removesuffix("/token"))
        time_out("https://registry.example/", HttpTimeouts(HOUR_S, HOUR_S, HOUR_S), proxy)
        assert clock.now_s > 0


def test_a_late_response_ends_with_the_whole_time(clock: Clock) -> None:
    with raw_server(late(LATE_HEAD, clock)) as url:
        time_out(url, HttpTimeouts(2 * HOUR_S, 2 * HOUR_S, HOUR_S))
        assert clock.now_s > 0


def test_all_addresses_of_a_host_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody accepts connections to the first addresses. The last one would, too late."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_server(("127.0.0.1", 0)) as free:
        filling = [socket.socket() for _ in range(4)]
        for one in filling:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one.getsockname()) for one in (full, full, full, free)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        time_out("http://registry.example/", HttpTimeouts(0.3, HOUR_S, HOUR_S))
        for one in filling:
            one.close()
