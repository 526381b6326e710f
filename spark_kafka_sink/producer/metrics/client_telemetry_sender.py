"""Pushes a producer's metrics to the cluster (KIP-714): sends the requests that are due and takes their answers."""

from __future__ import annotations

import base64
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from spark_kafka_sink.change_signal import Changes
from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.metrics.metrics_collector import MetricsCollector, Payload
from spark_kafka_sink.producer.metrics.sender_metrics import ProducerMetrics
from spark_kafka_sink.producer.metrics.telemetry_state import REACTIONS, Reaction, State, TelemetryState, subscription_of
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.telemetry import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.fields import ZERO_UUID
from spark_kafka_sink.records.compression import Codec

logger = logging.getLogger(__name__)

_END_TXN_OF_3_8: Final = 4

_WARNED: Final = frozenset((ErrorCode.TELEMETRY_TOO_LARGE.name, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE.name))
"""Errors that do not end the pushes and yet need somebody: the limit or the broker must be changed."""


class ClientTelemetrySender:
    """Java's NetworkClient.TelemetrySender and the sender of its ClientTelemetryReporter.

    The sender's thread calls everything but `client_instance_id`, which any thread may call. Nothing here raises: a producer
    delivers records, whatever becomes of its metrics. It never connects to a broker, but uses connections that records and
    metadata opened, and stays with one of them as long as it can: brokers remember a client by its connection. Mostly that is
    the one to a bootstrap server, where a slow receiver does not hold up records. Pushes keep it open.

    due_ms: monotonic time before which `step` has nothing to do. If it has passed and `step` has not changed it, there is no
    connection to send on, and the event that makes one ready ends the poll.
    """

    def __init__(self, config: ProducerConfig, client: NetworkClient, metrics: Callable[[], ProducerMetrics]) -> None:
        self._client = client
        self._metrics = metrics
        self._state = TelemetryState(enabled=config.enable_metrics_push)
        resource = {} if config.transactional_id is None else {"transactional_id": config.transactional_id}
        self._collector = MetricsCollector(resource, time.time_ns())
        self._node: int | None = None
        self._in_flight: Payload | None = None
        self._too_large = 0  # pushes of this subscription that a broker found too large
        self._logged: set[str] = set()
        self._registered = Changes()
        self.due_ms = self._state.due_ms

    # Any thread

    def client_instance_id(self, timeout_s: float) -> uuid.UUID | None:
        """Returns the id that a broker gave this client; None if it has not within the timeout."""
        self._registered.wait(lambda: self._state.subscription is not None, timeout_s)
        subscription = self._state.subscription
        return None if subscription is None else subscription.client_instance_id

    # Sender thread

    def step(self, now_ms: int) -> None:
        """Sends the request that is due, if there is a connection for it."""
        try:
            self._step(now_ms)
        except Exception:
            self._failed()
        self.due_ms = self._state.due_ms

    def answered(self, response: ClientResponse, now_ms: int) -> None:
        try:
            self._answered(response, now_ms)
        except Exception:
            self._failed()
        self.due_ms = self._state.due_ms

    def close(self, now_ms: int) -> bool:
        """Called repeatedly when all records are done. Returns whether the last push is done, too, or need not be waited for."""
        self._state.close(now_ms)
        self.due_ms = self._state.due_ms
        return self._state.state is State.TERMINATED

    def ms_until_end(self, now_ms: int) -> int:
        """Returns how long the last push may still take; 0 if none is waited for."""
        return self._state.ms_until_end(now_ms)

    def _step(self, now_ms: int) -> None:
        state = self._state.state
        if state not in (State.SUBSCRIPTION_NEEDED, State.PUSH_NEEDED, State.TERMINATING_PUSH_NEEDED):
            self._state.close(now_ms)  # the last answer is overdue
            return
        nodes = self._client.connected_nodes(now_ms)
        if not nodes:
            if state is State.TERMINATING_PUSH_NEEDED:
                self._state.end()
            return
        capable = [node for node in nodes if self._client.versions(node).newest(ApiKey.PUSH_TELEMETRY) >= 0]
        if not capable:
            logger.debug("broker %d does not take client metrics: it has no telemetry receiver", nodes[0])
            self._state.failed(Reaction.LATER, now_ms)
            return
        self._node = self._node if self._node in capable else capable[0]
        if state is State.SUBSCRIPTION_NEEDED:
            self._subscribe(self._node, now_ms)
        else:
            self._push(self._node, now_ms, terminating=state is State.TERMINATING_PUSH_NEEDED)

    def _subscribe(self, node: int, now_ms: int) -> None:
        known = self._state.subscription
        request = GetTelemetrySubscriptionsRequest(ZERO_UUID if known is None else known.client_instance_id)
        self._client.send(node, GET_TELEMETRY_SUBSCRIPTIONS, request, now_ms, tag=self)
        self._state.begin()

    def _push(self, node: int, now_ms: int, *, terminating: bool) -> None:
        subscription = self._state.subscription
        assert subscription is not None
        if self._client.versions(node).newest(ApiKey.END_TXN) < _END_TXN_OF_3_8:
            # Kafka 3.7 offers codecs, and hands compressed bytes to its receiver as they came (PushTelemetryRequest).
            subscription = replace(subscription, codec=Codec.NONE)
        payload = self._collector.payload(self._metrics(), subscription, time.time_ns(), without=self._too_large)
        if payload.left_out:
            names = " and ".join({"topic": "topics", "node_id": "brokers"}[each] for each in payload.left_out)
            self._log_once(
                logging.WARNING,
                "left out",
                f"client metrics of {names} are not pushed, because the broker accepts at most {subscription.max_bytes:,} bytes:"
                " raise telemetry.max.bytes of the brokers, or subscribe to fewer metrics",
            )
        request = PushTelemetryRequest(
            subscription.client_instance_id, subscription.subscription_id, terminating, subscription.codec, payload.data
        )
        self._client.send(node, PUSH_TELEMETRY, request, now_ms, tag=self)
        self._in_flight = payload
        self._state.begin()

    def _answered(self, response: ClientResponse, now_ms: int) -> None:
        payload, self._in_flight = self._in_flight, None
        body = response.body
        if response.error is not None:
            if payload is not None:
                self._collector.delivered(payload)  # maybe it was: as in Java, a delta is rather lost than counted twice
            self._node = None
            self._not_done(response, _reaction_to(response.error), str(response.error), now_ms)
        elif isinstance(body, GetTelemetrySubscriptionsResponse) and body.error_code == 0:
            self._subscribed(response, body, now_ms)
        elif isinstance(body, PushTelemetryResponse) and body.error_code == 0:
            assert payload is not None
            self._collector.delivered(payload)
            self._state.pushed(now_ms)
        else:
            code: int = body.error_code  # type: ignore[union-attr]  # both responses have one
            if code == ErrorCode.TELEMETRY_TOO_LARGE:
                self._too_large += 1
            self._not_done(response, REACTIONS.get(code, Reaction.STOP), error_facts(code).name, now_ms)

    def _subscribed(self, response: ClientResponse, body: GetTelemetrySubscriptionsResponse, now_ms: int) -> None:
        before = self._state.subscription
        try:
            subscription = subscription_of(body)
        except ProtocolError as error:
            self._not_done(response, Reaction.STOP, error.message, now_ms)
            return
        if before is not None and before.is_delta != subscription.is_delta:
            self._collector.reset()
        if before is not None and (before.subscription_id, before.max_bytes) != (
            subscription.subscription_id,
            subscription.max_bytes,
        ):
            self._too_large = 0
        self._state.subscribed(subscription, now_ms)
        self._registered.notify_all()
        text = base64.urlsafe_b64encode(subscription.client_instance_id.bytes).decode().rstrip("=")  # as brokers log it
        self._log_once(logging.INFO, "registered", f"client telemetry registered with client instance id: {text}")
        logger.debug("subscription of client metrics: %s", subscription)

    def _not_done(self, response: ClientResponse, reaction: Reaction, error: str, now_ms: int) -> None:
        said = f"broker {response.node_id}, {response.api.key.kafka_name}: {error}"
        if self._state.failed(reaction, now_ms):
            self._log_once(
                logging.WARNING, "stopped", f"client metrics are not pushed any more ({said}); records are not affected"
            )
        elif error in _WARNED:
            self._log_once(logging.WARNING, error, f"client metrics were not accepted and are pushed again later ({said})")
        else:
            logger.debug("client metrics are pushed later (%s)", said)

    def _failed(self) -> None:
        """Ends the pushes after an error in this code, which must not end the sender's thread."""
        logger.exception("client metrics are not pushed any more; records are not affected")
        self._state.end()

    def _log_once(self, level: int, cause: str, text: str) -> None:
        if cause not in self._logged:
            self._logged.add(cause)
            logger.log(level, "%s", text)


def _reaction_to(error: Exception) -> Reaction:
    """Returns the reaction to a request without an answer. An unreadable answer has closed a connection of records, too."""
    if isinstance(error, UnsupportedVersionError):
        return Reaction.LATER
    return Reaction.STOP if isinstance(error, ProtocolError) else Reaction.LOST
