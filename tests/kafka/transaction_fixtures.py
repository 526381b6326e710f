"""The fixtures of tests on transactions: `kafka_tv1`, `transaction_kafka`, `kafka_with_acls`. Each Kafka starts when it is first
asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.acls import KafkaWithAcls
from tests.kafka.cluster import KafkaCluster
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.fixtures import BrokerKind
from tests.kafka.kafka import Kafka

# What StorageTool finalizes transaction.version at for producers of version 1. At 1 they would do the same (TransactionManager,
# KIP-890): only the records of the coordinator's log differ.
VERSION_1_LEVEL = 0


@pytest.fixture(scope="session")
def _embedded_kafka_tv1() -> Iterator[Kafka]:
    with EmbeddedKafka(in_memory=True, transaction_version=VERSION_1_LEVEL) as made:
        yield made


@pytest.fixture(scope="session")
def _real_kafka_tv1() -> Iterator[Kafka]:
    with KafkaCluster(features={"transaction.version": VERSION_1_LEVEL}) as made:
        yield made


@pytest.fixture
def kafka_tv1(broker_kind: BrokerKind, request: pytest.FixtureRequest) -> Kafka:
    """One broker for the whole run, as `kafka`, but with transactions of version 1. Topics: `new_topic(on=kafka_tv1)`."""
    found: Kafka = request.getfixturevalue("_embedded_kafka_tv1" if broker_kind == "embedded" else "_real_kafka_tv1")
    return found


@pytest.fixture(params=[1, 2], ids=["tv1", "tv2"])
def transaction_version(request: pytest.FixtureRequest) -> int:
    """Which version of transactions producers speak to `transaction_kafka`."""
    version: int = request.param
    return version


@pytest.fixture
def transaction_kafka(transaction_version: int, broker_kind: BrokerKind, request: pytest.FixtureRequest) -> Kafka:
    """`kafka_tv1`, then `kafka`: what is seen of the two must not differ. Topics: `new_topic(on=transaction_kafka)`."""
    # broker_kind is named for its parameters: what is asked for by name below adds none to a test.
    found: Kafka = request.getfixturevalue("kafka_tv1" if transaction_version == 1 else "kafka")
    return found


@pytest.fixture(scope="session")
def _real_kafka_with_acls() -> Iterator[KafkaWithAcls]:
    with KafkaWithAcls() as made:
        yield made


# The parameter is there for its mark: embedded brokers have no ACLs.
@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.kafka)])
def kafka_with_acls(request: pytest.FixtureRequest) -> Iterator[KafkaWithAcls]:
    """A real broker, for the whole run, that allows everything but what a test forbids; that is undone after the test."""
    made: KafkaWithAcls = request.getfixturevalue("_real_kafka_with_acls")
    yield made
    made.allow_everything()
