"""A broker with a receiver takes clients' metrics by Kafka's rules, also those of librdkafka; without one it has no such APIs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from spark_kafka_sink.broker import BrokerConfig, ClientMetricsManager, EmbeddedBroker, PushedMetrics
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import ZERO_UUID
from spark_kafka_sink.records.compression import Codec, compress
from tests.broker.network.client import Client
from tests.producer.metrics.otlp_witness import read_any
from tests.waiting import until

TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
LONG_MS = 3_600_000


@contextmanager
def client_of(manager: ClientMetricsManager | None, **more: Any) -> Iterator[Client]:
    config = BrokerConfig(client_metrics=manager)
    with EmbeddedBroker(config=config, **more) as broker, Client.at(broker.bootstrap_servers) as client:
        yield client


def subscribed(client: Client, client_id: uuid.UUID = ZERO_UUID) -> GetTelemetrySubscriptionsResponse:
    answer = client.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, GetTelemetrySubscriptionsRequest(client_id))
    assert isinstance(answer, GetTelemetrySubscriptionsResponse)
    return answer


def push(
    client: Client,
    found: GetTelemetrySubscriptionsResponse,
    *,
    data: bytes = b"metrics",
    codec: int = Codec.NONE,
    terminating: bool = False,
    client_id: uuid.UUID | None = None,
) -> int:
    request = PushTelemetryRequest(
        found.client_instance_id if client_id is None else client_id,
        found.subscription_id,
        terminating,
        codec,
        data,
    )
    answer: Any = client.ask(ApiKey.PUSH_TELEMETRY, 0, request)
    return int(answer.error_code)


@pytest.mark.parametrize(("release", "is_served"), [("2.1", False), ("3.7", True)])
def test_the_apis_are_served_since_3_7_if_there_is_a_receiver(release: str, is_served: bool) -> None:
    with client_of(ClientMetricsManager(print), like=release) as client:
        served = {each.api_key for each in client.api_versions().api_keys}
    assert served & TELEMETRY == (TELEMETRY if is_served else set())


def test_a_client_gets_an_id_and_its_pushes_arrive_decompressed() -> None:
    got: list[PushedMetrics] = []
    with client_of(ClientMetricsManager(got.append, metrics=("a", "b"), interval_ms=LONG_MS)) as client:
        found = subscribed(client)
        assert push(client, found, data=compress(Codec.ZSTD, 1, [b"metrics"]), codec=Codec.ZSTD) == ErrorCode.NONE
        assert push(client, found, data=b"last", terminating=True) == ErrorCode.NONE  # before its time
    assert found.client_instance_id != ZERO_UUID
    assert (found.requested_metrics, found.push_interval_ms, found.delta_temporality) == (("a", "b"), LONG_MS, True)
    assert got == [
        PushedMetrics("test", found.client_instance_id, False, b"metrics"),
        PushedMetrics("test", found.client_instance_id, True, b"last"),
    ]


def test_what_comes_before_its_time_is_throttled() -> None:
    with client_of(ClientMetricsManager(lambda push: None, interval_ms=LONG_MS)) as client:
        found = subscribed(client)
        assert subscribed(client, found.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert push(client, found) == ErrorCode.NONE  # the first one may come early
        assert push(client, found) == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"client_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"codec": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"data": bytes(101)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"data": b"no frame", "codec": Codec.LZ4}, ErrorCode.INVALID_RECORD),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_wrong_push_is_refused(change: dict[str, Any], code: ErrorCode) -> None:
    with client_of(ClientMetricsManager(lambda push: None, max_bytes=100)) as client:
        assert push(client, subscribed(client), **change) == code


def test_a_receiver_that_raises_refuses_the_push() -> None:
    def broken(_push: PushedMetrics) -> None:
        raise OSError("disk full")

    with client_of(ClientMetricsManager(broken)) as client:
        assert push(client, subscribed(client)) == ErrorCode.INVALID_RECORD


@pytest.mark.slow
def test_librdkafka_pushes_its_metrics() -> None:
    got: list[PushedMetrics] = []
    config = BrokerConfig(client_metrics=ClientMetricsManager(got.append, interval_ms=200))
    with EmbeddedBroker(config=config) as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "other"})
        producer.produce("t", b"value")
        producer.flush(60)
        until(lambda: len(got), lambda count: count > 0, "pushes")
        del producer
    assert got[0].client_id == "other"
    assert any(name.startswith("org.apache.kafka.producer.") for name in read_any(got[0].data).names())
