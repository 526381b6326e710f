"""Queries to commit batches of, brokers with faults, and drivers that die where a test says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from tests.exactly_once.opened import client_of, new_id
from tests.exactly_once.queries import Cut, CutError, Query
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka


@pytest.fixture(scope="session")
def _clients() -> Iterator[dict[str, ClusterClient]]:
    clients = dict[str, ClusterClient]()
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture
def query(kafka: Kafka, new_topic: NewTopic, _clients: dict[str, ClusterClient]) -> Query:
    return _query(kafka, new_topic, _clients)


@pytest.fixture
def any_query(transaction_kafka: Kafka, new_topic: NewTopic, _clients: dict[str, ClusterClient]) -> Query:
    """With each version of transactions."""
    return _query(transaction_kafka, new_topic, _clients)


def _query(kafka: Kafka, new_topic: NewTopic, clients: dict[str, ClusterClient]) -> Query:
    if kafka.bootstrap_servers not in clients:
        clients[kafka.bootstrap_servers] = client_of(kafka)
    return Query(kafka, clients[kafka.bootstrap_servers], new_topic(on=kafka), "committer-test-commits")


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    """`with cut("prepared.after")`: the driver dies at this failpoint."""

    @contextmanager
    def dies(where: str) -> Iterator[None]:
        def reach(name: str, batch: int) -> None:
            if name == where:
                raise CutError

        with monkeypatch.context() as patched, pytest.raises(CutError):
            patched.setattr(failpoints, "reach", reach)
            yield

    return dies


# A broker whose faults hit nobody else


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_memory=True) as made:
        yield made


@pytest.fixture(scope="module")
def _broker_client(broker: EmbeddedKafka) -> Iterator[ClusterClient]:
    with client_of(broker) as made:
        yield made


@pytest.fixture
def broker_query(broker: EmbeddedKafka, _broker_client: ClusterClient) -> Iterator[Query]:
    """A query on that broker, with a log of its own: what one test leaves open there would hold the next one back."""
    topic = new_id("faults")
    broker.create_topic(topic, 1, 1, {})
    yield Query(broker, _broker_client, topic, f"{topic}-commits")
    broker.broker.faults.clear()


# Commit logs


@pytest.fixture
def settings(transaction_kafka: Kafka) -> Iterator[CommitLogSettings]:
    """Of a topic of this test's own, which is not there yet."""
    made = CommitLogSettings(new_id("commits"), partitions=3)
    yield made
    if made.topic in transaction_kafka.metadata().topics:
        transaction_kafka.delete_topic(made.topic)


@pytest.fixture
def client(transaction_kafka: Kafka) -> Iterator[ClusterClient]:
    with client_of(transaction_kafka) as made:
        yield made


@pytest.fixture
def log(client: ClusterClient, settings: CommitLogSettings) -> CommitLog:
    return CommitLog(client, settings)
