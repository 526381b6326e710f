"""A listener with SASL reads little from who has not logged in, and as much as any other from who has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.network.processor import MAX_UNAUTHENTICATED_FRAME
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest
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


def log_in(client: Client) -> None:
    client.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
    answer = client.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(b"\0alice\0secret"))
    assert isinstance(answer, SaslAuthenticateResponse)
    assert answer.error_code == 0


def padded(size: int) -> bytes:
    """A valid frame whose message has so many bytes: those behind its fields are passed over."""
    message = request_frame(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("test", "1"))[4:]
    return framed(message + bytes(size - len(message)))


def test_before_a_login_frames_have_a_smaller_limit(client: Client) -> None:
    client.send(padded(MAX_UNAUTHENTICATED_FRAME))
    assert client.receive()
    client.send(padded(MAX_UNAUTHENTICATED_FRAME + 1)[:4])
    assert client.is_closed_by_broker()


def test_after_a_login_frames_have_the_limit_of_all(client: Client) -> None:
    log_in(client)
    client.send(request_frame(ApiKey.METADATA, 9, MetadataRequest(())))
    client.receive()
    data = framed(request_frame(ApiKey.METADATA, 9, MetadataRequest(()))[4:] + bytes(600_000))
    assert len(data) > MAX_UNAUTHENTICATED_FRAME
    client.send(data)
    assert client.receive_response(ApiKey.METADATA, 9)
