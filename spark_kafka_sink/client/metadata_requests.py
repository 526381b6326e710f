"""Asks for metadata whenever that is due: whom, and what a failure means; Java's NetworkClient.DefaultMetadataUpdater."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_sink.client.addresses import bootstrap_nodes
from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.connection_states import FOREVER_MS
from spark_kafka_sink.client.connections import Connections, Lost, Outcome
from spark_kafka_sink.client.metadata_updater import MetadataRequestAndVersion, MetadataUpdater
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import PeerError, UnsupportedVersionError
from spark_kafka_sink.protocol.metadata import METADATA, MetadataResponse


class MetadataRequests:
    """One request at a time, to whichever broker owes least. Belongs to the thread that polls."""

    def __init__(self, config: ProducerConfig, metadata: MetadataUpdater, connections: Connections) -> None:
        self._metadata = metadata
        self._connections = connections
        self._bootstrap = bootstrap_nodes(config.bootstrap_servers)
        # At least 1 ms, or a back-off of 0 would turn the wait for a node into a spin.
        self._retry_ms = max(1, config.reconnect_backoff_ms)
        self._in_flight: MetadataRequestAndVersion | None = None
        self._failures = 0

    def node(self, node_id: int) -> Node | None:
        return self._bootstrap.get(node_id) if node_id < 0 else self._metadata.nodes().get(node_id)

    def candidates(self) -> Mapping[int, Node]:
        """Who may be asked. The bootstrap servers come in again once as many attempts have failed as brokers are known: all of
        those may be gone (KIP-899), or be there and not answer (KIP-1102)."""
        known = self._metadata.nodes()
        if known and self._failures < len(known):
            return known
        return {**known, **self._bootstrap}

    def is_due(self, now_ms: int) -> bool:
        return self._in_flight is None and self._metadata.time_to_next_update_ms(now_ms) <= 0

    def maybe_ask(self, now_ms: int) -> int:
        """Ask, or connect to whom to ask, if that is due; for how many ms there is nothing to do here after that."""
        if self._in_flight is not None:
            return FOREVER_MS
        wait_ms = self._metadata.time_to_next_update_ms(now_ms)
        if wait_ms > 0:
            return wait_ms
        node_id = self._connections.least_loaded(self.candidates(), now_ms)
        if node_id is None:
            return self._retry_ms
        if self._connections.can_send(node_id, now_ms):
            return self._ask(node_id, now_ms)
        if self._connections.states.can_connect(node_id, now_ms):
            return self._connect(node_id, now_ms)
        return FOREVER_MS  # it is being connected to: one attempt at a time

    def _connect(self, node_id: int, now_ms: int) -> int:
        lost = self._connections.connect(self.candidates()[node_id], now_ms)
        if lost is None:
            return FOREVER_MS
        self.lost(lost, now_ms)
        return self._retry_ms

    def _ask(self, node_id: int, now_ms: int) -> int:
        request = self._in_flight = self._metadata.next_request(now_ms)
        try:
            self._connections.send(node_id, METADATA, request.body, now_ms, tag=request)
        except UnsupportedVersionError as error:
            self._failed(self._connections.label(node_id), error, now_ms)
            return self._retry_ms
        return FOREVER_MS

    def is_mine(self, outcome: Outcome) -> bool:
        return outcome.request.tag is self._in_flight and self._in_flight is not None

    def answered(self, outcome: Outcome, now_ms: int) -> None:
        label = self._connections.label(outcome.request.node_id)
        request = self._in_flight
        assert request is not None
        if outcome.error is not None:
            self._failed(label, outcome.error, now_ms)
            return
        assert isinstance(outcome.body, MetadataResponse)
        self._failures = 0
        self._in_flight = None
        self._metadata.update(request, outcome.body, label, now_ms)

    def lost(self, lost: Lost, now_ms: int) -> None:
        """A connection ended. Not an idle one: that says nothing of the cluster."""
        if lost.idle:
            return
        if self.is_due(now_ms):
            self._failed(lost.label, lost.error, now_ms)
        self._metadata.request_update()

    def _failed(self, label: str, error: PeerError, now_ms: int) -> None:
        self._in_flight = None
        self._failures += 1
        self._metadata.failed_attempt(label, error.message, now_ms)
