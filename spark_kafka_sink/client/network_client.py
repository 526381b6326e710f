"""Requests to brokers and what becomes of them, over connections that come and go: the face of client/."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_sink.client.addresses import Resolver, resolve
from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.client.connections import Body, Connections, OpenChannel, Outcome
from spark_kafka_sink.client.metadata_requests import MetadataRequests
from spark_kafka_sink.client.metadata_updater import MetadataUpdater
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import PeerError, UnsupportedVersionError, UsageError
from spark_kafka_sink.network.channel import PlainChannel
from spark_kafka_sink.network.network_counts import NetworkCounts
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.fields import Message


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """`tag` is what was given to `send`; times are monotonic ms; `version` is -1 where none could be agreed on.

    `error` is DisconnectedError (the connection ended before the answer: the request may or may not have been carried out; fact
    `timed_out` is true when that was because an answer came too late), ProtocolError (the broker sent what cannot be, the
    connection is closed: the same holds) or UnsupportedVersionError (nothing was sent). Without an error `body` is the answer,
    or None where none was expected and the request is sent. In every case the request's buffers are the caller's again.
    """

    node_id: int
    api: AnyApi
    version: int
    tag: object
    body: Message | None
    error: PeerError | None
    sent_ms: int
    latency_ms: int


class NetworkClient:
    """Java's NetworkClient: connects to nodes, agrees on versions, sends, and asks for metadata whenever that is due.

    One thread owns it (the Sender's) and everything behind it; others may call `wakeup`, `in_flight_count` and
    `connection_count` only. `now_ms` is monotonic milliseconds from `clock`, which is read here only after a wait.
    """

    def __init__(
        self,
        config: ProducerConfig,
        metadata: MetadataUpdater,
        *,
        clock: Callable[[], int] = monotonic_ms,
        resolver: Resolver = resolve,
        open_channel: OpenChannel = PlainChannel.connect,
        rng: random.Random | None = None,
    ) -> None:
        self._reconnect_backoff_ms = config.reconnect_backoff_ms
        self._connections = Connections(config, clock, resolver=resolver, open_channel=open_channel, rng=rng)
        self._metadata = MetadataRequests(config, metadata, self._connections)
        self._aborted: list[ClientResponse] = []
        self.wakeup = self._connections.wakeup  # ends the poll that runs now or comes next; from any thread

    def ready(self, node_id: int, now_ms: int) -> bool:
        """Whether a request can be sent to this node now. Begins to connect where there is no connection and back-off allows.

        False for every node while metadata is due, so that it is asked for first.
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
        """Why the last connection to a node ended or could not be made; None while nothing is known against it."""
        failure = self._connections.failures.get(node_id)
        if failure is None:
            return None
        stuck = self._metadata.why_stuck()
        return f"{self._connections.label(node_id)}: {failure}" + (f" ({stuck})" if stuck else "")

    def poll_delay_ms(self, node_id: int, now_ms: int) -> int:
        """How long it makes no sense to ask `ready` again, unless a poll returns earlier."""
        if self._metadata.node(node_id) is None:
            return self._reconnect_backoff_ms
        return self._connections.states.poll_delay_ms(node_id, now_ms)

    def is_unavailable(self, node_id: int) -> bool:
        """Whether its connection failed and has not been begun again."""
        return self._connections.states.is_disconnected(node_id)

    def is_throttled(self, node_id: int, now_ms: int) -> bool:
        """Whether it has asked for a pause that is not over: a quota."""
        return self._connections.states.is_throttled(node_id, now_ms)

    def has_ready_nodes(self, now_ms: int) -> bool:
        return self._connections.states.has_ready_nodes(now_ms)

    def in_flight_count(self, node_id: int | None = None) -> int:
        """Requests without an answer so far, those for metadata and versions included; of all nodes for None. From any thread."""
        return self._connections.in_flight.count(node_id)

    def connection_count(self) -> int:
        """Connections, those that are being made included. From any thread."""
        return self._connections.connection_count()

    def take_counts(self) -> NetworkCounts:
        """What went over the network since the last time that this was asked."""
        return self._connections.take_counts()

    def finalized_feature(self, name: str) -> int:
        """The cluster's level of a feature, as "transaction.version": of all answers to ApiVersions so far the one of the newest
        epoch counts. 0 where it is not finalized, and before the first connection. From any thread."""
        return self._connections.features.level(name)

    def versions(self, node_id: int) -> NodeApiVersions:
        """Returns what a node that is `ready` speaks."""
        return self._connections.versions(node_id)

    def least_loaded_node(self, now_ms: int) -> int | None:
        """Whom to ask what any broker can answer; a negative id is one of bootstrap.servers. None while back-off leaves none."""
        return self._connections.least_loaded(self._metadata.candidates(), now_ms)

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
        """Send a request to a node that is `ready`; `poll` returns what becomes of it.

        `body` is the message, or makes it for the version agreed on. Record buffers in it must stay as they are until then.
        `timeout_ms` is request.timeout.ms if not given. Raises UsageError for a node that is not ready.
        """
        if not self._connections.can_send(node_id, now_ms):
            raise UsageError(f"{self._connections.label(node_id)} is not ready for a request", node_id=node_id)
        try:
            self._connections.send(
                node_id,
                api,
                body,
                now_ms,
                tag=tag,
                expects_answer=expects_answer,
                timeout_ms=timeout_ms,
                max_version=max_version,
            )
        except UnsupportedVersionError as error:
            self._aborted.append(ClientResponse(node_id, api, -1, tag, None, error, now_ms, 0))

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        """Send and receive, waiting at most `timeout_ms` for something to happen. Raises for no broker's fault."""
        until_metadata_ms = self._metadata.maybe_ask(now_ms)
        responses, self._aborted = self._aborted, []
        happened, now_ms = self._connections.poll(0 if responses else min(timeout_ms, until_metadata_ms), now_ms)
        for outcome in happened.outcomes:
            if self._metadata.is_mine(outcome):
                self._metadata.answered(outcome, now_ms)
            else:
                responses.append(_response(outcome, now_ms))
        for lost in happened.lost:
            self._metadata.lost(lost, now_ms)
        responses += [_response(outcome, now_ms) for outcome in self._metadata.maybe_rebootstrap(now_ms)]
        return responses

    def close(self) -> None:
        """Close every connection. Nothing is returned for what was in flight."""
        self._connections.close()


def _response(outcome: Outcome, now_ms: int) -> ClientResponse:
    request = outcome.request
    return ClientResponse(
        node_id=request.node_id,
        api=request.api,
        version=request.version,
        tag=request.tag,
        body=outcome.body,
        error=outcome.error,
        sent_ms=request.sent_ms,
        latency_ms=now_ms - request.sent_ms,
    )
