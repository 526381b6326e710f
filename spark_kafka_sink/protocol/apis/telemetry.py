"""GetTelemetrySubscriptions and PushTelemetry: which metrics the cluster wants of a client, and the metrics (KIP-714)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import (
    BOOLEAN,
    BYTES,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    ZERO_UUID,
    ArrayOf,
    Message,
    message,
    wire,
)

# GetTelemetrySubscriptions (71)


@message
class GetTelemetrySubscriptionsRequest(Message):
    """A request. A client's first one has ZERO_UUID as the id, and the response assigns one."""

    client_instance_id: uuid.UUID = wire(UUID)


@message
class GetTelemetrySubscriptionsResponse(Message):
    """A subscription. `requested_metrics` are prefixes of names: "*" alone stands for all metrics, an empty list for none."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    client_instance_id: uuid.UUID = wire(UUID, default=ZERO_UUID)
    subscription_id: int = wire(INT32, default=0)
    accepted_compression_types: Sequence[int] = wire(ArrayOf(INT8), default=())
    push_interval_ms: int = wire(INT32, default=0)
    telemetry_max_bytes: int = wire(INT32, default=0)
    delta_temporality: bool = wire(BOOLEAN, default=False)
    requested_metrics: Sequence[str] = wire(ArrayOf(STRING), default=())


GET_TELEMETRY_SUBSCRIPTIONS = Api(
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, 0, GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
)


# PushTelemetry (72)


@message
class PushTelemetryRequest(Message):
    """A push. `metrics`: OpenTelemetry's MetricsData v1 in Protobuf, compressed. `terminating`: it is the client's last one."""

    client_instance_id: uuid.UUID = wire(UUID)
    subscription_id: int = wire(INT32)
    terminating: bool = wire(BOOLEAN)
    compression_type: int = wire(INT8)
    metrics: bytes = wire(BYTES)


@message
class PushTelemetryResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)


PUSH_TELEMETRY = Api(ApiKey.PUSH_TELEMETRY, 0, 0, 0, PushTelemetryRequest, PushTelemetryResponse)
