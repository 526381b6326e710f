"""Handlers of client metrics (KIP-714). A broker without a receiver does not serve them, and ApiVersions says so."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.apis.telemetry import GetTelemetrySubscriptionsResponse, PushTelemetryResponse


def handle_get_telemetry_subscriptions(services: BrokerServices, request: Request) -> GetTelemetrySubscriptionsResponse:
    manager = services.config.client_metrics
    assert manager is not None
    return manager.subscription(request.body)


def handle_push_telemetry(services: BrokerServices, request: Request) -> PushTelemetryResponse:
    manager = services.config.client_metrics
    assert manager is not None
    manager.push(request.body, request.header.client_id)
    return PushTelemetryResponse()
