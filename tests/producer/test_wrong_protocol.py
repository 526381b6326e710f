"""Every security.protocol of a client at every kind of listener: where they do not match, the first append says what to set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.producer.producer import Producer
from tests.client.sasl import LOGIN, PASSWORD, USER
from tests.faults.producing import QUICK, numbers, send
from tests.faults.recording_broker import CONFIG
from tests.waiting import HOUR_MS

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@pytest.fixture(scope="module")
def brokers() -> Iterator[Mapping[str, EmbeddedBroker]]:
    """A broker for each protocol."""
    logins = replace(CONFIG, sasl_users={USER: PASSWORD}, connection_failed_authentication_delay_ms=10)
    made = {
        protocol: EmbeddedBroker(config=logins if "SASL" in protocol else CONFIG, tls="SSL" in protocol) for protocol in PROTOCOLS
    }
    for broker in made.values():
        broker.start()
        broker.create_topic("t")
    yield made
    for broker in made.values():
        broker.stop()


def producer_at(broker: EmbeddedBroker, trusted: EmbeddedBroker, protocol: str) -> Producer:
    """trusted: whose certificates the client trusts."""
    trust = {name: value for name, value in trusted.client_settings.items() if name.startswith("ssl.")}
    login = LOGIN if "SASL" in protocol else {}
    settings = {**QUICK, **login, **(trust if "SSL" in protocol else {}), "security.protocol": protocol, "max.block.ms": HOUR_MS}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_where_they_match_records_arrive(brokers: Mapping[str, EmbeddedBroker], protocol: str) -> None:
    with producer_at(brokers[protocol], brokers[protocol], protocol) as producer:
        assert send(producer, numbers([1])) == 1


# What is forgotten: TLS, the login, one of both, or neither.
LIKELIEST = {("PLAINTEXT", "SSL"), ("PLAINTEXT", "SASL_PLAINTEXT"), ("SASL_PLAINTEXT", "SASL_SSL"), ("SASL_SSL", "PLAINTEXT")}
PAIRS = [
    pytest.param(*pair, marks=() if pair in LIKELIEST else pytest.mark.whole("the other pairs take the same paths"))
    for pair in itertools.permutations(PROTOCOLS, 2)
]


@pytest.mark.parametrize(("client", "listener"), PAIRS)
def test_where_they_do_not_match_the_first_append_says_what_to_set(
    brokers: Mapping[str, EmbeddedBroker], client: str, listener: str
) -> None:
    broker = brokers[listener]
    trusted = broker if "SSL" in listener else brokers["SSL"]
    wanted = pytest.raises(AuthenticationError)
    with producer_at(broker, trusted, client) as producer, producer.scope() as scope, wanted as raised:
        scope.append("t", numbers([1]))
    text = str(raised.value)
    assert broker.bootstrap_servers in text
    assert "Set security.protocol=" in text
    advised = text.partition("Set security.protocol=")[2]
    # TLS is settled first: who has that wrong is told about logins at the next attempt.
    same_tls = [protocol for protocol in PROTOCOLS if ("SSL" in protocol) == ("SSL" in listener)]
    assert any(advised.startswith((f"{protocol},", f"{protocol} ", f"{protocol} or")) for protocol in same_tls)
    assert PASSWORD not in text
