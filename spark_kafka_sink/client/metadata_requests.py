"""Requests metadata whenever it is due: chooses the broker and handles failures. Java's NetworkClient.DefaultMetadataUpdater."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.connection_states import FOREVER_MS, ConnectionState, bootstrap_nodes
from spark_kafka_sink.client.connections import Connections, LostConnection
from spark_kafka_sink.client.in_flight import ClientResponse
from spark_kafka_sink.client.metadata import Metadata, MetadataRequestAndVersion
from spark_kafka_sink.errors import AuthenticationError, DisconnectedError, PeerError, UnsupportedVersionError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.protocol.apis.metadata import METADATA, MetadataResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

_METADATA: Final = METADATA.limited_to(1, METADATA.max_version)
"""Not v0, which cannot ask for zero topics and has no controller."""


class Rejection(NamedTuple):
    """A rejected login or TLS handshake. `ends_metadata`: no broker is asked for metadata until it is requested again."""

    error: AuthenticationError
    ends_metadata: bool


class MetadataRequests:
    """Sends one request at a time, to the broker with the fewest requests. Belongs to the thread that polls.

    A rejected login ends the search, as in Java, because the same settings would fail at the next broker. Unlike in Java, the
    search continues while another broker has accepted the login.

    If the known brokers do not respond, metadata.recovery.strategy decides:

    - `none`: they are asked forever.
    - `rebootstrap`, after as many failed attempts as there are known brokers: bootstrap.servers are asked as well. Java drops the
      known brokers and all metadata as soon as none of them is connected or may be connected now (KIP-899). In a rolling restart
      that cuts connections that have just come back, so here the known brokers remain candidates.
    - `rebootstrap`, without a response for metadata.recovery.rebootstrap.trigger.ms, or with REBOOTSTRAP_REQUIRED (KIP-1102):
      connections to the known brokers are closed, and only bootstrap.servers are asked, as in Java.
    """

    def __init__(self, config: ProducerConfig, metadata: Metadata, connections: Connections) -> None:
        self._metadata = metadata
        self._connections = connections
        self._bootstrap = bootstrap_nodes(config.bootstrap_servers)
        # At least 1 ms: a backoff of 0 would make the wait for a node a busy loop.
        self._retry_ms = max(1, config.reconnect_backoff_ms)
        self._may_rebootstrap = config.metadata_recovery_strategy == "rebootstrap"
        self._trigger_ms = config.metadata_recovery_trigger_ms
        self._in_flight: MetadataRequestAndVersion | None = None
        self._failures = 0  # since the last useful response
        self._due_since_ms: int | None = None  # when an update became due since then
        self._told_to_rebootstrap = False
        self.rejections: dict[int, Rejection] = {}

    def node(self, node_id: int) -> Node | None:
        return self._bootstrap.get(node_id) if node_id < 0 else self._metadata.nodes().get(node_id)

    def candidates(self) -> Mapping[int, Node]:
        """Returns the nodes that may be asked."""
        known = self._metadata.nodes()
        if not known:
            return self._bootstrap
        return {**known, **self._bootstrap} if self._may_rebootstrap and self._known_failed() else known

    def why_stuck(self) -> str | None:
        """Returns why no other broker is asked although the known ones do not respond; None otherwise."""
        if self._may_rebootstrap or not self._metadata.nodes() or not self._known_failed():
            return None
        return "bootstrap.servers are not asked again: metadata.recovery.strategy is none"

    def _known_failed(self) -> bool:
        return self._failures >= len(self._metadata.nodes())

    def is_due(self, now_ms: int) -> bool:
        return self._in_flight is None and self._metadata.time_to_next_update_ms(now_ms) <= 0

    def maybe_ask(self, now_ms: int) -> int:
        """Sends a request, or connects to a broker for it, if due. Returns the time until the next step, in ms."""
        if self._in_flight is not None:
            return self._until_rebootstrap_ms(now_ms)
        wait_ms = self._metadata.time_to_next_update_ms(now_ms)
        if wait_ms > 0:
            return wait_ms
        if self._due_since_ms is None:
            self._due_since_ms = now_ms
        return min(self._try(now_ms), self._until_rebootstrap_ms(now_ms))

    def _try(self, now_ms: int) -> int:
        candidates = self.candidates()
        node_id = self._connections.least_loaded(candidates, now_ms)
        if node_id is None:
            return self._retry_ms
        if self._connections.can_send(node_id, now_ms):
            return self._ask(node_id, now_ms)
        if self._connections.states.can_connect(node_id, now_ms):
            lost = self._connections.connect(candidates[node_id], now_ms)
            if lost is not None:
                self.lost(lost, now_ms)
                return self._retry_ms
        state = self._connections.states.state(node_id)
        is_silent = state in (ConnectionState.CHECKING_API_VERSIONS, ConnectionState.AUTHENTICATING)
        text = "connected, but it has not answered as a Kafka broker" if is_silent else "being connected to"
        self._metadata.asking(self._connections.label(node_id), text)
        return FOREVER_MS  # one attempt at a time

    def _ask(self, node_id: int, now_ms: int) -> int:
        label = self._connections.label(node_id)
        request = self._in_flight = self._metadata.next_request(now_ms)
        try:
            self._connections.send(node_id, _METADATA, request.body, now_ms, tag=request)
        except UnsupportedVersionError as error:
            self._failed(label, error, now_ms)
            return self._retry_ms
        self._metadata.asking(label, "no response yet")
        return FOREVER_MS

    def is_mine(self, response: ClientResponse) -> bool:
        return response.tag is self._in_flight and self._in_flight is not None

    def answered(self, response: ClientResponse, now_ms: int) -> Sequence[ClientResponse]:
        """Takes a response. Returns those of requests that were in flight to a cluster which is no longer this client's."""
        label = self._connections.label(response.node_id)
        request, body = self._in_flight, response.body
        assert request is not None
        if response.error is not None:
            self._in_flight = None
            if not isinstance(response.error, AuthenticationError):  # the end of the connection reports it
                self._failed(label, response.error, now_ms)
            return ()
        assert isinstance(body, MetadataResponse)
        self._in_flight = None
        ended: Sequence[ClientResponse] = ()
        if body.cluster_id is not None:
            if self._connections.cluster_id not in (None, body.cluster_id):  # after a failover or a failback
                self._connections.features.begin_again(response.node_id)
                # Those that survived may lead to the cluster of before, which would be asked for a producer id of this one.
                error = DisconnectedError(f"{label} belongs to cluster {body.cluster_id} now")
                ended = self._connections.close_all(error, now_ms, keep=response.node_id)
            self._connections.cluster_id = body.cluster_id
        if self._metadata.update(request, body, label, now_ms):
            self._connections.failures.named_by = response.node_id
            self._failures = 0
            self._due_since_ms = None
        else:
            self._failures += 1
            self._told_to_rebootstrap = body.error_code == ErrorCode.REBOOTSTRAP_REQUIRED
        return ended

    def lost(self, lost: LostConnection, now_ms: int) -> None:
        """Handles a connection that ended. The end of an idle one has no meaning for the cluster."""
        if lost.idle:
            return
        self._told_to_rebootstrap |= lost.error.facts.get("error_code") == ErrorCode.REBOOTSTRAP_REQUIRED
        if isinstance(lost.error, AuthenticationError):
            self._rejected(lost.node_id, lost.error, now_ms)
            return
        if self.is_due(now_ms):
            self._failed(lost.label, lost.error, now_ms)
        self._metadata.request_update()

    def connected(self) -> None:
        """Records that a broker accepted the login."""
        self._metadata.accepted()

    def _rejected(self, node_id: int, error: AuthenticationError, now_ms: int) -> None:
        label, ends = self._connections.label(node_id), False
        if self._is_good_elsewhere():
            # The partitions of this broker may have another leader by now.
            if self.is_due(now_ms):
                self._failed(label, error, now_ms)
            self._metadata.request_update()
        elif self._in_flight is None:
            ends = self._metadata.rejected(label, error, now_ms)
        if ends:
            self._failures += 1
            self._due_since_ms = None
        before = self.rejections.get(node_id)
        self.rejections[node_id] = Rejection(error, ends or (before is not None and before.ends_metadata))

    def _is_good_elsewhere(self) -> bool:
        """Returns whether another broker has accepted the login and a candidate is left that has not rejected it."""
        states = self._connections.states
        is_good = any(states.state(node_id) is ConnectionState.READY for node_id in states.open_nodes())
        return is_good and any(
            states.state(node_id) is not ConnectionState.AUTHENTICATION_FAILED for node_id in self.candidates()
        )

    def _failed(self, label: str, error: PeerError, now_ms: int) -> None:
        self._in_flight = None
        self._failures += 1
        self._metadata.failed_attempt(label, error.message, now_ms)

    # Rebootstrap

    def _until_rebootstrap_ms(self, now_ms: int) -> int:
        if not self._may_rebootstrap or self._due_since_ms is None:
            return FOREVER_MS
        return max(0, self._due_since_ms + self._trigger_ms + 1 - now_ms)

    def maybe_rebootstrap(self, now_ms: int) -> Sequence[ClientResponse]:
        """Restarts with bootstrap.servers if it is time (Java's NetworkClient.handleRebootstrap).

        Returns the responses of other requests that were in flight.
        """
        if not self._may_rebootstrap or not (self._told_to_rebootstrap or self._until_rebootstrap_ms(now_ms) == 0):
            return ()
        cause = "a broker asked for it" if self._told_to_rebootstrap else f"no metadata for {self._trigger_ms:,} ms"
        logger.warning("restarting with bootstrap.servers: %s", cause)
        ended = self._connections.close_all(DisconnectedError(f"restarted with bootstrap.servers: {cause}"), now_ms)
        others = [response for response in ended if not self.is_mine(response)]
        self._in_flight = None
        self._told_to_rebootstrap = False
        self._due_since_ms = now_ms
        self._metadata.rebootstrap()
        return others
