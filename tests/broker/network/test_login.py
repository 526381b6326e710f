"""A listener with SASL reads little from who has not logged in, and as much as any other from who has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.network.processor import MAX_UNAUTHENTICATED_FRAME
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import ApiVersionsRequest
from tests.broker.network.client import Client, framed, request_frame


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BrokerConfig(num_network_threads=1, sasl_users={"alice": "secret"})) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(broker.server(1).port) as client:
        yield client


@pytest.fixture
def other(broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(broker.server(1).port) as client:
        yield client


def padded(size: int) -> bytes:
    """A valid frame whose message has so many bytes: those behind its fields are passed over."""
    message = request_frame(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("test", "1"))[4:]
    return framed(message + bytes(size - len(message)))


def test_before_a_login_frames_have_a_smaller_limit(client: Client) -> None:
    client.send(padded(MAX_UNAUTHENTICATED_FRAME))
    assert client.receive()
    client.send(padded(MAX_UNAUTHENTICATED_FRAME + 1)[:4])
    assert client.is_closed_by_broker()
