"""The connections to a cluster's brokers: opens and closes them, sends requests, and matches responses to requests."""

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
from spark_kafka_sink.client.connection_states import ClusterConnectionStates, ConnectionFailures, ConnectionState, Resolver
from spark_kafka_sink.client.in_flight import ClientResponse, InFlightRequest, InFlightRequests
from spark_kafka_sink.client.protocol_probe import PROBE_MS, ProbeChannel, Question, question_after
from spark_kafka_sink.client.sasl_login import BrokerAddress, LoginRequest
from spark_kafka_sink.client.sasl_sessions import ConnectionEnd, SaslSessions, final_error
from spark_kafka_sink.errors import (
    AuthenticationError,
    BrokerError,
    DisconnectedError,
    OptionError,
    PeerError,
    ProtocolError,
    UnsupportedVersionError,
)
from spark_kafka_sink.network.channel import Address, Channel, PlainChannel
from spark_kafka_sink.network.selector import Disconnected, PollResult, Selector
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.protocol.api import USUAL_RESPONSE_BYTES, AnyApi, ApiKey
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS, METADATA, ApiVersionsResponse, MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import PreparedRequest, decode_response, encode_request
from spark_kafka_sink.security.channel_opener import ChannelOpener
from spark_kafka_sink.security.sasl import mechanism as mechanisms
from spark_kafka_sink.security.sasl.mechanism import OpenMechanism

CLIENT_THROTTLES_SINCE: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
}
"""The versions since which a broker responds at once and expects the client to wait (KIP-219). Before, the broker waited. Other
APIs are newer than that. (Java's AbstractResponse.shouldClientThrottle)
"""

_CORRELATION_ID: Final = struct.Struct(">i")

_NEGOTIATION: Final = object()
"""The tag of the requests made here: ApiVersions, those of logins, and Metadata that tells the cluster."""

_CHECKS_BROKER_SINCE: Final = 5
"""The version of ApiVersions since which a broker compares its cluster and id with those in the request (KIP-1242, Kafka 4.4)."""

_REJECTED: Final = 4
"""The rank of a node that rejected the login, as `least_loaded` ranks them."""

Body = Message | PreparedRequest | Callable[[int], Message]
"""A request's message, its prepared parts, or a function that makes the message for the negotiated version."""


class OpenChannel(Protocol):
    """Begins to connect. Raises OSError if that fails at once."""

    def __call__(self, address: Address, *, host: str, port: int, send_buffer: int, receive_buffer: int) -> Channel: ...


@dataclass(frozen=True, slots=True)
class LostConnection:
    """A connection that ended or could not be established. `idle`: closed by this client because it was unused."""

    node_id: int
    label: str
    error: PeerError
    idle: bool


@dataclass(slots=True)
class PollEvents:
    """The events of one poll, in order, including error responses for requests in flight on a lost connection.

    has_ready: whether a connection became ready for requests, so that its login was accepted.
    """

    responses: list[ClientResponse] = field(default_factory=list)
    lost: list[LostConnection] = field(default_factory=list)
    has_ready: bool = False


class Connections:
    """One connection per node id. Owned by one thread, except for `wakeup`; times are monotonic ms from `clock`."""

    def __init__(
        self,
        config: ProducerConfig,
        clock: Callable[[], int],
        *,
        resolver: Resolver | None = None,
        open_channel: OpenChannel | None = None,
        open_mechanism: OpenMechanism | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """resolver, open_channel, open_mechanism: those of `security/` by default."""
        self._config = config
        self._clock = clock
        self._rng = rng or random.Random()
        opener = ChannelOpener(config.security)
        self._open_channel = open_channel or opener.open
        self.states = ClusterConnectionStates(config, resolver=resolver or opener.resolve, rng=self._rng)
        self.in_flight = InFlightRequests(config.max_in_flight)
        idle_ms = config.connections_max_idle_ms
        self._selector = Selector(max_frame_size=USUAL_RESPONSE_BYTES, max_idle_ms=idle_ms, clock=clock)
        self._sasl: SaslSessions | None = None  # without SASL
        if config.security.uses_sasl:
            try:
                mechanism = (open_mechanism or mechanisms.open_mechanism)(config.security, self._selector.wakeup)
            except BaseException:  # of an option that only the mechanism can check
                self._selector.close()
                raise
            self._sasl = SaslSessions(config, mechanism, self.states, self.in_flight, self._send_login, self._rng)
        self.versions: dict[int, NodeApiVersions] = {}  # of each node that can_send
        self.features = FinalizedFeatures()
        self.cluster_id: str | None = None  # in the last metadata
        self._unchecked: set[int] = set()  # brokers that were connected to again, and may be others now
        self.failures = ConnectionFailures()
        self.label = self.failures.label
        self._probed: dict[int, PeerError] = {}  # the failure that each running probe tries to explain
        self._correlation_id = -1
        self.wakeup = self._selector.wakeup
        self.connection_count = self._selector.connection_count
        self.take_counts = self._selector.take_counts

    def close(self) -> None:
        """Closes every connection and forgets what was in flight."""
        self._selector.close()
        if self._sasl is not None:
            self._sasl.close()
        for node_id in self.failures.brokers:
            self.in_flight.clear(node_id)

    # Queries

    def can_send(self, node_id: int, now_ms: int) -> bool:
        ready = self.states.is_ready(node_id, now_ms) and self._selector.can_send(node_id)
        return ready and self.in_flight.can_send_more(node_id)

    def least_loaded(self, node_ids: Iterable[int], now_ms: int) -> int | None:
        """Returns the ready node with the fewest requests, else one that is connecting, else the one tried longest ago.

        Chooses among equals at random. Returns None if all nodes are in backoff. A node that rejected the login is chosen only if
        there is no connection to another one, which may only be busy for a moment.
        """
        nodes = list(node_ids)
        self._rng.shuffle(nodes)
        ranks = {node_id: rank for node_id in nodes if (rank := self._rank(node_id, now_ms))}
        best = min(ranks, key=ranks.__getitem__, default=None)
        if best is not None and ranks[best][0] == _REJECTED and not set(nodes).isdisjoint(self.states.open_nodes()):
            return None
        return best

    def _rank(self, node_id: int, now_ms: int) -> tuple[int, int] | None:
        if self.can_send(node_id, now_ms):
            return 1, self.in_flight.count(node_id)
        if self.states.is_preparing(node_id):
            return 2, 0
        if self.states.can_connect(node_id, now_ms):
            rank = _REJECTED if self.states.state(node_id) is ConnectionState.AUTHENTICATION_FAILED else 3
            return rank, self.states.attempted_ms(node_id)
        return None

    # Actions

    def connect(self, node: Node, now_ms: int) -> LostConnection | None:
        """Begins to connect. Returns the lost connection if that failed at once."""
        broker = self.failures.connecting(node)
        failure: PeerError
        try:
            address = self.states.connecting(node.id, node.host, node.port, now_ms)
            self._selector.register(node.id, self._opened(address, broker))
        except OSError as error:
            failure = DisconnectedError(f"could not connect to {node.host}:{node.port}: {error.strerror or error}")
        except (PeerError, OptionError) as error:
            failure = final_error(error, broker)
        else:
            return None
        return self._ended(node.id, failure, now_ms)

    def _opened(self, address: Address, broker: BrokerAddress) -> Channel:
        sizes = {"send_buffer": self._config.send_buffer_bytes, "receive_buffer": self._config.receive_buffer_bytes}
        return self._open_channel(address, host=broker.host, port=broker.port, **sizes)

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

        Raises UnsupportedVersionError if there is no common version or the version cannot represent the message.
        """
        if version is None:
            version = self.versions[node_id].usable(api, max_version)
        correlation_id = self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        if isinstance(body, PreparedRequest):
            buffers = body.encode(version, correlation_id)
        else:
            message = body(version) if callable(body) else body
            buffers = encode_request(api, version, correlation_id, self._config.client_id, message)
        self._selector.send(node_id, buffers)
        timeout_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        if not self.in_flight.count(node_id):  # the next response is this request's, or nobody's
            self._selector.limit_frames(node_id, api.max_response_bytes, api.too_large)
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
        if self._sasl is not None and (session := self._sasl.sessions.get(node_id)) is not None:
            session.is_used = True

    def poll(self, timeout_ms: int, now_ms: int) -> tuple[PollEvents, int]:
        """Sends and receives, waiting at most `timeout_ms`. Returns the events and the time at which they were seen."""
        due_ms = min(now_ms + timeout_ms, self.states.due_ms, self.in_flight.due_ms)
        if self._sasl is not None and (login_ms := self._sasl.next_due_ms(now_ms)) is not None:
            due_ms = min(due_ms, login_ms)
        result = self._selector.poll(max(0, due_ms - now_ms))
        now_ms = self._clock()
        events = PollEvents()
        for node_id in result.sent:
            unanswered = self.in_flight.sent(node_id)
            if unanswered is not None:
                events.responses.append(unanswered.response(None, None, now_ms))
        if result.received:
            self._handle_received(result, now_ms, events)
        for lost in result.disconnected:
            # It may have just been closed because of its last response.
            if not self.states.is_disconnected(lost.connection_id):
                self._lost(lost, now_ms, events)
        for node_id in result.connected:
            self.states.checking_api_versions(node_id)
            self._ask_versions(node_id, self._first_version(node_id), now_ms)
        self._handle_timeouts(now_ms, events)
        if self._sasl is not None:
            for end in self._sasl.tend(now_ms):
                self._end(end, now_ms, events)
        return events, now_ms

    # Events of the selector

    def _handle_received(self, result: PollResult, now_ms: int, events: PollEvents) -> None:
        for node_id, frame in result.received:
            try:
                request, body = self._decode(node_id, frame)
            except ProtocolError as error:
                self._disconnect(node_id, error, now_ms, events)
                continue
            following = self.in_flight.answered(node_id)
            if following is not None:
                self._selector.limit_frames(node_id, following.api.max_response_bytes, following.api.too_large)
            self._throttle(request, body, now_ms)
            if request.tag is _NEGOTIATION:
                self._negotiated(request, body, now_ms, events)
            else:
                events.responses.append(request.response(body, None, now_ms))

    def _decode(self, node_id: int, frame: memoryview) -> tuple[InFlightRequest, Message]:
        try:
            request = self.in_flight.awaiting(node_id)
            if len(frame) >= 4 and (found := _CORRELATION_ID.unpack_from(frame)[0]) != request.correlation_id:
                raise ProtocolError(f"received correlation id {found}, expected {request.correlation_id} ({request.api.name})")
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
        """Ends a connection. Its requests in flight fail with `error`, because no response can arrive."""
        self._drop(node_id, error, now_ms, events)
        events.lost.append(self._ended(node_id, error, now_ms, idle=idle))

    def _drop(self, node_id: int, error: PeerError, now_ms: int, events: PollEvents) -> None:
        self._selector.close_connection(node_id)
        self._probed.pop(node_id, None)
        if self._sasl is not None:
            self._sasl.forget(node_id)
        failed = (request for request in self.in_flight.clear(node_id) if request.tag is not _NEGOTIATION)
        events.responses.extend(request.response(None, error, now_ms) for request in failed)

    def _ended(self, node_id: int, error: PeerError, now_ms: int, *, idle: bool = False) -> LostConnection:
        if idle:
            self.states.remove(node_id)
        else:
            is_first_step = self.states.state(node_id) is ConnectionState.CONNECTING
            error = self.failures.failed(node_id, error, is_first_step=is_first_step)
            self.states.disconnected(node_id, now_ms, authentication_failed=isinstance(error, AuthenticationError))
        return LostConnection(node_id, self.label(node_id), error, idle)

    def close_all(self, error: PeerError, now_ms: int, *, keep: int | None = None) -> list[ClientResponse]:
        """Ends every connection but `keep`, also unfinished ones. Returns the responses of requests, which fail with `error`."""
        events = PollEvents()
        for node_id in self.states.open_nodes():
            if node_id != keep:
                self._disconnect(node_id, error, now_ms, events)
        return events.responses

    def _handle_timeouts(self, now_ms: int, events: PollEvents) -> None:
        for node_id in self.states.overdue(now_ms):
            error = self._probed.get(node_id) or DisconnectedError(self._late(node_id), timed_out=True)
            self._disconnect(node_id, error, now_ms, events)
        for request in self.in_flight.timed_out(now_ms):
            text = f"{self.label(request.node_id)} did not respond to {request.api.name} within {request.timeout_ms:,} ms"
            self._disconnect(request.node_id, DisconnectedError(text, timed_out=True), now_ms, events)

    def _late(self, node_id: int) -> str:
        late_login = None if self._sasl is None else self._sasl.why_late(node_id)
        waited = f"{self.states.setup_timeout_ms(node_id):,} ms (socket.connection.setup.timeout.ms)"
        return late_login or f"could not connect to {self.label(node_id)} within {waited}"

    # Agreeing on versions

    def _first_version(self, node_id: int) -> int:
        """Returns the version of ApiVersions to ask in. That which names the broker has no other use."""
        is_served = any(versions.newest(API_VERSIONS.key) >= _CHECKS_BROKER_SINCE for versions in self.versions.values())
        return API_VERSIONS.max_version if is_served and self._is_known(node_id) else _CHECKS_BROKER_SINCE - 1

    def _is_known(self, node_id: int) -> bool:
        """Whether metadata has named the broker and its cluster."""
        return node_id >= 0 and self.cluster_id is not None

    def _ask_versions(self, node_id: int, version: int, now_ms: int) -> None:
        named = (self.cluster_id, node_id) if version >= _CHECKS_BROKER_SINCE else ()
        self.send(node_id, API_VERSIONS, api_versions_request(*named), now_ms, tag=_NEGOTIATION, version=version)

    def _negotiated(self, request: InFlightRequest, body: Message, now_ms: int, events: PollEvents) -> None:
        if isinstance(body, ApiVersionsResponse):
            self._api_versions_answered(request, body, now_ms, events)
        elif isinstance(body, MetadataResponse):
            if body.cluster_id in (None, self.cluster_id):
                self._ready(request.node_id, now_ms, events)
            else:
                self._is_another(request.node_id, f"it belongs to cluster {body.cluster_id}", now_ms, events)
        else:
            self._login_answered(request.node_id, body, now_ms, events)

    def _api_versions_answered(
        self, request: InFlightRequest, body: ApiVersionsResponse, now_ms: int, events: PollEvents
    ) -> None:
        label = self.label(request.node_id)
        retry = fallback_version(request.version, body)
        if retry is not None:
            self._ask_versions(request.node_id, retry, now_ms)
        elif body.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._is_another(request.node_id, "REBOOTSTRAP_REQUIRED", now_ms, events)
        elif body.error_code:
            name = error_facts(body.error_code).name
            error = BrokerError(f"{label} rejected ApiVersions: {name}", error_code=body.error_code, error=name)
            self._disconnect(request.node_id, error, now_ms, events)
        else:
            if request.version < _CHECKS_BROKER_SINCE and request.node_id in self.versions and self._is_known(request.node_id):
                self._unchecked.add(request.node_id)
            versions = self.versions[request.node_id] = node_api_versions(label, body)
            self.features.update(body, request.node_id)
            if self._sasl is None:
                self._ready(request.node_id, now_ms, events)
            else:
                end = self._sasl.begin(request.node_id, self.failures.brokers[request.node_id], versions, now_ms)
                self._end(end, now_ms, events)

    def _is_another(self, node_id: int, reason: str, now_ms: int, events: PollEvents) -> None:
        """Ends a connection to an address that is not this broker's any more. Another cluster may have taken it."""
        code = ErrorCode.REBOOTSTRAP_REQUIRED
        text = f"{self.label(node_id)} is not a broker of cluster {self.cluster_id} any more: {reason}"
        self._disconnect(node_id, BrokerError(text, error_code=int(code), error=code.name), now_ms, events)

    def _ready(self, node_id: int, now_ms: int, events: PollEvents) -> None:
        if node_id in self._unchecked:  # before Kafka 4.4 only metadata tells
            self._unchecked.remove(node_id)
            try:
                self.send(node_id, METADATA, MetadataRequest(topics=()), now_ms, tag=_NEGOTIATION)
            except UnsupportedVersionError as error:
                self._disconnect(node_id, error, now_ms, events)
            return
        events.has_ready = True
        self.states.ready(node_id)
        self.failures.ready(node_id)

    # Logins

    def _send_login(self, node_id: int, request: LoginRequest, now_ms: int) -> bool:
        if not self._selector.can_send(node_id):
            return False
        self.send(node_id, request.api, request.body, now_ms, tag=_NEGOTIATION, version=request.version)
        return True

    def _login_answered(self, node_id: int, body: Message, now_ms: int, events: PollEvents) -> None:
        assert self._sasl is not None
        end = self._sasl.answered(node_id, body, now_ms)
        self._end(end, now_ms, events)
        if end is None and not self._sasl.is_under_way(node_id):
            self._ready(node_id, now_ms, events)

    def _end(self, end: ConnectionEnd | None, now_ms: int, events: PollEvents) -> None:
        if end is not None:
            self._disconnect(end.node_id, end.error, now_ms, events, idle=end.idle)

    # Other protocols

    def _lost(self, lost: Disconnected, now_ms: int, events: PollEvents) -> None:
        node_id, error = lost.connection_id, lost.error
        explained = self._probed.get(node_id)
        if explained is not None:
            error = error if isinstance(error, AuthenticationError) else explained
        elif not lost.idle and (question := self._question(node_id, error)) is not None:
            self._probe(node_id, question, error, now_ms, events)
            return
        self._disconnect(node_id, error, now_ms, events, idle=lost.idle)

    def _question(self, node_id: int, error: PeerError) -> Question | None:
        """Returns the probe for a port that closed a connection; None if another protocol is unlikely."""
        if not isinstance(error, DisconnectedError):
            return None
        state = self.states.state(node_id)
        if state is ConnectionState.READY:
            # A plain client that forgot to log in is disconnected at its first request, which is for metadata.
            is_cut_off = self.failures.named_by is None and self.in_flight.is_first(node_id, ApiKey.METADATA)
        else:
            is_cut_off = state is ConnectionState.CHECKING_API_VERSIONS or bool(error.facts.get("during_handshake"))
            is_cut_off = is_cut_off and not self.failures.was_reached(node_id) and self._config.security.proxy_url is None
        return question_after(state, self.failures.brokers[node_id], self._config.security) if is_cut_off else None

    def _probe(self, node_id: int, question: Question, error: PeerError, now_ms: int, events: PollEvents) -> None:
        """Keeps the attempt open, and probes on another connection."""
        is_ready = self.states.state(node_id) is ConnectionState.READY
        self._drop(node_id, error, now_ms, events)
        self.failures.failed(node_id, error, is_first_step=False)
        address = self.states.probing(node_id, now_ms + PROBE_MS)
        try:
            assert address is not None
            # A question about the login uses the usual kind of connection.
            channel = self._opened(address, self.failures.brokers[node_id]) if is_ready else PlainChannel.connect(address)
            self._selector.register(node_id, ProbeChannel(channel, question))
        except (OSError, PeerError, OptionError):
            self._disconnect(node_id, error, now_ms, events)
        else:
            self._probed[node_id] = error
