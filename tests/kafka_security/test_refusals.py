"""What is wrong with a connection or a login is told at once, by the first attempt, and says what to look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from spark_kafka_sink.errors import AuthenticationError
from tests.kafka_security.logins import Settings, at, client_credentials, stranger, with_password
from tests.kafka_security.secure_kafka import OIDC_CLIENT, USER, SecureKafka
from tests.kafka_security.writing import numbers, refusal, write
from tests.tiers import whole_but

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@dataclass(frozen=True)
class Refused:
    """settings: what a client connects with. says: expressions that its error has. listener: where."""

    settings: Callable[[SecureKafka], Settings]
    listener: str
    says: tuple[str, ...]


def _password(listener: str, mechanism: str, user: str = USER) -> Callable[[SecureKafka], Settings]:
    return lambda kafka: with_password(kafka, listener, mechanism, user, "wrong")


def _other_audience(kafka: SecureKafka) -> Settings:
    token = kafka.oidc.token(OIDC_CLIENT, scope="somebody-else")
    return at(kafka, "SASL_SSL", sasl__mechanism="OAUTHBEARER", sasl__oauthbearer__token=token)


def _plain_text(listener: str) -> Callable[[SecureKafka], Settings]:
    return lambda kafka: {"bootstrap.servers": kafka.listener(listener), "security.protocol": "PLAINTEXT"}


def _at_plain_text(protocol: str, **more: str) -> Callable[[SecureKafka], Settings]:
    def settings(kafka: SecureKafka) -> Settings:
        listener = "SASL_SSL" if protocol.startswith("SASL") else "SSL"
        return at(kafka, listener, **more) | {"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": protocol}

    return settings


_LOGIN = {"sasl__mechanism": "PLAIN", "sasl__username": USER, "sasl__password": "wrong"}
CASES: dict[str, Refused] = {
    "PLAIN-password": Refused(_password("SASL_SSL", "PLAIN"), "SASL_SSL", ("PLAIN", USER)),
    "SCRAM-password": Refused(_password("SASL_SSL", "SCRAM-SHA-512"), "SASL_SSL", ("SCRAM-SHA-512", USER)),
    "SCRAM-user": Refused(_password("SASL_PLAINTEXT", "SCRAM-SHA-256", "nobody"), "SASL_PLAINTEXT", ("SCRAM-SHA-256", "nobody")),
    "mechanism": Refused(
        lambda kafka: client_credentials(kafka, "SASL_PLAINTEXT"), "SASL_PLAINTEXT", ("OAUTHBEARER", "SCRAM-SHA-256")
    ),
    "token": Refused(_other_audience, "SASL_SSL", ("OAUTHBEARER", "invalid_token")),
    "authority": Refused(lambda kafka: at(kafka, "SSL", ssl__ca__location=str(kafka.other_ca)), "SSL", ("certificate",)),
    "expired": Refused(lambda kafka: at(kafka, "EXPIRED"), "EXPIRED", ("certificate", "expired")),
    "host": Refused(lambda kafka: at(kafka, "ELSEWHERE"), "ELSEWHERE", ("certificate", "localhost")),
    "no-certificate": Refused(lambda kafka: at(kafka, "MTLS"), "MTLS", ("certificate",)),
    "unknown-certificate": Refused(lambda kafka: stranger(kafka, kafka.other_authority), "MTLS", ("certificate|unknown",)),
    "plain-text-at-TLS": Refused(_plain_text("SSL"), "SSL", ("TLS|SSL", "security.protocol")),
    "plain-text-at-SASL_SSL": Refused(_plain_text("SASL_SSL"), "SASL_SSL", ("TLS|SSL", "security.protocol")),
    "plain-text-at-SASL": Refused(_plain_text("SASL_PLAINTEXT"), "SASL_PLAINTEXT", ("SASL", "security.protocol")),
    "TLS-at-plain-text": Refused(_at_plain_text("SSL"), "", ("TLS|SSL", "security.protocol")),
    "SASL_SSL-at-plain-text": Refused(_at_plain_text("SASL_SSL", **_LOGIN), "", ("TLS|SSL", "security.protocol")),
    "SASL-at-plain-text": Refused(_at_plain_text("SASL_PLAINTEXT", **_LOGIN), "", ("SASL", "security.protocol")),
}
IN_MAKE_TEST = ("PLAIN-password", "SCRAM-password", "authority", "host", "plain-text-at-TLS", "TLS-at-plain-text")


@pytest.mark.fault("security", "untrusted authority, wrong host name, expired certificate")
@pytest.mark.parametrize("name", whole_but(CASES, IN_MAKE_TEST, "causes of the same kinds"))
def test_it_is_told_at_once_and_says_why(secure_kafka: SecureKafka, topic: str, name: str) -> None:
    case = CASES[name]
    error = refusal(case.settings(secure_kafka), topic)
    assert isinstance(error, AuthenticationError), repr(error)
    address = secure_kafka.listener(case.listener) if case.listener else secure_kafka.bootstrap_servers
    for expression in (address.rpartition(":")[2], *case.says):
        assert any(word in error.message for word in expression.split("|")), error.message
    assert "wrong" not in error.message


@pytest.mark.whole("a setting that everybody should leave alone")
def test_a_certificate_for_another_host_is_taken_where_names_are_not_checked(
    secure_kafka: SecureKafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(at(secure_kafka, "ELSEWHERE", ssl__endpoint__identification__algorithm=""), topic)
    assert numbers(secure_kafka, topic) == [0, 1, 2]
    assert "ssl.endpoint.identification.algorithm" in caplog.text
