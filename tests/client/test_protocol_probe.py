"""A client whose security.protocol is not that of the port: it is told so within one attempt, and only if that is proven."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.client.protocol_probe import PROBE_MS
from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.network.channel import Address
from spark_kafka_sink.protocol.api import ApiKey
from tests.client.raw_listener import raw_listener
from tests.client.rig import Rig, WatchedChannel
from tests.client.sasl import LOGIN, PASSWORD, USER, Mechanism
from tests.waiting import DEADLINE_S

TLS_RECORD = 0x16
SERVER_HELLO = bytes.fromhex("160303007a020000760303") + bytes(32)
"""The beginning of a server's first record, which is as far as anybody reads."""


@dataclass
class Listener:
    """Accepts connections, and answers the first bytes of each with what `answer` makes of them; then closes. firsts: those."""

    port: int
    firsts: list[bytes] = field(default_factory=list)


@contextmanager
def listener(answer: Callable[[bytes], bytes]) -> Iterator[Listener]:
    firsts: list[bytes] = []

    def serve_one(connection: socket.socket) -> None:
        first = connection.recv(4096)
        firsts.append(first)
        connection.sendall(answer(first))

    with raw_listener(serve_one) as (_, port):
        yield Listener(port, firsts)


def silent_tls(first: bytes) -> bytes:
    """Closes a connection that speaks anything but TLS without a word."""
    return SERVER_HELLO if first[0] == TLS_RECORD else b""


@contextmanager
def led_to(port: int, **settings: object) -> Iterator[Rig]:
    """A client that finds its broker at this port."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with (
        EmbeddedBroker() as broker,
        Rig(
            broker,
            resolver=lambda *_: [Address(socket.AF_INET, ("127.0.0.1", port))],
            settings=named,
            open_mechanism=Mechanism().open,
        ) as rig,
    ):
        yield rig


def rejected(rig: Rig) -> AuthenticationError:
    rig.ready()
    rig.poll_until(lambda: rig.client.rejections)
    return rig.client.take_rejections()[1].error


@pytest.mark.parametrize(("settings", "wanted"), [({}, "SSL"), (LOGIN, "SASL_SSL")])
def test_a_client_without_tls_at_a_port_with_it(settings: dict[str, object], wanted: str) -> None:
    with listener(silent_tls) as server, led_to(server.port, **settings) as rig:
        error = rejected(rig)
        assert f"{rig.label()} expects TLS" in error.message
        assert f"Set security.protocol={wanted}," in error.message
        assert error.facts["broker"] == rig.broker.address(1)
        assert rig.client.is_unavailable(1)
        assert len(server.firsts) == 2
        assert rig.metadata.requested == 0


def test_a_port_that_closes_every_connection_is_no_proof(caplog: pytest.LogCaptureFixture) -> None:
    with listener(lambda first: b"") as server, led_to(server.port) as rig:
        for attempt in (1, 2):
            rig.ready()
            rig.poll_until(lambda: rig.client.is_unavailable(1))
            assert not rig.client.rejections
            assert "it closed the connection" in str(rig.client.why_not_ready(1))
            assert len(server.firsts) == 2 * attempt
            rig.pass_ms(1_000)


def test_an_answer_in_no_known_protocol_is_no_proof() -> None:
    def answer(first: bytes) -> bytes:
        return b"SSH-2.0" if first[0] == TLS_RECORD else b""

    with listener(answer) as server, led_to(server.port) as rig:
        rig.ready()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert not rig.client.rejections


def test_a_probe_without_an_answer_ends_and_leaves_the_first_failure() -> None:
    release = threading.Event()

    def answer(first: bytes) -> bytes:
        if first[0] == TLS_RECORD:
            release.wait(DEADLINE_S)
        return b""

    with listener(answer) as server, led_to(server.port) as rig:
        rig.ready()
        rig.poll_until(lambda: len(server.firsts) == 2)
        assert not rig.client.is_unavailable(1)
        rig.pass_ms(PROBE_MS)
        rig.poll()
        assert rig.client.is_unavailable(1)
        assert "it closed the connection" in str(rig.client.why_not_ready(1))
        release.set()


def test_a_broker_that_was_ready_before_is_not_suspected() -> None:
    with EmbeddedBroker() as broker, Rig(broker) as rig:
        rig.connected()
        broker.faults.unreachable(1).remove()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        rig.pass_ms(1_000)
        seen = broker.faults.seen(ApiKey.API_VERSIONS)
        broker.faults.cut_before(ApiKey.API_VERSIONS)
        rig.ready()
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert broker.faults.seen(ApiKey.API_VERSIONS) == seen + 1
        assert len(rig.opened) == 2


class TlsAtHeart(WatchedChannel):
    """A client's TLS as far as a port without it lets it come: it sends its first message and waits for the answer."""

    _is_begun = False

    def handshake(self) -> bool:
        if not self._is_begun:
            self._is_begun = True
            self.send([b"\x16\x03\x01\x02\0" + bytes(512)])
        if self.recv_into(memoryview(bytearray(1))) == 0:
            raise EOFError
        return False


@pytest.mark.parametrize(("protocol", "wanted"), [("SSL", "PLAINTEXT"), ("SASL_SSL", "SASL_PLAINTEXT")])
def test_a_client_with_tls_at_a_port_without_it(protocol: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.client.rig.WatchedChannel", TlsAtHeart)
    settings = {**LOGIN, "security.protocol": protocol} if protocol == "SASL_SSL" else {"security.protocol": protocol}
    with EmbeddedBroker() as broker, Rig(broker, settings=settings, open_mechanism=Mechanism().open) as rig:
        error = rejected(rig)
        assert f"{rig.label()} speaks plain text" in error.message
        assert f"Set security.protocol={wanted} " in error.message
        assert len(rig.opened) == 1


def test_a_client_that_does_not_log_in_where_that_is_expected() -> None:
    config = BrokerConfig(sasl_users={USER: PASSWORD}, connection_failed_authentication_delay_ms=10)
    with EmbeddedBroker(config=config) as broker, Rig(broker) as rig:
        rig.metadata.due_in_ms = 0
        error = rejected(rig)
        assert f"{rig.label()} expects a SASL login" in error.message
        assert "Set security.protocol=SASL_PLAINTEXT" in error.message
        assert "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in error.message


def test_a_request_for_metadata_that_is_cut_off_by_a_broker_without_logins_is_asked_again() -> None:
    with EmbeddedBroker() as broker, Rig(broker) as rig:
        rig.metadata.due_in_ms = 0
        broker.faults.cut_before(ApiKey.METADATA)
        rig.poll_until(lambda: rig.client.is_unavailable(1))
        assert not rig.client.rejections
        rig.pass_ms(1_000)
        rig.updated()
