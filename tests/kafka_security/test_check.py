"""`check` on real Kafka with TLS and logins."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_kafka_sink.spark.driver.check import CheckReport, check
from tests.kafka_security.logins import at, mtls_by_files, with_password
from tests.kafka_security.secure_kafka import USER, SecureKafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def checked(settings: Mapping[str, str], topic: str) -> CheckReport:
    return check({**{f"kafka.{name}": value for name, value in settings.items()}, "topic": topic}, timeout=30)


def texts(report: CheckReport, name: str) -> list[str]:
    return [line.text for line in report.lines if line.name == name]


def test_a_login_over_tls_is_a_tick(secure_kafka: SecureKafka, topic: str) -> None:
    report = checked(with_password(secure_kafka, "SASL_SSL", "SCRAM-SHA-512"), topic)
    assert report.ok, str(report)
    assert texts(report, "login") == [f"User:{USER}, by SCRAM-SHA-512"]
    assert "localhost" in texts(report, "TLS")[0]


def test_a_client_certificate_is_a_tick(secure_kafka: SecureKafka, topic: str) -> None:
    assert checked(mtls_by_files(secure_kafka), topic).ok


def test_no_client_certificate_is_a_cross(secure_kafka: SecureKafka, topic: str) -> None:
    report = checked(at(secure_kafka, "MTLS"), topic)
    assert {line.name for line in report.failed} <= {"TLS", "login"}
    assert "[AUTHENTICATION]" in report.failed[0].text
    assert "certificate" in report.failed[0].text


def test_a_wrong_password_is_a_cross_of_the_login(secure_kafka: SecureKafka, topic: str) -> None:
    report = checked(with_password(secure_kafka, "SASL_SSL", "SCRAM-SHA-512", password="no"), topic)
    assert [line.name for line in report.failed] == ["login"]
    assert "[AUTHENTICATION]" in report.failed[0].text


def test_plain_text_to_a_port_of_tls_is_a_cross_of_tls(secure_kafka: SecureKafka, topic: str) -> None:
    report = checked({"bootstrap.servers": secure_kafka.listener("SSL")}, topic)
    assert [line.name for line in report.failed] == ["TLS"]


def test_tls_to_a_port_of_plain_text_is_a_cross_of_tls(secure_kafka: SecureKafka, topic: str) -> None:
    tls = at(secure_kafka, "SSL", bootstrap__servers=secure_kafka.listener("SASL_PLAINTEXT"))
    report = checked(tls, topic)
    assert [line.name for line in report.failed] == ["TLS"]
    assert "speaks plain text" in texts(report, "TLS")[0]
