"""The sink's brokers, TLS and login under the names of librdkafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.verify.read_back import consumer_settings, whole_topic

BROKER = {"bootstrap.servers": "localhost:9092"}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ana" password="secret";'
PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ana", "sasl.password": "secret"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {}),
        ({"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}, {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}),
        (PLAIN, PLAIN),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}, PLAIN),
        (
            {**PLAIN, "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"},
            {**PLAIN, "ssl.ca.location": "ca.pem"},
        ),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""},
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://login/token",
                "sasl.oauthbearer.client.id": "id",
                "sasl.oauthbearer.client.secret": "secret",
            },
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://login/token",
                "sasl.oauthbearer.client.id": "id",
                "sasl.oauthbearer.client.secret": "secret",
            },
        ),
    ],
)
def test_they_are_the_same_for_confluent_kafka(given: dict[str, str], wanted: dict[str, str]) -> None:
    assert consumer_settings(producer_config({**BROKER, **given})) == {**BROKER, **wanted}


def test_a_reference_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "from the environment")
    found = consumer_settings(producer_config({**BROKER, **PLAIN, "sasl.password": "${env:KAFKA_PASSWORD}"}))
    assert found["sasl.password"] == "from the environment"


def test_librdkafka_knows_the_names() -> None:
    found = consumer_settings(producer_config({**BROKER, **PLAIN}))
    Consumer({**found, "group.id": "none", "log_level": 0}).close()


def test_a_setting_that_librdkafka_refuses_is_an_error_of_options(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"settings of confluent-kafka's consumer: .*nonsense"):
        whole_topic("t", {**BROKER, "nonsense": "1"})
