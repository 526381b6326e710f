"""The listeners are what they say: confluent-kafka and Java's tools log in to each, and are refused where they should be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.kafka import java
from tests.kafka.witness import read_topic
from tests.kafka_security.logins import Settings, at, client_credentials, mtls_by_librdkafkas_names, with_password
from tests.kafka_security.secure_kafka import ODD, ODD_PASSWORD, USER, SecureKafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TIMEOUT_S = 30.0
OTHER_CLIENTS = "judges the harness rather than our client"


def write(settings: Settings, topic: str, values: list[bytes]) -> None:
    """Writes with confluent-kafka; raises KafkaException for what is not acked, or was refused for good."""
    errors: list[KafkaError] = []
    producer = Producer({**settings, "log_level": 0, "error_cb": lambda _: None, "broker.address.family": "v4"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error is not None else None)
    left = producer.flush(TIMEOUT_S)
    assert (left, errors) == (0, [])


def refusal(settings: Settings) -> KafkaError:
    """Returns the first error that confluent-kafka tells of a connection."""
    told: list[KafkaError] = []
    config: dict[str, Any] = {**settings, "log_level": 0, "error_cb": told.append, "broker.address.family": "v4"}
    admin = AdminClient(config)
    while not told:
        admin.poll(0.1)
    return told[0]


def oidc(kafka: SecureKafka, listener: str) -> Settings:
    return {**client_credentials(kafka, listener), "sasl.oauthbearer.method": "oidc"}


LOGINS: dict[str, Callable[[SecureKafka], Settings]] = {
    "SSL": lambda kafka: at(kafka, "SSL"),
    "mTLS": mtls_by_librdkafkas_names,
    "CHANGING": lambda kafka: at(kafka, "CHANGING"),
    "PLAIN": lambda kafka: with_password(kafka, "SASL_PLAINTEXT", "PLAIN"),
    "PLAIN-TLS": lambda kafka: with_password(kafka, "SASL_SSL", "PLAIN"),
    "SCRAM-SHA-256": lambda kafka: with_password(kafka, "SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda kafka: with_password(kafka, "SASL_SSL", "SCRAM-SHA-512"),
    "SCRAM-with-quotes": lambda kafka: with_password(kafka, "SASL_SSL", "SCRAM-SHA-256", ODD, ODD_PASSWORD),
    "OAUTHBEARER": lambda kafka: oidc(kafka, "SASL_SSL"),
    "REAUTH": lambda kafka: with_password(kafka, "REAUTH", "SCRAM-SHA-256"),
}


@pytest.mark.whole(OTHER_CLIENTS)
@pytest.mark.parametrize("login", LOGINS.values(), ids=list(LOGINS))
def test_confluent_kafka_writes(secure_kafka: SecureKafka, topic: str, login: Callable[[SecureKafka], Settings]) -> None:
    write(login(secure_kafka), topic, [b"1", b"2"])
    assert [record.value for record in read_topic(secure_kafka.direct_servers, topic)] == [b"1", b"2"]


REFUSED: dict[str, tuple[Callable[[SecureKafka], Settings], str]] = {
    "password": (lambda kafka: with_password(kafka, "SASL_SSL", "PLAIN", password="wrong"), "Authentication failed"),
    "SCRAM-password": (
        lambda kafka: with_password(kafka, "SASL_SSL", "SCRAM-SHA-256", password="wrong"),
        "Authentication failed",
    ),
    "mechanism": (lambda kafka: oidc(kafka, "SASL_PLAINTEXT"), "mechanism"),
    "authority": (lambda kafka: at(kafka, "SSL", ssl__ca__location=str(kafka.other_ca)), "certificate"),
    "expired": (lambda kafka: at(kafka, "EXPIRED"), "certificate"),
    "host": (lambda kafka: at(kafka, "ELSEWHERE"), "certificate"),
    "no-certificate": (lambda kafka: at(kafka, "MTLS"), "certificate"),
}


@pytest.mark.whole(OTHER_CLIENTS)
@pytest.mark.parametrize(("login", "match"), REFUSED.values(), ids=list(REFUSED))
def test_confluent_kafka_is_refused(secure_kafka: SecureKafka, login: Callable[[SecureKafka], Settings], match: str) -> None:
    assert match in refusal(login(secure_kafka)).str()


@pytest.mark.whole(OTHER_CLIENTS)
def test_javas_producer_logs_in_with_a_ticket(secure_kafka: SecureKafka, topic: str, keytab: Path, tmp_path: Path) -> None:
    """confluent-kafka's wheels come without Kerberos."""
    assert secure_kafka.kdc is not None
    login = tmp_path / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{keytab}" principal="{USER}";\n'
    )
    java_writes(secure_kafka, topic, login, options=[f"-Djava.security.krb5.conf={secure_kafka.kdc.krb5_conf}"])


@pytest.mark.whole(OTHER_CLIENTS)
def test_javas_producer_logs_in_with_a_delegation_token(secure_kafka: SecureKafka, topic: str, tmp_path: Path) -> None:
    """librdkafka does not speak of tokens when it speaks SCRAM."""
    login = tmp_path / "client.properties"
    token_id, hmac = secure_kafka.delegation_token()
    login.write_text(secure_kafka.java_login("SCRAM-SHA-256", token_id, hmac, 'tokenauth="true"'))
    java_writes(secure_kafka, topic, login)


def java_writes(kafka: SecureKafka, topic: str, login: Path, options: list[str] | None = None) -> None:
    """Writes three numbers with Kafka's VerifiableProducer and reads them back."""
    java.run(
        "org.apache.kafka.tools.VerifiableProducer",
        *("--bootstrap-server", kafka.listener("SASL_PLAINTEXT"), "--producer.config", str(login)),
        *("--topic", topic, "--max-messages", "3"),
        timeout_s=60,
        options=options or (),
    )
    assert [record.value for record in read_topic(kafka.direct_servers, topic)] == [b"0", b"1", b"2"]
