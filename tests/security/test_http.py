"""The deadlines of one HTTP request. Each step has the time that the steps before it left."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable

import pytest

from spark_kafka_sink.security.http import HttpProxy, HttpRequest, HttpTimeouts, send
from tests.security.sasl.http_servers import raw_server

LATE_S = 0.7
LIMIT_S = 0.9
"""Less than twice `LATE_S`: a deadline that began again after the first step would let the request take 1.6 s."""
AT_MOST_S = 1.4

LATE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"


def silent(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def late(answer: bytes) -> Callable[[socket.socket], None]:
    """Answers the first request late, and then nothing."""

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        time.sleep(LATE_S)
        connection.sendall(answer)
        silent(connection)

    return serve


def seconds_until_timeout(url: str, timeouts: HttpTimeouts, proxy: HttpProxy | None = None) -> float:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        send(HttpRequest("GET", url, {}), timeouts, ssl.create_default_context(), proxy)
    return time.monotonic() - began


def test_a_handshake_behind_a_late_proxy_has_what_the_proxy_left() -> None:
    with raw_server(late(b"HTTP/1.1 200 Connection established\r\n\r\n")) as url:
        proxy = HttpProxy(url.removeprefix("http://").removesuffix("/token"))
        took_s = seconds_until_timeout("https://registry.example/", HttpTimeouts(LIMIT_S, LIMIT_S, LIMIT_S), proxy)
    assert LATE_S < took_s < AT_MOST_S


def test_a_late_response_ends_with_the_whole_time() -> None:
    with raw_server(late(LATE_HEAD)) as url:
        assert LATE_S < seconds_until_timeout(url, HttpTimeouts(30, 30, LIMIT_S)) < AT_MOST_S


def test_the_response_has_its_own_time_if_there_is_no_total() -> None:
    with raw_server(silent) as url:
        assert seconds_until_timeout(url, HttpTimeouts(30, 0.05)) < AT_MOST_S


def test_all_addresses_of_a_host_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody accepts connections to the first addresses. The last one would, too late."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_server(("127.0.0.1", 0)) as free:
        filling = [socket.socket() for _ in range(4)]
        for one in filling:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one.getsockname()) for one in (full, full, full, free)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        took_s = seconds_until_timeout("http://registry.example/", HttpTimeouts(0.3, 30, 30))
        for one in filling:
            one.close()
    assert took_s < 0.9
