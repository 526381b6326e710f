"""The connections to a cluster's brokers: made, kept apart by node, given requests, and ended; pairs answers with requests."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from spark_kafka_sink.client.addresses import Resolver, resolve
from spark_kafka_sink.client.api_versions import (
    FinalizedFeatures,
    NodeApiVersions,
    api_versions_request,
    fallback_version,
    node_api_versions,
)
from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.connection_states import ClusterConnectionStates
from spark_kafka_sink.client.in_flight import InFlightRequest, InFlightRequests
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
"""As librdkafka's receive.message.max.bytes; a Metadata answer for 100,000 partitions is under 10 MB."""

CLIENT_THROTTLES_SINCE: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 6,
    ApiKey.METADATA: 6,
    ApiKey.API_VERSIONS: 2,
    ApiKey.INIT_PRODUCER_ID: 1,
}
"""The versions from which on a broker answers at once and expects the client to wait (KIP-219); before, it waited itself."""

NO_DEADLINE: Final = 2**63 - 1

_CORRELATION_ID: Final = struct.Struct(">i")

_NEGOTIATION: Final = object()
"""The tag of the requests that are made here."""

Body = Message | Callable[[int], Message]


class OpenChannel(Protocol):
    """Begins to connect; raises OSError when that fails at once."""

    def __call__(self, address: Address, *, send_buffer: int, receive_buffer: int) -> Channel: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request. Without an error `body` is the answer, or None where none was expected."""

    request: InFlightRequest
    body: Message | None
    error: PeerError | None


@dataclass(frozen=True, slots=True)
class Lost:
    """A connection that ended, or could not be made. `idle`: closed by us, because nobody used it."""

    label: str
    error: PeerError
    idle: bool


@dataclass(slots=True)
class Happened:
    """What a poll brought, in order. What was in flight on a lost connection is among the outcomes."""

    outcomes: list[Outcome] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)


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
        self._versions: dict[int, NodeApiVersions] = {}
        self.features = FinalizedFeatures()
        self._labels: dict[int, str] = {}
        self.failures: dict[int, str] = {}  # why each node that is not connected was lost, or could not be reached
        self._correlation_id = -1
        self.wakeup = self._selector.wakeup
        self.connection_count = self._selector.connection_count
        self.take_counts = self._selector.take_counts

    def close(self) -> None:
        """Close every connection, and forget what was in flight."""
        self._selector.close()
        for node_id in self._labels:
            self.in_flight.clear(node_id)

    # Asked

    def label(self, node_id: int) -> str:
        """A node's name for people."""
        return self._labels.get(node_id, f"broker {node_id}")

    def versions(self, node_id: int) -> NodeApiVersions:
        """What a node that `can_send` speaks."""
        return self._versions[node_id]

    def can_send(self, node_id: int, now_ms: int) -> bool:
        ready = self.states.is_ready(node_id, now_ms) and self._selector.can_send(node_id)
        return ready and self.in_flight.can_send_more(node_id)

    def least_loaded(self, node_ids: Iterable[int], now_ms: int) -> int | None:
        """A ready node that owes least, else one that is being connected to, else one to connect to, tried longest ago.

        Equals are chosen from at random. None while back-off leaves none.
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

    def next_deadline_ms(self) -> int:
        """When a request or an attempt to connect is given up next; NO_DEADLINE for none."""
        deadlines = (*self.states.setup_deadlines().values(), self.in_flight.next_deadline_ms())
        return min((deadline for deadline in deadlines if deadline is not None), default=NO_DEADLINE)

    # Done

    def connect(self, node: Node, now_ms: int) -> Lost | None:
        """Begin to connect; what is returned says that it failed at once."""
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
            return Lost(self.label(node.id), DisconnectedError(text), idle=False)
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
    ) -> None:
        """To a node that `can_send`. Raises UnsupportedVersionError, also where the version cannot carry the message."""
        version = self._versions[node_id].usable(api, max_version)
        message = body(version) if callable(body) else body
        self._send(node_id, api, version, message, now_ms, tag, expects_answer, timeout_ms)

    def _send(
        self,
        node_id: int,
        api: AnyApi,
        version: int,
        message: Message,
        now_ms: int,
        tag: object,
        expects_answer: bool = True,
        timeout_ms: int | None = None,
    ) -> None:
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

    def poll(self, timeout_ms: int, now_ms: int) -> tuple[Happened, int]:
        """Send and receive, waiting at most `timeout_ms`; what happened, and the time at which it was seen."""
        result = self._selector.poll(max(0, min(timeout_ms, self.next_deadline_ms() - now_ms)))
        now_ms = self._clock()
        happened = Happened()
        self._handle_sent(result, happened)
        self._handle_received(result, now_ms, happened)
        self._handle_disconnected(result, now_ms, happened)
        self._handle_connected(result, now_ms)
        self._handle_timeouts(now_ms, happened)
        return happened, now_ms

    # What the selector saw

    def _handle_sent(self, result: PollResult, happened: Happened) -> None:
        for node_id in result.sent:
            finished = self.in_flight.sent(node_id)
            if finished is not None:
                happened.outcomes.append(Outcome(finished, None, None))

    def _handle_received(self, result: PollResult, now_ms: int, happened: Happened) -> None:
        for node_id, frame in result.received:
            try:
                request, body = self._decode(node_id, frame)
            except ProtocolError as error:
                self._disconnect(node_id, error, now_ms, happened)
                continue
            self.in_flight.answered(node_id)
            self._throttle(request, body, now_ms)
            if request.tag is _NEGOTIATION:
                self._api_versions_answered(request, body, now_ms, happened)
            else:
                happened.outcomes.append(Outcome(request, body, None))

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

    def _handle_disconnected(self, result: PollResult, now_ms: int, happened: Happened) -> None:
        for lost in result.disconnected:
            # It may have been given up just now because of the last thing it said.
            if not self.states.is_disconnected(lost.connection_id):
                self._disconnect(lost.connection_id, lost.error, now_ms, happened, idle=lost.idle)

    def _disconnect(self, node_id: int, error: PeerError, now_ms: int, happened: Happened, *, idle: bool = False) -> None:
        """End a connection; everything in flight on it fails with `error`, for no answer can come any more."""
        self._selector.close_connection(node_id)
        if idle:
            self.states.remove(node_id)
        else:
            self.states.disconnected(node_id, now_ms)
            self.failures[node_id] = error.message
        failed = (request for request in self.in_flight.clear(node_id) if request.tag is not _NEGOTIATION)
        happened.outcomes.extend(Outcome(request, None, error) for request in failed)
        happened.lost.append(Lost(self.label(node_id), error, idle))

    def close_all(self, error: PeerError, now_ms: int) -> list[Outcome]:
        """End every connection, made or being made; what was in flight fails with `error`."""
        happened = Happened()
        for node_id in self.states.open_nodes():
            self._disconnect(node_id, error, now_ms, happened)
        return happened.outcomes

    def _handle_timeouts(self, now_ms: int, happened: Happened) -> None:
        for node_id, deadline_ms in self.states.setup_deadlines().items():
            if deadline_ms <= now_ms:
                waited = f"{self.states.setup_timeout_ms(node_id):,} ms (socket.connection.setup.timeout.ms)"
                text = f"could not connect to {self.label(node_id)} within {waited}"
                self._disconnect(node_id, DisconnectedError(text, timed_out=True), now_ms, happened)
        for request in self.in_flight.timed_out(now_ms):
            text = f"{self.label(request.node_id)} did not answer {request.api.name} within {request.timeout_ms:,} ms"
            self._disconnect(request.node_id, DisconnectedError(text, timed_out=True), now_ms, happened)

    # Agreeing on versions

    def _handle_connected(self, result: PollResult, now_ms: int) -> None:
        for node_id in result.connected:
            self.states.checking_api_versions(node_id)
            self._ask_versions(node_id, API_VERSIONS.max_version, now_ms)

    def _ask_versions(self, node_id: int, version: int, now_ms: int) -> None:
        self._send(node_id, API_VERSIONS, version, api_versions_request(), now_ms, _NEGOTIATION)

    def _api_versions_answered(self, request: InFlightRequest, body: Message, now_ms: int, happened: Happened) -> None:
        assert isinstance(body, ApiVersionsResponse)
        label = self.label(request.node_id)
        retry = fallback_version(request.version, body)
        if retry is not None:
            self._ask_versions(request.node_id, retry, now_ms)
        elif body.error_code:
            name = error_facts(body.error_code).name
            error = BrokerError(f"{label} refused ApiVersions: {name}", error_code=body.error_code, error=name)
            self._disconnect(request.node_id, error, now_ms, happened)
        else:
            self._versions[request.node_id] = node_api_versions(label, body)
            self.features.update(body, request.node_id)
            self.states.ready(request.node_id)
            self.failures.pop(request.node_id, None)
