"""Our client writes to real Kafka through TLS, mTLS and every SASL mechanism, however the settings say it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka_security.logins import ONE_OF_EACH, OTHER_WAYS, Settings, at
from tests.kafka_security.secure_kafka import OIDC_CLIENT, SecureKafka
from tests.kafka_security.writing import numbers, write

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

Login = Callable[[SecureKafka], Settings]


def expect_written(kafka: SecureKafka, topic: str, settings: dict[str, object]) -> None:
    write(settings, topic)
    assert numbers(kafka, topic) == [0, 1, 2]


@pytest.mark.parametrize("login", ONE_OF_EACH.values(), ids=list(ONE_OF_EACH))
def test_each_mechanism_writes(secure_kafka: SecureKafka, topic: str, login: Login) -> None:
    expect_written(secure_kafka, topic, dict(login(secure_kafka)))


@pytest.mark.whole("the same mechanisms, said otherwise")
@pytest.mark.parametrize("login", OTHER_WAYS.values(), ids=list(OTHER_WAYS))
def test_what_can_be_said_in_several_ways_can_be_said_in_each(secure_kafka: SecureKafka, topic: str, login: Login) -> None:
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
