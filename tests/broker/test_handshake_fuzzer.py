"""Fifty thousand hostile handshakes, of TLS and of SASL: nobody gets in, nothing fails that should not, no place is kept."""

from __future__ import annotations

import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.certificates import CertificateAuthority
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.kafka_apis import KafkaApis
from spark_kafka_sink.broker.network.listener import Listener, SecurityProtocol
from spark_kafka_sink.broker.network.request import DecodedRequest, Request, Session, bare_sasl_token, decode
from spark_kafka_sink.broker.network.tls_context import server_context
from spark_kafka_sink.errors import PeerError
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.network.tls_channel import TlsChannel
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.network.client import Client, api_versions_frame, request_frame
from tests.broker.requests import Responses
from tests.broker.rig import Rig
from tests.broker.sasl.scram_client import ScramClient
from tests.broker.unharmed import MEGABYTE, memory_stays, nothing_escapes, threads_stay
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

BURST: Final = 100
MORE: Final = pytest.mark.whole("the same with fewer is in make test")
TLS_BURSTS: Final = [5, pytest.param(250, marks=[MORE, pytest.mark.timeout(300)])]
SASL_BURSTS: Final = [10, pytest.param(300, marks=[MORE, pytest.mark.timeout(300)])]
MEMORY: Final = 150 * MEGABYTE

AUTHORITY = CertificateAuthority()
SEEDS = st.integers(0, 2**64 - 1)

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Cut off, changed in some bytes, grown, doubled, or left as it is."""
    changed = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 5))):
        place = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0:
                del changed[place:]
            case 1:
                changed[place:place] = chance.randbytes(chance.choice((1, 2, 16, 300)))
            case 2:
                changed[place : place + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0"))
            case 3:
                if place < len(changed):
                    changed[place] ^= 1 << chance.randrange(8)
            case _:
                changed += changed[:place]
    return bytes(changed)


# TLS


def hellos() -> list[bytes]:
    """The first bytes of clients of several kinds."""
    found = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cadata=AUTHORITY.certificate)
        context.minimum_version = context.maximum_version = version
        outgoing = ssl.MemoryBIO()
        client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        found.append(outgoing.read())
    return [*found, api_versions_frame(), b"GET / HTTP/1.1\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x28", b""]


def pair(listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection, of which the system keeps nothing when it is closed."""
    client = socket.create_connection(listener.getsockname())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return client, listener.accept()[0]


@pytest.mark.parametrize("bursts", TLS_BURSTS)
def test_no_hello_harms_the_selector(bursts: int) -> None:
    made = AUTHORITY.server(["localhost"])
    config = BrokerConfig(ssl_keystore_key=made.key, ssl_keystore_certificate_chain=made.certificate)
    context, firsts, selector = server_context(config), hellos(), Selector(max_frame_size=1000)
    ends = Counter[str]()

    @given(SEEDS)
    @settings(max_examples=bursts, deadline=None, database=None)
    def burst(seed: int) -> None:
        chance = random.Random(seed)
        with ExitStack() as closing:
            for number in range(BURST):
                client, server = pair(listener)
                closing.enter_context(client)
                selector.register_accepted(number, TlsChannel.accept(server, f"fuzzer:{number}", context))
                client.sendall(mutated(chance.choice(firsts), chance))
                if chance.random() < 0.7:
                    client.shutdown(socket.SHUT_WR)
            for _ in range(3):
                result = selector.poll(0)
                ends.update("closed" for _ in result.disconnected)
                # None of them could know what comes after the server's answer.
                assert (result.connected, result.received) == ([], [])
            for number in range(BURST):
                selector.close_connection(number)
            assert selector.connection_count() == 0

    try:
        with memory_stays(MEMORY), socket.create_server(("127.0.0.1", 0)) as listener:
            burst()
    finally:
        selector.close()
    assert bursts * BURST // 3 < ends["closed"] < bursts * BURST


# SASL

LISTENER: Final = Listener(security_protocol=SecurityProtocol.SASL_SSL)
KEY: Final = "a key that the fuzzer does not know"


# Made once: the salting takes longer than all the rest.
SCRAM = ScramClient("ana", "wrong")
FIRST: Final = SCRAM.first()
FINAL: Final = SCRAM.final(b"r=client-nonceabc,s=c2FsdHNhbHRzYWx0c2FsdA==,i=4096")


def tokens(chance: random.Random) -> bytes:
    """What a client of some mechanism says at some time, wrong in its password at least."""
    return chance.choice(
        (
            b"\0ana\0wrong",
            b"bob\0ana\0secret",
            FIRST,
            FINAL,
            b"n,,\x01auth=Bearer aaaa.bbbb.cccc\x01\x01",
            b"n,a=ana,\x01auth=Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbmEiLCJleHAiOjk5OTk5OTk5OTl9.\x01logicalCluster=x\x01\x01",
            b"\x01",
            b"",
            chance.randbytes(chance.randrange(200)),
        )
    )


def frame(chance: random.Random) -> bytes:
    """One frame without its size: of a login mostly, at its time or not."""
    version = chance.randrange(3)
    match chance.randrange(8):
        case 0 | 1 | 2:
            body = SaslHandshakeRequest(chance.choice((*MECHANISMS, "GSSAPI", "", "plain")))
            return request_frame(ApiKey.SASL_HANDSHAKE, min(version, 1), body)[4:]
        case 3 | 4 | 5:
            return request_frame(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(tokens(chance)))[4:]
        case 6:
            return tokens(chance)
        case _:
            return chance.choice((api_versions_frame()[4:], request_frame(ApiKey.METADATA, 12, MetadataRequest(None))[4:]))


def decoded(data: bytes, session: Session, apis: KafkaApis) -> DecodedRequest | None:
    """None for one that closes its connection."""
    try:
        return bare_sasl_token(memoryview(data)) if session.has_bare_sasl_tokens else decode(memoryview(data), apis.served)
    except PeerError:
        return None


SERVED: Final = Counter[str]()


@pytest.fixture
def apis() -> Iterator[Callable[[Sequence[bytes]], Session]]:
    """Gives a function that serves the frames of one connection, until it is closed, and returns what became of it."""
    config: dict[str, Any] = {"sasl_users": {"ana": "secret"}, "sasl_mechanisms": MECHANISMS, "oauthbearer_key": KEY}
    with Rig(**config, connection_failed_authentication_delay_ms=0) as rig:
        made = KafkaApis(rig.services())

        def serve(frames: Sequence[bytes]) -> Session:
            session = Session("127.0.0.1", 1)
            for data in frames:
                found = decoded(data, session, made)
                if found is None:
                    break
                SERVED[found.api.name] += 1
                responses = Responses()
                made.handle(Request(found, session, LISTENER, responses.sent.append))
                rig.timer.advance(1)
                (response,) = responses.sent
                if response.announced is not None or not response.buffers:
                    break  # the last one on its connection
            return session

        yield serve


@pytest.mark.parametrize("bursts", SASL_BURSTS)
def test_no_frames_log_anybody_in(apis: Callable[[Sequence[bytes]], Session], bursts: int) -> None:
    @given(SEEDS)
    @settings(max_examples=bursts, deadline=None, database=None)
    def burst(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(BURST):
            frames = [frame(chance) for _ in range(chance.randrange(1, 6))]
            session = apis([each if chance.random() < 0.5 else mutated(each, chance) for each in frames])
            assert (session.is_authenticated, session.principal) == (False, "User:ANONYMOUS")

    SERVED.clear()
    with nothing_escapes(), memory_stays(MEMORY):
        burst()
    # A fuzzer whose logins are refused at the door finds nothing.
    assert min(SERVED["SASL_HANDSHAKE"], SERVED["SASL_AUTHENTICATE"]) > bursts * BURST // 5, SERVED


# Over sockets


def test_no_handshake_harms_another_connection() -> None:
    config = BrokerConfig(num_network_threads=1, sasl_users={"ana": "secret"}, connection_failed_authentication_delay_ms=0)
    context = ssl.create_default_context(cadata=AUTHORITY.certificate)
    chance, firsts = random.Random(7), hellos()
    with EmbeddedBroker(tls=AUTHORITY, config=config) as broker, nothing_escapes(), threads_stay(), ExitStack() as closing:
        port = int(broker.bootstrap_servers.rsplit(":", 1)[1])
        bystander = closing.enter_context(Client(port))
        bystander.socket = closing.enter_context(context.wrap_socket(bystander.socket, server_hostname="localhost"))
        for _ in range(30):
            with Client(port) as hostile:
                hostile.send(mutated(chance.choice(firsts), chance))
            with Client(port) as hostile:
                hostile.socket = context.wrap_socket(hostile.socket, server_hostname="localhost")
                data = mutated(frame(chance), chance)
                hostile.send(len(data).to_bytes(4) + data)
                hostile.close()
            assert bystander.api_versions().error_code == 0
        wait_until(lambda: connections(broker) == 1)


def connections(broker: EmbeddedBroker) -> int:
    snapshot = broker.server(1).snapshot()
    assert snapshot is not None
    return snapshot.connections
