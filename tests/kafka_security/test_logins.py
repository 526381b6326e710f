"""Our client writes to real Kafka through TLS, mTLS and every SASL mechanism, and `check` says how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from spark_kafka_sink.spark.driver.check import CheckReport, check
from tests.kafka_security.logins import ONE_OF_EACH, Settings, at, with_password
from tests.kafka_security.secure_kafka import OIDC_CLIENT, USER, SecureKafka
from tests.kafka_security.writing import numbers, write

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

Login = Callable[[SecureKafka], Settings]


def expect_written(kafka: SecureKafka, topic: str, settings: dict[str, object]) -> None:
    write(settings, topic)
    assert numbers(kafka, topic) == [0, 1, 2]


@pytest.mark.parametrize("login", ONE_OF_EACH.values(), ids=list(ONE_OF_EACH))
def test_each_mechanism_writes(secure_kafka: SecureKafka, topic: str, login: Login) -> None:
    expect_written(secure_kafka, topic, dict(login(secure_kafka)))


def test_a_kerberos_ticket_writes(secure_kafka: SecureKafka, topic: str, keytab: Path) -> None:
    pytest.importorskip("gssapi", reason="python-gssapi is not installed: pip install gssapi, which needs libkrb5-dev")
    settings = at(secure_kafka, "SASL_SSL", sasl__mechanism="GSSAPI", sasl__kerberos__service__name="kafka")
    expect_written(secure_kafka, topic, dict(settings))


def test_a_callable_that_makes_tokens_is_told_the_host(secure_kafka: SecureKafka, topic: str) -> None:
    hosts: list[str] = []

    def token(host: str) -> str:
        hosts.append(host)
        return secure_kafka.oidc.token(OIDC_CLIENT)

    login: dict[str, object] = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": token}
    expect_written(secure_kafka, topic, at(secure_kafka, "SASL_SSL") | login)
    assert set(hosts) == {"localhost"}


# `check` on real Kafka with TLS and logins


def checked(settings: Mapping[str, str], topic: str) -> CheckReport:
    return check({**{f"kafka.{name}": value for name, value in settings.items()}, "topic": topic}, timeout=30)


def texts(report: CheckReport, name: str) -> list[str]:
    return [line.text for line in report.lines if line.name == name]


def test_a_login_over_tls_is_a_tick(secure_kafka: SecureKafka, topic: str) -> None:
    report = checked(with_password(secure_kafka, "SASL_SSL", "SCRAM-SHA-512"), topic)
    assert report.ok, str(report)
    assert texts(report, "login") == [f"User:{USER}, by SCRAM-SHA-512"]
    assert "localhost" in texts(report, "TLS")[0]


def test_no_client_certificate_is_a_cross(secure_kafka: SecureKafka, topic: str) -> None:
    report = checked(at(secure_kafka, "MTLS"), topic)
    assert {line.name for line in report.failed} <= {"TLS", "login"}
    assert "[AUTHENTICATION]" in report.failed[0].text
    assert "certificate" in report.failed[0].text


def test_a_wrong_password_is_a_cross_of_the_login(secure_kafka: SecureKafka, topic: str) -> None:
    report = checked(with_password(secure_kafka, "SASL_SSL", "SCRAM-SHA-512", password="no"), topic)
    assert [line.name for line in report.failed] == ["login"]
    assert "[AUTHENTICATION]" in report.failed[0].text


def test_tls_to_a_port_of_plain_text_is_a_cross_of_tls(secure_kafka: SecureKafka, topic: str) -> None:
    tls = at(secure_kafka, "SSL", bootstrap__servers=secure_kafka.listener("SASL_PLAINTEXT"))
    report = checked(tls, topic)
    assert [line.name for line in report.failed] == ["TLS"]
    assert "speaks plain text" in texts(report, "TLS")[0]
