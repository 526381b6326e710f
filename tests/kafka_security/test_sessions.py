"""Sessions that end, tokens that expire and certificates that are replaced, while records are being written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink import Producer
from spark_kafka_sink.client.sasl_sessions import SaslSessions
from spark_kafka_sink.errors import KafkaSinkError
from tests.kafka_security.logins import Settings, at, client_credentials, with_password
from tests.kafka_security.oidc_server import SHORT, SHORT_LIFE_S
from tests.kafka_security.secure_kafka import OIDC_CLIENT, SecureKafka
from tests.kafka_security.writing import Load, numbers
from tests.security.certificates import LOCAL, Authority
from tests.tiers import whole_but
from tests.waiting import until, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def expect_each_once_and_in_order(kafka: SecureKafka, topic: str, load: Load) -> None:
    found = numbers(kafka, topic)
    assert found == list(range(len(found)))
    assert len(found) >= load.written


LOGINS: dict[str, Callable[[SecureKafka], Settings]] = {
    "PLAIN": lambda kafka: with_password(kafka, "REAUTH", "PLAIN"),
    "SCRAM-SHA-256": lambda kafka: with_password(kafka, "REAUTH", "SCRAM-SHA-256"),
    "OAUTHBEARER": lambda kafka: client_credentials(kafka, "REAUTH", issuer=SHORT),
}


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The nodes of connections whose session was renewed."""
    renewed = list[int]()
    complete = SaslSessions._complete

    def completed(sessions: SaslSessions, node_id: int, login: Any, now_ms: int) -> None:
        complete(sessions, node_id, login, now_ms)
        if node_id in sessions.sessions and sessions.sessions[node_id].was_renewed:
            renewed.append(node_id)

    monkeypatch.setattr(SaslSessions, "_complete", completed)
    return renewed


@pytest.mark.fault("security", "re-authentication with requests in flight")
@pytest.mark.parametrize("name", whole_but(LOGINS, ["SCRAM-SHA-256"], "sessions of other mechanisms"))
def test_a_session_is_renewed_on_its_connection_while_records_are_written(
    secure_kafka: SecureKafka, topic: str, name: str, renewals: list[int]
) -> None:
    with Load(dict(LOGINS[name](secure_kafka)), topic) as load:
        load.wait_until_written(100)
        # On a busy machine some come too late, and the connection ends: a renewal has 5 to 15 % of the session's time.
        until(lambda: len(renewals), lambda count: count > 1 or load.error is not None, "two renewals")
        written = load.written
        load.wait_until_written(written + 100)
        assert load.error is None
    expect_each_once_and_in_order(secure_kafka, topic, load)


@pytest.mark.whole("a token's life is 5 s")
def test_a_token_that_expires_is_replaced_while_records_are_written(secure_kafka: SecureKafka, topic: str) -> None:
    with Load(dict(client_credentials(secure_kafka, "REAUTH", issuer=SHORT)), topic) as load:
        load.wait_for(SHORT_LIFE_S * 2.2)
        assert load.error is None
    expect_each_once_and_in_order(secure_kafka, topic, load)


@pytest.mark.whole("a token's life is 5 s")
def test_a_static_token_that_expires_is_an_error_and_loses_nothing_that_was_acked(
    secure_kafka: SecureKafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = secure_kafka.oidc.token(OIDC_CLIENT, SHORT)
    # If the broker ends the session while records are on their way, they may be stored. So they are sent again until this time.
    limits = {"request.timeout.ms": 5_000, "delivery.timeout.ms": 6_000}
    settings = at(secure_kafka, "REAUTH", sasl__mechanism="OAUTHBEARER", sasl__oauthbearer__token=token)
    with Load({**settings, **limits}, topic) as load:
        load.wait_until_written(100)
        load.wait_for(SHORT_LIFE_S + 21)
    assert isinstance(load.error, KafkaSinkError)
    causes: list[BaseException] = [load.error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    said = "\n".join(map(str, causes)) + caplog.text  # records may expire before the next login is refused
    assert "token of sasl.oauthbearer.token has expired" in said or "invalid_token" in said, said
    expect_each_once_and_in_order(secure_kafka, topic, load)


@pytest.fixture
def certificate(secure_kafka: SecureKafka) -> Iterator[SecureKafka]:
    """The Kafka, whose listener CHANGING gets a good certificate again after the test."""
    yield secure_kafka
    secure_kafka.replace_certificate(secure_kafka.authority.issue("broker", LOCAL))


def test_a_brokers_new_certificate_and_the_files_that_trust_it_are_taken_without_a_restart(
    certificate: SecureKafka, topic: str, tmp_path: Path
) -> None:
    kafka = certificate
    trusted = tmp_path / "ca.pem"
    trusted.write_text(kafka.authority.chain_pem)
    # So that the producer connects anew while it runs.
    settings = at(kafka, "CHANGING", ssl__ca__location=str(trusted), connections__max__idle__ms="300")
    with Producer(settings) as producer:
        producer.send(topic, "0").result(20)
        other = Authority.root("next-ca")
        trusted.write_text(other.chain_pem)
        kafka.replace_certificate(other.issue("broker", LOCAL))
        wait_until(lambda: producer.metrics()["producer-metrics"]["connection-count"] == 0, "idle connections closed")
        producer.send(topic, "1").result(20)
    assert numbers(kafka, topic) == [0, 1]
