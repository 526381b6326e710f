"""The connections to a cluster's brokers: makes and ends them, sends requests on them, and pairs responses with requests."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from spark_kafka_sink.client.api_versions import (
    FinalizedFeatures,
    NodeApiVersions,
    api_versions_request,
    fallback_version,
    node_api_versions,
)
from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.connection_states import ClusterConnectionStates, Resolver, resolve
from spark_kafka_sink.client.in_flight import ClientResponse, InFlightRequest, InFlightRequests
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import BrokerError, DisconnectedError, PeerError, ProtocolError
from spark_kafka_sink.network.channel import Address, Channel, PlainChannel
from spark_kafka_sink.network.selector import PollResult, Selector
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.api_versions import API_VERSIONS, ApiVersionsResponse
from spark_kafka_sink.protocol.error_codes import error_facts
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import decode_response, encode_request

MAX_RESPONSE_BYTES: Final = 100 * 1024 * 1024
"""The same limit as librdkafka's receive.message.max.bytes; a Metadata answer for 100,000 partitions is under 10 MB."""

CLIENT_THROTTLES_SINCE: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 6,
    ApiKey.METADATA: 6,
    ApiKey.API_VERSIONS: 2,
    ApiKey.INIT_PRODUCER_ID: 1,
}
"""The versions since which a broker answers at once and expects the client to wait (KIP-219); before, it waited itself."""

_CORRELATION_ID: Final = struct.Struct(">i")

_NEGOTIATION: Final = object()
"""The tag of the ApiVersions requests that are made here."""

Body = Message | Callable[[int], Message]
"""A request's message, or a function that makes it for the version agreed on."""


class OpenChannel(Protocol):
    """Begins to connect. Raises OSError if that fails at once."""

    def __call__(self, address: Address, *, send_buffer: int, receive_buffer: int) -> Channel: ...


@dataclass(frozen=True, slots=True)
class LostConnection:
    """A connection that ended or could not be made. `idle`: closed by this client, because it was not used."""

    label: str
    error: PeerError
    idle: bool


@dataclass(slots=True)
class PollEvents:
    """The events of one poll, in order. Requests in flight on a lost connection have their responses here."""

    responses: list[ClientResponse] = field(default_factory=list)
    lost: list[LostConnection] = field(default_factory=list)


class Connections:
    """One connection for each node id. Owned by one thread, but for `wakeup`; times are monotonic ms from `clock`."""

    def __init__(
        self,
        config: ProducerConfig,
        clock: Callable[[], int],
        *,
        resolver: Resolver = resolve,
        open_channel: OpenChannel = PlainChannel.connect,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._open_channel = open_channel
        self._rng = rng or random.Random()
        self.states = ClusterConnectionStates(config, resolver=resolver, rng=self._rng)
        self.in_flight = InFlightRequests(config.max_in_flight)
        idle_ms = config.connections_max_idle_ms
        self._selector = Selector(max_frame_size=MAX_RESPONSE_BYTES, max_idle_ms=idle_ms, clock=clock)
        self.versions: dict[int, NodeApiVersions] = {}  # of each node that can_send
        self.features = FinalizedFeatures()
        self._labels: dict[int, str] = {}
        self.failures: dict[int, str] = {}  # the reason why each node that is not connected was lost or not reached
        self._correlation_id = -1
        self.wakeup = self._selector.wakeup
        self.connection_count = self._selector.connection_count
        self.take_counts = self._selector.take_counts

    def close(self) -> None:
        """Closes every connection and forgets what was in flight."""
        self._selector.close()
        for node_id in self._labels:
            self.in_flight.clear(node_id)

    # Queries

    def label(self, node_id: int) -> str:
        """Returns a node's name for people."""
        return self._labels.get(node_id, f"broker {node_id}")

    def can_send(self, node_id: int, now_ms: int) -> bool:
        ready = self.states.is_ready(node_id, now_ms) and self._selector.can_send(node_id)
        return ready and self.in_flight.can_send_more(node_id)

    def least_loaded(self, node_ids: Iterable[int], now_ms: int) -> int | None:
        """Returns the ready node with the fewest requests, else one being connected to, else the one tried longest ago.

        Chooses among equals at random. Returns None while back-off leaves none.
        """
        nodes = list(node_ids)
        self._rng.shuffle(nodes)
        ranks = {node_id: rank for node_id in nodes if (rank := self._rank(node_id, now_ms))}
        return min(ranks, key=ranks.__getitem__, default=None)

    def _rank(self, node_id: int, now_ms: int) -> tuple[int, int] | None:
        if self.can_send(node_id, now_ms):
            return 1, self.in_flight.count(node_id)
        if self.states.is_preparing(node_id):
            return 2, 0
        if self.states.can_connect(node_id, now_ms):
            return 3, self.states.attempted_ms(node_id)
        return None

    # Actions

    def connect(self, node: Node, now_ms: int) -> LostConnection | None:
        """Begins to connect. Returns the lost connection if that failed at once."""
        address_text = f"{node.host}:{node.port}"
        self._labels[node.id] = f"bootstrap server {address_text}" if node.id < 0 else str(node)
        sizes = {"send_buffer": self._config.send_buffer_bytes, "receive_buffer": self._config.receive_buffer_bytes}
        try:
            address = self.states.connecting(node.id, node.host, node.port, now_ms)
            self._selector.register(node.id, self._open_channel(address, **sizes))
        except OSError as error:
            self.states.disconnected(node.id, now_ms)
            text = f"could not connect to {address_text}: {error.strerror or error}"
            self.failures[node.id] = text
            return LostConnection(self.label(node.id), DisconnectedError(text), idle=False)
        return None

    def send(
        self,
        node_id: int,
        api: AnyApi,
        body: Body,
        now_ms: int,
        *,
        tag: object,
        expects_answer: bool = True,
        timeout_ms: int | None = None,
        max_version: int | None = None,
        version: int | None = None,
    ) -> None:
        """Sends to a node that `can_send`, in the highest version that both support unless `version` is given.

        Raises UnsupportedVersionError, also if the version cannot carry the message.
        """
        if version is None:
            version = self.versions[node_id].usable(api, max_version)
        message = body(version) if callable(body) else body
        correlation_id = self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._selector.send(node_id, encode_request(api, version, correlation_id, self._config.client_id, message))
        timeout_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        self.in_flight.add(
            InFlightRequest(
                node_id=node_id,
                correlation_id=correlation_id,
                api=api,
                version=version,
                tag=tag,
                expects_answer=expects_answer,
                sent_ms=now_ms,
                timeout_ms=timeout_ms,
                deadline_ms=now_ms + timeout_ms,
            )
        )

    def poll(self, timeout_ms: int, now_ms: int) -> tuple[PollEvents, int]:
        """Sends and receives, waiting at most `timeout_ms`. Returns the events and the time at which they were seen."""
        deadlines = (*self.states.setup_deadlines().values(), self.in_flight.next_deadline_ms())
        until_deadline_ms = min((deadline - now_ms for deadline in deadlines if deadline is not None), default=timeout_ms)
        result = self._selector.poll(max(0, min(timeout_ms, until_deadline_ms)))
        now_ms = self._clock()
        events = PollEvents()
        for node_id in result.sent:
            unanswered = self.in_flight.sent(node_id)
            if unanswered is not None:
                events.responses.append(unanswered.response(None, None, now_ms))
        self._handle_received(result, now_ms, events)
        for lost in result.disconnected:
            # It may have been given up just now because of its last response.
            if not self.states.is_disconnected(lost.connection_id):
                self._disconnect(lost.connection_id, lost.error, now_ms, events, idle=lost.idle)
        for node_id in result.connected:
            self.states.checking_api_versions(node_id)
            self._ask_versions(node_id, API_VERSIONS.max_version, now_ms)
        self._handle_timeouts(now_ms, events)
        return events, now_ms

    # Events of the selector

    def _handle_received(self, result: PollResult, now_ms: int, events: PollEvents) -> None:
        for node_id, frame in result.received:
            try:
                request, body = self._decode(node_id, frame)
            except ProtocolError as error:
                self._disconnect(node_id, error, now_ms, events)
                continue
            self.in_flight.answered(node_id)
            self._throttle(request, body, now_ms)
            if request.tag is _NEGOTIATION:
                self._api_versions_answered(request, body, now_ms, events)
            else:
                events.responses.append(request.response(body, None, now_ms))

    def _decode(self, node_id: int, frame: memoryview) -> tuple[InFlightRequest, Message]:
        try:
            request = self.in_flight.awaiting(node_id)
            if len(frame) >= 4 and (found := _CORRELATION_ID.unpack_from(frame)[0]) != request.correlation_id:
                raise ProtocolError(f"correlation id {found} where {request.correlation_id} ({request.api.name}) was due")
            return request, decode_response(request.api, request.version, frame)[1]
        except ProtocolError as error:
            raise ProtocolError(f"{self.label(node_id)}: {error.message}", **error.facts) from error

    def _throttle(self, request: InFlightRequest, body: Message, now_ms: int) -> None:
        throttle_ms: int = getattr(body, "throttle_time_ms", 0)
        self._selector.counts.throttled(throttle_ms)
        if throttle_ms > 0 and request.version >= CLIENT_THROTTLES_SINCE.get(request.api.key, 0):
            self.in_flight.prolong(request.node_id, throttle_ms)
            self.states.throttle(request.node_id, now_ms + throttle_ms)

    def _disconnect(self, node_id: int, error: PeerError, now_ms: int, events: PollEvents, *, idle: bool = False) -> None:
        """Ends a connection. Everything in flight on it fails with `error`, because no response can come any more."""
        self._selector.close_connection(node_id)
        if idle:
            self.states.remove(node_id)
        else:
            self.states.disconnected(node_id, now_ms)
            self.failures[node_id] = error.message
        failed = (request for request in self.in_flight.clear(node_id) if request.tag is not _NEGOTIATION)
        events.responses.extend(request.response(None, error, now_ms) for request in failed)
        events.lost.append(LostConnection(self.label(node_id), error, idle))

    def close_all(self, error: PeerError, now_ms: int) -> list[ClientResponse]:
        """Ends every connection, made or being made. Returns the responses of what was in flight, which fails with `error`."""
        events = PollEvents()
        for node_id in self.states.open_nodes():
            self._disconnect(node_id, error, now_ms, events)
        return events.responses

    def _handle_timeouts(self, now_ms: int, events: PollEvents) -> None:
        for node_id, deadline_ms in self.states.setup_deadlines().items():
            if deadline_ms <= now_ms:
                waited = f"{self.states.setup_timeout_ms(node_id):,} ms (socket.connection.setup.timeout.ms)"
                text = f"could not connect to {self.label(node_id)} within {waited}"
                self._disconnect(node_id, DisconnectedError(text, timed_out=True), now_ms, events)
        for request in self.in_flight.timed_out(now_ms):
            text = f"{self.label(request.node_id)} did not answer {request.api.name} within {request.timeout_ms:,} ms"
            self._disconnect(request.node_id, DisconnectedError(text, timed_out=True), now_ms, events)

    # Agreeing on versions

    def _ask_versions(self, node_id: int, version: int, now_ms: int) -> None:
        self.send(node_id, API_VERSIONS, api_versions_request(), now_ms, tag=_NEGOTIATION, version=version)

    def _api_versions_answered(self, request: InFlightRequest, body: Message, now_ms: int, events: PollEvents) -> None:
        assert isinstance(body, ApiVersionsResponse)
        label = self.label(request.node_id)
        retry = fallback_version(request.version, body)
        if retry is not None:
            self._ask_versions(request.node_id, retry, now_ms)
        elif body.error_code:
            name = error_facts(body.error_code).name
            error = BrokerError(f"{label} refused ApiVersions: {name}", error_code=body.error_code, error=name)
            self._disconnect(request.node_id, error, now_ms, events)
        else:
            self.versions[request.node_id] = node_api_versions(label, body)
            self.features.update(body, request.node_id)
            self.states.ready(request.node_id)
            self.failures.pop(request.node_id, None)
