"""A subscription to the metrics of clients, and the receiver of what they push (KIP-714)."""

from __future__ import annotations

import threading
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.protocol.apis.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import ZERO_UUID
from spark_kafka_sink.records.compression import Codec, decompress

DEFAULT_INTERVAL_MS: Final = 300_000
MAX_BYTES: Final = 1024 * 1024
"""Kafka's default of telemetry.max.bytes."""

_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
_ASK_AT_ONCE: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_MOST_TIMES_LARGER: Final = 100
_MOST_CLIENTS: Final = 16_384


@dataclass(frozen=True, slots=True)
class PushedMetrics:
    """One push of a client.

    Attributes:
        client_id: the client's `client.id`.
        client_instance_id: the id that the client got with its subscription.
        terminating: whether it is the client's last push.
        data: OpenTelemetry's MetricsData v1 in Protobuf, decompressed.
    """

    client_id: str | None
    client_instance_id: uuid.UUID
    terminating: bool
    data: bytes


@dataclass(slots=True)
class _Client:
    """The state of one client (Kafka's ClientMetricsInstance). Times are monotonic ms. last_error: of its last push."""

    version: int
    last_get_ms: int | None = None
    last_push_ms: int | None = None
    is_terminated: bool = False
    last_error: ErrorCode = ErrorCode.NONE


class ClientMetricsManager:
    """Kafka's ClientMetricsManager with one subscription, which matches every client, and one receiver. Thread-safe.

    All brokers of an EmbeddedBroker share it, so that a client is known to each of them. It outlives them.

    Args:
        receive: called with each push, one at a time, in a thread of the broker. If it raises, the client gets INVALID_RECORD.
        metrics: prefixes of the wanted names. ("*",): all; (): none.
        interval_ms: interval at which each client pushes.
        delta: whether counters are pushed as differences. Kafka always asks for these.
        max_bytes: maximum size of a compressed push.
    """

    def __init__(
        self,
        receive: Callable[[PushedMetrics], object],
        *,
        metrics: Sequence[str] = ("*",),
        interval_ms: int = DEFAULT_INTERVAL_MS,
        delta: bool = True,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._receive = receive
        self._metrics = tuple(metrics)
        self._interval_ms = interval_ms
        self._delta = delta
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._version = 0
        self._clients: dict[uuid.UUID, _Client] = {}

    def subscribe(self, metrics: Sequence[str], interval_ms: int | None = None) -> None:
        """Replaces the subscription. Clients learn it after their next push, which gets UNKNOWN_SUBSCRIPTION_ID.

        Args:
            metrics: prefixes of the wanted names.
            interval_ms: interval at which each client pushes. None keeps the present one.
        """
        with self._lock:
            self._metrics = tuple(metrics)
            self._interval_ms = self._interval_ms if interval_ms is None else interval_ms
            self._version += 1

    def subscription(self, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
        """Returns the subscription of a client. Raises ApiException if the client asks too early."""
        now_ms = time.monotonic_ns() // 1_000_000
        client_id = request.client_instance_id
        if client_id == ZERO_UUID:
            client_id = uuid.uuid4()
        with self._lock:
            client = self._client(client_id)
            last_ms = max((each for each in (client.last_get_ms, client.last_push_ms) if each is not None), default=None)
            if last_ms is None or now_ms - last_ms >= self._interval_ms:
                client.last_get_ms = now_ms
            elif client.last_error not in _ASK_AT_ONCE:
                raise ApiException(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            client.last_error = ErrorCode.NONE
            return GetTelemetrySubscriptionsResponse(
                client_instance_id=client_id,
                subscription_id=self._subscription_id(client_id),
                accepted_compression_types=_CODECS,
                push_interval_ms=self._interval_ms,
                telemetry_max_bytes=self._max_bytes,
                delta_temporality=self._delta,
                requested_metrics=self._metrics,
            )

    def push(self, request: PushTelemetryRequest, client_id: str | None) -> None:
        """Takes a push. Raises ApiException if it is refused, or if the receiver raises."""
        if request.client_instance_id == ZERO_UUID:
            raise ApiException(ErrorCode.INVALID_REQUEST)
        with self._lock:
            client = self._client(request.client_instance_id)
            try:
                self._take(request, client, client_id)
                client.last_error = ErrorCode.NONE
            except ApiException as error:
                client.last_error = error.code
                raise

    def _take(self, request: PushTelemetryRequest, client: _Client, client_id: str | None) -> None:
        self._check(request, client)
        if request.metrics:
            try:
                codec = Codec(request.compression_type)
                data = decompress(codec, request.metrics, self._max_bytes * _MOST_TIMES_LARGER)
                self._receive(PushedMetrics(client_id, request.client_instance_id, request.terminating, data))
            except (ProtocolError, zlib.error) as error:
                raise ApiException(ErrorCode.INVALID_RECORD, str(error)) from error
            except Exception as error:  # a receiver may raise anything
                raise ApiException(ErrorCode.INVALID_RECORD, f"the receiver failed: {error}") from error

    def _check(self, request: PushTelemetryRequest, client: _Client) -> None:
        """Checks in Kafka's order (ClientMetricsManager.validatePushRequest)."""
        now_ms = time.monotonic_ns() // 1_000_000
        was_terminated = client.is_terminated
        client.is_terminated = request.terminating
        if was_terminated:
            raise ApiException(ErrorCode.INVALID_REQUEST)
        # The first push after a subscription may come early, because clients spread it.
        follows_get = client.last_get_ms is not None and (client.last_push_ms is None or client.last_get_ms > client.last_push_ms)
        is_due = follows_get or client.last_push_ms is None or now_ms - client.last_push_ms >= self._interval_ms
        if is_due:
            client.last_push_ms = now_ms
        elif not request.terminating:
            raise ApiException(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if request.subscription_id != self._subscription_id(request.client_instance_id):
            raise ApiException(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type not in {codec.value for codec in Codec}:
            raise ApiException(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self._max_bytes:
            raise ApiException(ErrorCode.TELEMETRY_TOO_LARGE)

    def _client(self, client_id: uuid.UUID) -> _Client:
        """Returns the state of a client, which starts again with each subscription, so that the client may ask at once."""
        client = self._clients.get(client_id)
        if client is None or client.version < self._version:
            if len(self._clients) >= _MOST_CLIENTS:
                del self._clients[next(iter(self._clients))]
            client = self._clients[client_id] = _Client(self._version)
        return client

    def _subscription_id(self, client_id: uuid.UUID) -> int:
        wanted = repr((self._metrics, self._interval_ms)).encode()
        return (zlib.crc32(wanted) ^ zlib.crc32(client_id.bytes)) - (1 << 31)
