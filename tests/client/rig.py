"""A NetworkClient of embedded brokers, with a clock and metadata that a test sets by hand, and channels that show their bytes."""

from __future__ import annotations

import random
import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.faults.effects import Change
from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.connection_states import Resolver
from spark_kafka_sink.client.metadata import Metadata, MetadataRequestAndVersion
from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.network.channel import Address, Buffer, PlainChannel, resolve
from spark_kafka_sink.options.producer_options import ProducerConfig, producer_config
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.apis.metadata import ApiVersion, ApiVersionsResponse, MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.apis.produce import INIT_PRODUCER_ID, InitProducerIdRequest
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import RequestHeader, decode_request, encode_response
from spark_kafka_sink.security.sasl.mechanism import OpenMechanism
from tests.waiting import DEADLINE_S, until

NOTHING_DUE = 2**31
REQUEST_TIMEOUT_MS = 30_000
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

    def rejected(self, node_label: str, error: AuthenticationError, now_ms: int) -> bool:
        self.failures.append((node_label, error.message))
        return True

    def request_update(self) -> int:
        self.requested += 1
        return self.requested


class WatchedChannel(PlainChannel):
    """A TCP connection that keeps what it sends and lets a test change what comes and goes.

    port: where it leads. change: makes other bytes of those that came together. room: how many bytes it takes before it is full.
    send_error, receive_error: what the next ones fail with.
    """

    def __init__(self, sock: socket.socket, peer: str) -> None:
        super().__init__(sock, peer)
        self.port = int(peer.rpartition(":")[2])
        self.change: Callable[[bytes], bytes] | None = None
        self.room: int | None = None
        self.send_error: OSError | None = None
        self.receive_error: OSError | None = None
        self._sent = bytearray()
        self._pending = bytearray()

    @property
    def is_closed(self) -> bool:
        return self.fileno() == -1

    def waits_to_be_read(self) -> bool:
        """Waits until something has come."""
        return bool(select.select([self], [], [], DEADLINE_S)[0])

    def requests(self) -> list[tuple[RequestHeader, Any]]:
        """Those that are wholly sent."""
        found, start = [], 0
        while len(self._sent) >= start + 4 and len(self._sent) >= (end := start + 4 + _size(self._sent, start)):
            found.append(decode_request(bytes(self._sent[start + 4 : end]), ALL_APIS))
            start = end
        return found

    def recv_into(self, buffer: memoryview) -> int | None:
        if self.receive_error is not None:
            raise self.receive_error
        if not self._pending:
            if self.change is None:
                return super().recv_into(buffer)
            came = bytearray(1 << 16)
            count = super().recv_into(memoryview(came))
            if not count:
                return count
            self._pending += self.change(bytes(came[:count]))
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        del self._pending[:size]
        return size

    def has_buffered_bytes(self) -> bool:
        return bool(self._pending)

    def send(self, buffers: Sequence[Buffer]) -> int:
        if self.send_error is not None:
            raise self.send_error
        if self.room is not None:
            buffers = [b"".join(buffers)[: self.room]]
        taken = super().send(buffers) if any(map(len, buffers)) else 0
        self.room = None if self.room is None else self.room - taken
        self._sent += b"".join(buffers)[:taken]
        return taken


def _size(data: bytearray, start: int) -> int:
    (size,) = struct.unpack_from(">i", data, start)
    return int(size)


class Rig:
    """A client of one cluster's brokers.

    bootstrap: the brokers that are its bootstrap servers, all by default. known: those that metadata has already, which are the
    bootstrap servers by default.
    """

    def __init__(
        self,
        broker: EmbeddedBroker,
        *,
        bootstrap: Sequence[int] | None = None,
        known: Sequence[int] | None = None,
        resolver: Resolver = resolve,
        settings: Mapping[str, object] = NO_SETTINGS,
        open_mechanism: OpenMechanism | None = None,
    ) -> None:
        self.clock = Clock()
        self.broker = broker
        self.opened: list[WatchedChannel] = []
        self.change: Callable[[bytes], bytes] | None = None  # of channels that are opened from now on
        self._early: list[ClientResponse] = []  # that came while a request was sent
        bootstrap = broker.broker_ids if bootstrap is None else bootstrap
        servers = {"bootstrap.servers": ",".join(map(broker.address, bootstrap))}
        config = producer_config(servers | dict(settings))
        self.metadata = HandMetadata(config, *map(self.node, bootstrap if known is None else known))
        self.client = NetworkClient(
            config,
            self.metadata,
            clock=self.clock,
            resolver=resolver,
            open_channel=self._open,
            open_mechanism=open_mechanism,
            rng=random.Random(7),
        )

    def _open(self, address: Address, *, host: str, port: int, send_buffer: int, receive_buffer: int) -> WatchedChannel:
        channel = WatchedChannel.connect(address, send_buffer=send_buffer, receive_buffer=receive_buffer)
        channel.change = self.change
        self.opened.append(channel)
        return channel

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def node(self, node_id: int) -> Node:
        """A broker as metadata has it."""
        host, _, port = self.broker.address(node_id).rpartition(":")
        return Node(node_id, host, int(port))

    def label(self, node_id: int = 1) -> str:
        return f"broker {node_id} ({self.broker.address(node_id)})"

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    def pass_ms(self, ms: int) -> None:
        self.clock.now_ms += ms

    def poll(self, timeout_ms: int = 0) -> list[ClientResponse]:
        return self.client.poll(timeout_ms, self.now_ms)

    def poll_until(self, reached: Callable[[], object]) -> list[ClientResponse]:
        """Polls, without the clock going on, until `reached()`; returns all responses meanwhile."""
        responses, self._early = self._early, []
        if not reached():
            until(lambda: responses.extend(self.poll(20)), lambda _: reached(), "it did not come about")
        return responses

    def responses(self, count: int = 1) -> list[ClientResponse]:
        """Polls until there are this many responses."""
        found, self._early = self._early, []
        if len(found) < count:
            until(lambda: found.extend(self.poll(20)), lambda _: len(found) >= count, f"{count} responses")
        return found

    def ready(self, node_id: int = 1) -> bool:
        return self.client.ready(node_id, self.now_ms)

    def connecting(self, node_id: int = 1) -> WatchedChannel:
        """Connected, and ApiVersions asked for; where that is held it is not answered."""
        self.ready(node_id)
        channel = self.opened[-1]
        self.poll_until(channel.requests)
        return channel

    def connected(self, node_id: int = 1) -> WatchedChannel:
        """Ready for requests."""
        self.ready(node_id)
        channel = self.opened[-1]
        self.poll_until(lambda: self.ready(node_id))
        return channel

    def called(self, *node_ids: int) -> int:
        """Polls until the client connects to one of these; returns which."""
        ports = {self.node(node_id).port: node_id for node_id in node_ids}
        before = len(self.opened)
        self.poll_until(lambda: any(channel.port in ports for channel in self.opened[before:]))
        return next(ports[channel.port] for channel in self.opened[before:] if channel.port in ports)

    def has_called(self, node_id: int) -> bool:
        """Whether there ever was a connection to this broker, or an attempt at one."""
        return any(channel.port == self.node(node_id).port for channel in self.opened)

    def asked(self, node_id: int = 1, times: int = 1) -> Fault:
        """Polls until this broker got a request for metadata; it stays unanswered until what is returned is removed."""
        held = self.broker.faults.hold(ApiKey.METADATA, broker=node_id, times=times)
        self.poll_until(lambda: held.hits == times)
        return held

    def updated(self) -> MetadataResponse:
        """Polls until the next answer to a request for metadata, and returns it."""
        before = len(self.metadata.updates)
        assert self.poll_until(lambda: len(self.metadata.updates) > before) == []
        return self.metadata.updates[-1][1]

    # InitProducerId, where any request will do

    def send(self, tag: object = None, node_id: int = 1, **options: Any) -> None:
        self.client.send(node_id, INIT_PRODUCER_ID, InitProducerIdRequest(), self.now_ms, tag=tag, **options)
        self._early += self.poll()

    def send_held(self, count: int = 1) -> Fault:
        """Sends requests with the tags 0, 1, ..., which are answered when what is returned is removed."""
        held = self.broker.faults.hold(ApiKey.INIT_PRODUCER_ID, times=None)
        for tag in range(count):
            self.send(tag)
        self.poll_until(lambda: held.hits)
        return held


def errors(responses: list[ClientResponse]) -> set[type | None]:
    return {type(response.error) if response.error else None for response in responses}


def naming(*node_ids: int) -> Change:
    """Leaves out of an answer to Metadata all brokers but these."""

    def change(_request: Message, answer: MetadataResponse) -> MetadataResponse:
        return replace(answer, brokers=[broker for broker in answer.brokers if broker.node_id in node_ids])

    return change


def speaking(ranges: Mapping[int, tuple[int, int]]) -> Change:
    """Changes the versions in an answer to ApiVersions to these."""
    return lambda _request, answer: replace(answer, api_keys=versions(ranges).api_keys)


def versions(ranges: Mapping[int, tuple[int, int]], error_code: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()]
    return ApiVersionsResponse(error_code=error_code, api_keys=keys)


def answer_bytes(api: Api[Any, Any], body: Message, correlation_id: int, version: int | None = None) -> bytes:
    """The frame of an answer."""
    return frame(b"".join(encode_response(api, api.max_version if version is None else version, correlation_id, body)))


def frame(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message
