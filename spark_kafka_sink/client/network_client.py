"""The entry point of client/: sends requests to brokers and returns the responses, opening connections as needed."""

from __future__ import annotations

import random
from collections.abc import Callable

from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.client.connection_states import Resolver
from spark_kafka_sink.client.connections import Body, Connections, OpenChannel
from spark_kafka_sink.client.in_flight import ClientResponse
from spark_kafka_sink.client.metadata import Metadata
from spark_kafka_sink.client.metadata_requests import MetadataRequests, Rejection
from spark_kafka_sink.errors import AuthenticationError, UnsupportedVersionError, UsageError
from spark_kafka_sink.network.kafka_channel import NetworkCounts
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.security.sasl.mechanism import OpenMechanism

__all__ = ["ClientResponse", "NetworkClient"]


class NetworkClient:
    """Connects to nodes, negotiates versions, sends requests, and fetches metadata when due. Java's NetworkClient.

    One thread (the Sender's) owns it and everything behind it; other threads may call only methods that say so. `now_ms` is
    monotonic milliseconds from `clock`, which is read here only after a wait.

    rejections: logins and TLS handshakes rejected since `take_rejections`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        metadata: Metadata,
        *,
        clock: Callable[[], int] = monotonic_ms,
        resolver: Resolver | None = None,
        open_channel: OpenChannel | None = None,
        open_mechanism: OpenMechanism | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._reconnect_backoff_ms = config.reconnect_backoff_ms
        self._connections = Connections(
            config, clock, resolver=resolver, open_channel=open_channel, open_mechanism=open_mechanism, rng=rng
        )
        self._metadata = MetadataRequests(config, metadata, self._connections)
        self.rejections = self._metadata.rejections
        self._aborted: list[ClientResponse] = []
        self.wakeup = self._connections.wakeup  # ends the current or next poll; from any thread

    def ready(self, node_id: int, now_ms: int) -> bool:
        """Returns whether a request can be sent to this node now. Begins to connect if it is disconnected and backoff allows.

        Returns False for every node while metadata is due, so that it is requested first.
        """
        if self._connections.can_send(node_id, now_ms):
            return not self._metadata.is_due(now_ms)
        node = self._metadata.node(node_id)
        if node is not None and self._connections.states.can_connect(node_id, now_ms):
            lost = self._connections.connect(node, now_ms)
            if lost is not None:
                self._metadata.lost(lost, now_ms)
        return False

    def why_not_ready(self, node_id: int) -> str | None:
        """Returns why the last connection to a node ended or failed; None if there was no failure."""
        failure = self._connections.failures.last(node_id)
        if failure is None:
            return None
        stuck = self._metadata.why_stuck()
        return f"{self._connections.label(node_id)}: {failure.message}" + (f" ({stuck})" if stuck else "")

    def outages(self) -> str:
        """Returns, as text, why needed brokers are not connected or must not be asked now; empty if nothing is wrong. From any
        thread.
        """
        throttled = sorted(self._connections.states.throttled_ms(self._clock()).items())
        texts = [
            f"{self._connections.label(node_id)} throttles this client for another {ms / 1000:,.1f} s, because it exceeds a quota"
            for node_id, ms in throttled
        ]
        return "; ".join(filter(None, [self._connections.failures.of(sorted(self._metadata.candidates())), *texts]))

    def authentication_error(self, node_id: int) -> AuthenticationError | None:
        """Returns why the last connection to a node failed, if the same settings would fail again."""
        failure = self._connections.failures.last(node_id)
        return failure if isinstance(failure, AuthenticationError) else None

    def take_rejections(self) -> dict[int, Rejection]:
        """Returns the rejections since the last call, by node id."""
        taken = dict(self.rejections)
        self.rejections.clear()
        return taken

    def poll_delay_ms(self, node_id: int, now_ms: int) -> int:
        """Returns the time before `ready` needs to be called again, in ms, unless a poll returns earlier."""
        if self._metadata.node(node_id) is None:
            return self._reconnect_backoff_ms
        return self._connections.states.poll_delay_ms(node_id, now_ms)

    def is_unavailable(self, node_id: int) -> bool:
        """Returns whether the node's connection failed and was not restarted."""
        return self._connections.states.is_disconnected(node_id)

    def is_throttled(self, node_id: int, now_ms: int) -> bool:
        """Returns whether the node throttles this client (a quota) at this time."""
        return self._connections.states.is_throttled(node_id, now_ms)

    def in_flight_count(self, node_id: int | None = None) -> int:
        """Returns the number of requests in flight, including metadata and versions; of all nodes for None. From any thread."""
        return self._connections.in_flight.count(node_id)

    def connection_count(self) -> int:
        """Returns the number of connections, including those being established. From any thread."""
        return self._connections.connection_count()

    def take_counts(self) -> NetworkCounts:
        """Returns the network traffic since the last call."""
        return self._connections.take_counts()

    def finalized_feature(self, name: str) -> int:
        """Returns the cluster's level of a feature, as "transaction.version", by the ApiVersions response with the newest epoch.

        Returns 0 if it is not finalized, and before the first connection. From any thread.
        """
        return self._connections.features.level(name)

    def versions(self, node_id: int) -> NodeApiVersions:
        """Returns the API versions of a node that is `ready`."""
        return self._connections.versions[node_id]

    def all_versions(self) -> list[NodeApiVersions]:
        """Returns the API versions of each node that was connected, bootstrap servers included."""
        return list(self._connections.versions.values())

    def least_loaded_node(self, now_ms: int) -> int | None:
        """Returns the best node for a request to any broker; None if all are in backoff. Bootstrap servers have negative ids."""
        return self._connections.least_loaded(self._metadata.candidates(), now_ms)

    def connected_nodes(self, now_ms: int) -> list[int]:
        """Returns the nodes that are ready, bootstrap servers included, and those with the fewest requests in flight first.

        Unlike `least_loaded_node`, it suggests none to connect to. Returns none while metadata is due.
        """
        if self._metadata.is_due(now_ms):
            return []
        connections = self._connections
        ready = (node_id for node_id in connections.states.open_nodes() if connections.can_send(node_id, now_ms))
        return sorted(ready, key=connections.in_flight.count)

    def send(
        self,
        node_id: int,
        api: AnyApi,
        body: Body,
        now_ms: int,
        *,
        expects_answer: bool = True,
        timeout_ms: int | None = None,
        tag: object = None,
        max_version: int | None = None,
    ) -> None:
        """Sends a request to a node that is `ready`; `poll` returns its ClientResponse.

        Record buffers in `body` must not change until then. `timeout_ms` defaults to request.timeout.ms. Raises UsageError for
        a node that is not ready.
        """
        if not self._connections.can_send(node_id, now_ms):
            raise UsageError(f"{self._connections.label(node_id)} is not ready for a request", node_id=node_id)
        try:
            self._connections.send(
                node_id, api, body, now_ms, tag=tag, expects_answer=expects_answer, timeout_ms=timeout_ms, max_version=max_version
            )
        except UnsupportedVersionError as error:
            self._aborted.append(ClientResponse(node_id, api, -1, tag, None, error, now_ms, 0))

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        """Sends and receives, waiting at most `timeout_ms` for an event. Never raises for a broker's fault."""
        until_metadata_ms = self._metadata.maybe_ask(now_ms)
        responses, self._aborted = self._aborted, []
        events, now_ms = self._connections.poll(0 if responses else min(timeout_ms, until_metadata_ms), now_ms)
        for response in events.responses:
            if self._metadata.is_mine(response):
                responses += self._metadata.answered(response, now_ms)
            else:
                responses.append(response)
        for lost in events.lost:
            self._metadata.lost(lost, now_ms)
        if events.has_ready:
            self._metadata.connected()
        responses += self._metadata.maybe_rebootstrap(now_ms)
        return responses

    def close(self) -> None:
        """Closes every connection. Requests in flight get no response."""
        self._connections.close()
