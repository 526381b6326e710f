"""A NetworkClient with a clock and metadata that a test sets by hand; its sockets are real."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.connection_states import Resolver, resolve
from spark_kafka_sink.client.metadata import Metadata, MetadataRequestAndVersion
from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.config import ProducerConfig, producer_config
from spark_kafka_sink.protocol.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from spark_kafka_sink.protocol.messages import RequestHeader
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.client.scripted_broker import Connection, ScriptedBroker, versions

NOTHING_DUE = 2**31
DEADLINE_S = 5.0
NO_SETTINGS: Mapping[str, object] = {}


class Clock:
    """Milliseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class HandMetadata(Metadata):
    """Metadata that is due when a test says so, and notes what it is told."""

    def __init__(self, config: ProducerConfig, *nodes: Node) -> None:
        super().__init__(config)
        self.known: dict[int, Node] = {node.id: node for node in nodes}
        self.due_in_ms = NOTHING_DUE
        self.updates: list[tuple[MetadataRequestAndVersion, MetadataResponse, str]] = []
        self.failures: list[tuple[str, str]] = []
        self.requested = 0
        self.asked: tuple[str, str] | None = None  # the broker asked last, and how it stood

    def nodes(self) -> Mapping[int, Node]:
        return self.known

    def time_to_next_update_ms(self, now_ms: int) -> int:
        return self.due_in_ms

    def next_request(self, now_ms: int) -> MetadataRequestAndVersion:
        return MetadataRequestAndVersion(lambda version: MetadataRequest(topics=[]), self.requested, False)

    def asking(self, node_label: str, state: str) -> None:
        self.asked = (node_label, state)

    def update(self, request: MetadataRequestAndVersion, response: MetadataResponse, node_label: str, now_ms: int) -> bool:
        self.updates.append((request, response, node_label))
        if response.error_code or not response.brokers:
            return False
        self.due_in_ms = NOTHING_DUE
        self.known = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        return True

    def rebootstrap(self) -> None:
        self.known = {}

    def failed_attempt(self, node_label: str, error: str, now_ms: int) -> None:
        self.failures.append((node_label, error))

    def request_update(self) -> int:
        self.requested += 1
        return self.requested


class Rig:
    """A client of `brokers` (node ids from 1), which are also its bootstrap servers. `known`: metadata has them already."""

    def __init__(
        self,
        *brokers: ScriptedBroker,
        resolver: Resolver = resolve,
        known: bool = True,
        settings: Mapping[str, object] = NO_SETTINGS,
    ) -> None:
        self.clock = Clock()
        nodes = [Node(number, broker.host, broker.port) for number, broker in enumerate(brokers, start=1)]
        servers = {"bootstrap.servers": ",".join(broker.server for broker in brokers)}
        config = producer_config(servers | dict(settings))
        self.metadata = HandMetadata(config, *(nodes if known else ()))
        self.client = NetworkClient(config, self.metadata, clock=self.clock, resolver=resolver, rng=random.Random(7))

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    def pass_ms(self, ms: int) -> None:
        self.clock.now_ms += ms

    def poll(self, timeout_ms: int = 0) -> list[ClientResponse]:
        return self.client.poll(timeout_ms, self.now_ms)

    def poll_until(self, reached: Callable[[], object]) -> list[ClientResponse]:
        """Polls, without the clock going on, until `reached()`; returns all responses meanwhile."""
        responses: list[ClientResponse] = []
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < deadline, "it did not come about in 5 s"
            responses += self.poll(20)
        return responses

    def responses(self, count: int = 1) -> list[ClientResponse]:
        """Polls until there are this many responses."""
        found: list[ClientResponse] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} responses came in 5 s"
            found += self.poll(20)
        return found

    def receive(self, connection: Connection) -> tuple[RequestHeader, Any]:
        """Polls until the client has sent something on this connection, and receives it there."""
        self.poll_until(connection.has_bytes)
        return connection.receive()

    def ready(self, node_id: int = 1) -> bool:
        return self.client.ready(node_id, self.now_ms)

    def connecting(self, broker: ScriptedBroker, node_id: int = 1) -> Connection:
        """Connected, and ApiVersions asked for and not answered."""
        self.ready(node_id)
        connection = broker.accept()
        self.poll_until(connection.has_bytes)
        return connection

    def connected(
        self, broker: ScriptedBroker, node_id: int = 1, ranges: Mapping[int, tuple[int, int]] | None = None
    ) -> Connection:
        """Ready for requests."""
        connection = self.connecting(broker, node_id)
        connection.answer_versions(ranges)
        self.poll_until(lambda: self.ready(node_id))
        return connection


# Asking for metadata, step by step


def cluster(*brokers: ScriptedBroker) -> MetadataResponse:
    listed = enumerate(brokers, start=1)
    return MetadataResponse(brokers=[MetadataResponseBroker(node_id=n, host=b.host, port=b.port) for n, b in listed])


def called(rig: Rig, *brokers: ScriptedBroker) -> ScriptedBroker:
    """Polls until the client connects to one of these; which one."""
    before = [len(broker.connections) for broker in brokers]
    rig.poll_until(lambda: any(broker.has_caller() for broker in brokers))
    return next(broker for broker, count in zip(brokers, before, strict=True) if len(broker.connections) > count)


def agreed(rig: Rig, connection: Connection) -> None:
    """Lets a connection that was accepted come to agree on versions."""
    header, _ = rig.receive(connection)
    connection.answer(header, versions())
    rig.poll_until(lambda: rig.client.in_flight_count() == 0)


def asked(rig: Rig, connection: Connection) -> None:
    """Receives a request for metadata and leaves it unanswered."""
    _, body = rig.receive(connection)
    assert isinstance(body, MetadataRequest)


def answered(rig: Rig, connection: Connection, response: MetadataResponse) -> None:
    header, body = rig.receive(connection)
    assert isinstance(body, MetadataRequest)
    before = len(rig.metadata.updates)
    connection.answer(header, response)
    assert rig.poll_until(lambda: len(rig.metadata.updates) > before) == []


# InitProducerId, where any request will do

REQUEST_TIMEOUT_MS = 30_000


def send(rig: Rig, tag: object = None, node_id: int = 1, **options: Any) -> None:
    rig.client.send(node_id, INIT_PRODUCER_ID, InitProducerIdRequest(), rig.now_ms, tag=tag, **options)
    rig.poll()


def sent(rig: Rig, count: int) -> None:
    for tag in range(count):
        send(rig, tag)


def answer(connection: Connection, producer_id: int = 0, **options: Any) -> RequestHeader:
    header, body = connection.receive()
    assert isinstance(body, InitProducerIdRequest)
    connection.answer(header, InitProducerIdResponse(producer_id=producer_id), **options)
    return header


def errors(responses: list[ClientResponse]) -> set[type | None]:
    return {type(response.error) if response.error else None for response in responses}
