"""confluent-kafka and kafka-python log in to the embedded broker, and are refused where they should be."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest
from spark_kafka_sink.protocol.apis.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.network.client import Client, framed
from tests.broker.sasl.scram_client import ScramClient

pytestmark = pytest.mark.slow

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas with importlib.resources.read_text

PASSWORD = "secret-word"
TIMEOUT_S = 20.0
SCRAM_SHA_256 = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    config = BrokerConfig(sasl_users={"alice": PASSWORD}, connection_failed_authentication_delay_ms=10)
    with EmbeddedBroker(config=config) as running:
        running.create_topic("t")
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    with Client.at(broker.bootstrap_servers) as connected:
        yield connected


def settings(broker: EmbeddedBroker, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "log_level": 0,
    }


def test_no_password_is_in_the_brokers_log(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="spark_kafka_sink"):
        for password in (PASSWORD, "wrong-word"):
            admin = AdminClient(settings(broker, "PLAIN", password))
            try:
                admin.list_topics(timeout=0.5)
            except KafkaException:
                assert password != PASSWORD

    assert "Failed authentication by PLAIN" in caplog.text
    assert "-word" not in caplog.text


class TestOnTheWire:
    def test_the_refusal_comes_whole_and_then_the_connection_ends(self, client: Client) -> None:
        client.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
        answer: Any = client.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(b"\0alice\0wrong"))

        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(EOFError):
            client.receive()

    def test_tokens_without_headers_after_a_handshake_of_version_0(self, client: Client) -> None:
        scram = ScramClient("alice", PASSWORD)
        client.ask(ApiKey.SASL_HANDSHAKE, 0, SaslHandshakeRequest("SCRAM-SHA-256"))
        client.send(framed(scram.first()))
        client.send(framed(scram.final(client.receive())))

        assert client.receive() == scram.server_signature()
        answer: Any = client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None))
        assert [topic.name for topic in answer.topics] == ["t"]

    def test_an_empty_token_is_answered_too(self, client: Client) -> None:
        client.ask(ApiKey.SASL_HANDSHAKE, 0, SaslHandshakeRequest("PLAIN"))
        client.send(framed(f"\0alice\0{PASSWORD}".encode()))

        assert client.receive() == b""

    def test_nothing_is_served_without_a_login(self, client: Client) -> None:
        with pytest.raises(EOFError):
            client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None))


def test_a_user_whose_password_was_changed_logs_in_with_the_new_one(tmp_path: Path) -> None:
    """Set by a client, kept over a restart, and deleted; the password in the broker's settings stays PLAIN's."""
    config = BrokerConfig(sasl_users={"alice": PASSWORD}, data_dir=tmp_path, connection_failed_authentication_delay_ms=10)
    with EmbeddedBroker(config=config) as broker:
        broker.create_topic("t")
        change_scram(broker, UserScramCredentialUpsertion("alice", SCRAM_SHA_256, b"new-word"))
        assert described_scram(broker) == {"alice": [4096, 8192]}
    with EmbeddedBroker(config=config) as broker:
        assert [logs_in(broker, "SCRAM-SHA-256", word) for word in (PASSWORD, "new-word")] == [False, True]
        assert [logs_in(broker, mechanism, PASSWORD) for mechanism in ("PLAIN", "SCRAM-SHA-512")] == [True, True]
        change_scram(broker, UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256))
        assert not logs_in(broker, "SCRAM-SHA-256", "new-word")
    with EmbeddedBroker(config=config) as broker:
        assert described_scram(broker) == {"alice": [4096]}


def change_scram(broker: EmbeddedBroker, change: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
    admin = AdminClient(settings(broker, "PLAIN", PASSWORD))
    for changed in admin.alter_user_scram_credentials([change]).values():
        changed.result(TIMEOUT_S)


def described_scram(broker: EmbeddedBroker) -> dict[str, list[int]]:
    """The iterations of each user's credentials, sorted."""
    admin = AdminClient(settings(broker, "PLAIN", PASSWORD))
    asked: Any = admin.describe_user_scram_credentials()
    found = asked.result(TIMEOUT_S)
    return {user: sorted(info.iterations for info in described.scram_credential_infos) for user, described in found.items()}


def logs_in(broker: EmbeddedBroker, mechanism: str, password: str) -> bool:
    client = AdminClient(settings(broker, mechanism, password) | {"retries": 0})
    try:
        client.list_topics(timeout=3.0)
    except KafkaException:
        return False
    return True
