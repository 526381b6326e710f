"""A hundred thousand hostile frames: the broker lives, its other connections do not notice, its memory stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.kafka_apis import KafkaApis
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.broker.network.request import DecodedRequest, Request, Session, decode
from spark_kafka_sink.errors import PeerError
from spark_kafka_sink.protocol.messages import decode_response
from tests.broker.hostile_frames import MUTATION_SIZE, TOPIC, mutated, mutations, templates
from tests.broker.network.client import Client, api_versions_frame, framed
from tests.broker.requests import Responses
from tests.broker.unharmed import MEGABYTE, connections, memory_stays, nothing_escapes, threads_stay
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

BURST = 100
BURSTS_TO_HANDLERS, BURSTS_OVER_SOCKETS = 800, 200
assert BURST * (BURSTS_TO_HANDLERS + BURSTS_OVER_SOCKETS) >= 100_000

NOISE = st.binary(min_size=BURST * MUTATION_SIZE, max_size=BURST * MUTATION_SIZE)

MEMORY = 150 * MEGABYTE
"""What the process may grow by, hypothesis and what the broker is legally made to keep (topics, records) included."""

HELD_S = 0.05
"""How long an answer is waited for that may be held: a long poll, a rebalance."""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BrokerConfig(num_network_threads=2)) as broker:
        broker.create_topic(TOPIC, partitions=2)
        yield broker


def decoded(frame: bytes, apis: KafkaApis) -> DecodedRequest | None:
    """None for one that closes its connection."""
    try:
        return decode(memoryview(frame), apis.served)
    except PeerError:
        return None


def test_no_frame_makes_a_handler_fail(broker: EmbeddedBroker) -> None:
    apis = broker.server(1).apis
    requests, read = templates(apis.served), Counter[str]()

    @given(NOISE)
    @settings(max_examples=BURSTS_TO_HANDLERS, deadline=None)
    def burst(noise: bytes) -> None:
        for mutation in mutations(noise):
            found = decoded(mutated(requests, mutation), apis)
            if found is not None:
                read[found.api.name] += 1
                handle(apis, found)

    with nothing_escapes(), threads_stay(), memory_stays(MEMORY):
        burst()
    # Every API had its share: a fuzzer whose frames are refused at the door finds nothing.
    assert {apis.served[key].name for key in apis.served} == set(read)
    assert sum(read.values()) > BURST * BURSTS_TO_HANDLERS // 5


def handle(apis: KafkaApis, found: DecodedRequest) -> None:
    responses = Responses()
    apis.handle(Request(found, Session("127.0.0.1", 1), Listener(), responses.sent.append))
    # Whatever was asked, the answer is one that the client can read.
    for correlation_id, _ in responses.answers():
        assert correlation_id == found.header.correlation_id
    assert len(responses.sent) <= 1


@pytest.mark.whole("20 s")
def test_no_frame_harms_another_connection(broker: EmbeddedBroker) -> None:
    server = broker.server(1)
    apis, requests = server.apis, templates(server.apis.served)

    @given(NOISE)
    @settings(max_examples=BURSTS_OVER_SOCKETS, deadline=None)
    def burst(noise: bytes) -> None:
        frames = [mutated(requests, mutation) for mutation in mutations(noise)]
        served = [(frame, found) for frame in frames if (found := decoded(frame, apis)) is not None]
        pipeline(server.port, served)
        break_off(server.port, [frame for frame in frames if decoded(frame, apis) is None])
        assert bystander.api_versions() == expected

    with nothing_escapes(), threads_stay(), memory_stays(MEMORY), Client(server.port) as bystander:
        expected = bystander.api_versions()
        burst()
        wait_until(lambda: connections(broker) == 1)


def pipeline(port: int, requests: list[tuple[bytes, DecodedRequest]]) -> None:
    """All on one connection, at once. What comes back answers them in turn, until one closes the connection or is held."""
    with Client(port) as client:
        client.send(b"".join(framed(frame) for frame, _ in requests))
        client.socket.settimeout(HELD_S)
        expected = [found for _, found in requests if getattr(found.body, "acks", None) != 0]
        for found in expected:
            try:
                answer = client.receive()
            except (TimeoutError, EOFError, ConnectionResetError):
                return
            correlation_id, _ = decode_response(found.api, found.version, answer)
            assert correlation_id == found.header.correlation_id


def break_off(port: int, frames: list[bytes]) -> None:
    """Each on a connection of its own, behind a request that is answered; then that connection is closed, and it alone."""
    with ExitStack() as closing:
        clients = [closing.enter_context(Client(port)) for _ in frames]
        for client, frame in zip(clients, frames, strict=True):
            client.send(api_versions_frame() + framed(frame))
        for client in clients:
            assert client.receive()
            assert client.is_closed_by_broker()
