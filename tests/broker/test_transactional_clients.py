"""Clients that are not ours write transactions and read what is committed."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.cluster import CoordinatorType
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.producer.producer import Producer as OurProducer
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.waiting import until

pytestmark = pytest.mark.slow

TIMEOUT_S = 30.0


def producer(broker: EmbeddedBroker | Kafka, identity: str) -> Producer:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "transactional.id": identity,
        "transaction.timeout.ms": 60_000,
        "linger.ms": 0,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    made = Producer(settings)
    made.init_transactions(TIMEOUT_S)
    return made


def write(writer: Producer, topic: str, *values: str) -> None:
    for index, value in enumerate(values):
        writer.produce(topic, value, partition=index % 2)
    assert writer.flush(TIMEOUT_S) == 0


def read(broker: EmbeddedBroker | Kafka, topic: str, isolation: str = "read_committed") -> list[str]:
    found = read_topic(broker.bootstrap_servers, topic, isolation_level=isolation)
    return sorted((record.value or b"").decode() for record in found)


def until_read(broker: EmbeddedBroker | Kafka, topic: str, values: list[str]) -> None:
    """A commit is answered when it is certain; the markers that let consumers read on are written after that."""
    until(lambda: read(broker, topic), lambda found: found == values, "read")


def test_nothing_of_a_running_transaction_is_read_nor_what_follows_it(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    writer, other = producer(kafka, topic), producer(kafka, f"{topic}-2")
    writer.begin_transaction()
    write(writer, topic, "first", "second")
    other.begin_transaction()
    write(other, topic, "later", "latest")
    other.commit_transaction(TIMEOUT_S)
    assert read(kafka, topic) == []
    assert read(kafka, topic, "read_uncommitted") == ["first", "later", "latest", "second"]
    writer.commit_transaction(TIMEOUT_S)
    until_read(kafka, topic, ["first", "later", "latest", "second"])


def test_a_transaction_outlives_its_broker(tmp_path: Path) -> None:
    broker = EmbeddedBroker(config=BrokerConfig(data_dir=tmp_path))
    with broker:
        topic = broker.create_topic("restarted", 2)
        writer = producer(broker, "restarted")
        writer.begin_transaction()
        write(writer, topic, "before", "before")
        broker.stop()
        broker.start()
        write(writer, topic, "after", "after")
        writer.commit_transaction(TIMEOUT_S)
        until_read(broker, topic, ["after", "after", "before", "before"])


def test_a_transaction_outlives_its_coordinator() -> None:
    with EmbeddedBroker(3) as brokers:
        topic = brokers.create_topic("moved", 2, 3)
        writer = producer(brokers, "moved")
        writer.begin_transaction()
        write(writer, topic, "before", "before")
        brokers.kill(brokers.cluster.coordinator(CoordinatorType.TRANSACTION, "moved"))
        write(writer, topic, "after", "after")
        writer.commit_transaction(TIMEOUT_S)
        until_read(brokers, topic, ["after", "after", "before", "before"])


def test_a_slow_coordinator_loses_no_transaction() -> None:
    """The next transaction's records arrive while the markers of the last one are being written to the same partitions."""
    partitions, transactions = 31, 20
    with EmbeddedBroker() as broker:
        topic = broker.create_topic("slow", partitions)
        writer = OurProducer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "slow", "linger.ms": "0"})
        with writer, broker.faults.delay_verification(120), broker.faults.delay_markers(20):
            writer.init_transactions()
            for number in range(transactions):
                writer.begin_transaction()
                for partition in range(partitions):
                    writer.send(topic, str(number).encode(), partition=partition)
                writer.commit_transaction()
        until_read(broker, topic, sorted(str(number) for number in range(transactions) for _ in range(partitions)))
