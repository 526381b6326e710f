"""Probes of connections: each address has its share of the time, and a port that speaks another protocol is told."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_kafka_sink.client.connection_probe import ProbedConnection, probe_connections
from spark_kafka_sink.errors import AuthenticationError, DisconnectedError
from spark_kafka_sink.options.producer_options import producer_config
from tests.client.raw_listener import raw_listener
from tests.kafka.ports import free_ports
from tests.network.black_hole import black_hole
from tests.waiting import DEADLINE_S, with_time_enough

TLS_RECORD = 0x16
_RESET = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which closing a socket resets the connection."""


@contextmanager
def listener(*, resets: bool = False, answers: bool = True) -> Iterator[tuple[str, int]]:
    """A port that ends connections that begin with TLS, with a reset or not, and answers others as a plain listener does."""

    def serve_one(connection: socket.socket) -> None:
        first = connection.recv(4096)
        if first[:1] == bytes([TLS_RECORD]):
            if resets:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        elif answers and first:
            connection.sendall(struct.pack(">i", 10) + first[8:12])

    with raw_listener(serve_one) as address:
        yield address


def probed(host: str, port: int, *, seconds: float = DEADLINE_S, protocol: str = "PLAINTEXT") -> object:
    config = producer_config({"bootstrap.servers": f"{host}:{port}", "security.protocol": protocol})
    return probe_connections(config, [(host, port)], time.monotonic() + seconds)[host, port]


@pytest.mark.parametrize("resets", [False, True])
def test_tls_at_a_port_without_it_is_told_however_the_port_ends_it(resets: bool) -> None:
    with listener(resets=resets) as (host, port):
        error = probed(host, port, protocol="SSL")
    assert isinstance(error, AuthenticationError)
    assert error.message.startswith(f"broker {host}:{port} speaks plain text, but this client uses TLS (security.protocol=SSL).")


def test_a_port_that_ends_every_connection_is_no_proof() -> None:
    with listener(answers=False) as (host, port):
        error = probed(host, port, protocol="SSL")
    assert isinstance(error, DisconnectedError)
    assert error.message == f"{host}:{port} closed the connection during the handshake"


def test_an_address_that_never_answers_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with black_hole() as silent, listener() as healthy:
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (silent, healthy)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        found = with_time_enough(
            lambda seconds: probed("broker.example", 9092, seconds=seconds), lambda each: isinstance(each, ProbedConnection), 0.6
        )
    assert isinstance(found, ProbedConnection)


def test_the_last_failure_of_several_addresses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with black_hole() as silent:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", each) for each in (("127.0.0.1", free_ports(1)[0]), silent)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        told = "timed out connecting to broker.example:9092"
        error = with_time_enough(
            lambda seconds: probed("broker.example", 9092, seconds=seconds),
            lambda each: getattr(each, "message", "") == told,
            0.1,
        )
    assert isinstance(error, DisconnectedError)
    assert error.message == told


def test_hosts_are_tried_at_the_same_time() -> None:
    with black_hole() as silent, listener() as healthy:
        config = producer_config({"bootstrap.servers": "{}:{},{}:{}".format(*silent, *healthy)})
        found = with_time_enough(
            lambda seconds: probe_connections(config, [silent, healthy], time.monotonic() + seconds),
            lambda each: isinstance(each[healthy], ProbedConnection),
            0.1,
        )
    assert isinstance(found[healthy], ProbedConnection)
    assert isinstance(found[silent], DisconnectedError)


def test_a_name_that_is_never_found_costs_no_more_than_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def hanging(*_: object, **__: object) -> list[object]:
        answer.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    try:
        error = probed("broker.example", 9092, seconds=0.1)
    finally:
        answer.set()
    assert isinstance(error, DisconnectedError)
    assert error.message == "could not connect to broker.example:9092: timed out looking up the host name"
