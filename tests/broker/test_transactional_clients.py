"""Clients that are not ours write transactions to the embedded broker and read what is committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.cluster import CoordinatorType
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.network.client import Client
from tests.broker.transaction.transactor import Transactor
from tests.kafka import java

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def producer(broker: EmbeddedBroker, identity: str, *, initialized: bool = True) -> Producer:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "transactional.id": identity,
        "transaction.timeout.ms": 60_000,
        "linger.ms": 0,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    made = Producer(settings)
    if initialized:
        made.init_transactions(TIMEOUT_S)
    return made


def write(writer: Producer, topic: str, *values: str) -> None:
    for index, value in enumerate(values):
        writer.produce(topic, value, partition=index % 2)
    assert writer.flush(TIMEOUT_S) == 0


def reader(broker: EmbeddedBroker, isolation: str = "read_committed", group: str = "nobody") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


def read(broker: EmbeddedBroker, topic: str, isolation: str = "read_committed") -> list[str]:
    """All values up to where the isolation lets a consumer read, sorted."""
    consumer = reader(broker, isolation)
    try:
        partitions = len(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        values: list[str] = []
        ended = 0
        while ended < partitions:
            found = consumer.poll(TIMEOUT_S)
            assert found is not None, f"no end within {TIMEOUT_S:g} s"
            if found.error() is None:
                values.append((found.value() or b"").decode())
            else:
                ended += 1
        return sorted(values)
    finally:
        consumer.close()


def test_committed_is_read_and_aborted_is_not(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic("commit-and-abort", 2)
    writer = producer(broker, "commit-and-abort")
    for committed in (True, False, True):
        writer.begin_transaction()
        write(writer, topic, *(f"{committed}-{index}" for index in range(4)))
        writer.commit_transaction(TIMEOUT_S) if committed else writer.abort_transaction(TIMEOUT_S)
    everything = sorted([*(f"True-{index}" for index in range(4)), *(f"True-{index}" for index in range(4))])
    assert read(broker, topic) == everything
    assert len(read(broker, topic, "read_uncommitted")) == 12


def test_nothing_of_a_running_transaction_is_read_nor_what_follows_it(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic("running", 2)
    writer, other = producer(broker, "running"), producer(broker, "running-2")
    writer.begin_transaction()
    write(writer, topic, "first", "second")
    other.begin_transaction()
    write(other, topic, "later", "latest")
    other.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == []
    assert read(broker, topic, "read_uncommitted") == ["first", "later", "latest", "second"]
    writer.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == ["first", "later", "latest", "second"]


def test_a_second_producer_with_the_id_fences_the_first(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic("fenced", 2)
    zombie = producer(broker, "fenced")
    zombie.begin_transaction()
    write(zombie, topic, "zombie", "zombie")
    writer = producer(broker, "fenced")
    writer.begin_transaction()
    write(writer, topic, "living")
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(TIMEOUT_S)
    assert fenced.value.args[0].fatal()
    writer.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == ["living"]


def consumed(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{len(found)} of {count} within {TIMEOUT_S:g} s"
        if message.error() is None:
            found.append(message)
    return found


def test_read_and_written_together_with_the_offsets(broker: EmbeddedBroker) -> None:
    source, target = broker.create_topic("source", 1), broker.create_topic("target", 2)
    feeder, writer = producer(broker, "feeder"), producer(broker, "worker")
    feeder.begin_transaction()
    for value in ("a", "b", "c", "d"):
        feeder.produce(source, value)
    feeder.commit_transaction(TIMEOUT_S)

    def work(count: int, committed: bool) -> None:
        consumer = reader(broker, group="workers")
        consumer.subscribe([source])
        try:
            values = [(message.value() or b"").decode() for message in consumed(consumer, count)]
            writer.begin_transaction()
            write(writer, target, *(value.upper() for value in values))
            offsets = consumer.position(consumer.assignment())
            writer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
            writer.commit_transaction(TIMEOUT_S) if committed else writer.abort_transaction(TIMEOUT_S)
        finally:
            consumer.close()

    work(2, committed=False)
    work(2, committed=True)
    work(2, committed=True)
    assert read(broker, target) == ["A", "B", "C", "D"]


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
        assert read(broker, topic) == ["after", "after", "before", "before"]


def test_a_transaction_outlives_its_coordinator() -> None:
    with EmbeddedBroker(3) as brokers:
        topic = brokers.create_topic("moved", 2, 3)
        writer = producer(brokers, "moved")
        writer.begin_transaction()
        write(writer, topic, "before", "before")
        brokers.kill(brokers.cluster.coordinator(CoordinatorType.TRANSACTION, "moved"))
        write(writer, topic, "after", "after")
        writer.commit_transaction(TIMEOUT_S)
        assert read(brokers, topic) == ["after", "after", "before", "before"]


@pytest.mark.java
def test_java_writes_transactions_of_version_2(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic("java", 2)
    java.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "2000", "--record-size", "10", "--throughput", "-1"),
        *(
            "--producer-props",
            f"bootstrap.servers={broker.bootstrap_servers}",
            "--transactional-id",
            "java",
            "--transaction-duration-ms",
            "20",
        ),
        timeout_s=60,
    )
    assert len(read(broker, topic)) == 2000
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    with Client(int(port), host) as client:
        # Each commit was an epoch.
        assert Transactor(client, "java", topic).describe().producer_epoch > 1
