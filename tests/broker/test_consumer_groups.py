"""Consumer groups of other people's clients: partitions are shared, passed on and never lost from sight."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.metadata_image import partition_for
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.waiting import until

pytestmark = pytest.mark.slow

with warnings.catch_warnings():
    # It reads its schemas by a function of importlib that is deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer

PARTITIONS = 4
DEADLINE_S = 30.0
# Members learn of a rebalance by their next heartbeat; Kafka's default of 3 s would be most of these tests' time.
HEARTBEAT_MS = 200
# Nobody waits for the end of a session, and a machine that stands still ends none.
SESSION_MS = 60_000


@dataclass(frozen=True)
class Group:
    """Readers of one topic."""

    servers: str
    topic: str
    name: str = "readers"


@pytest.fixture
def group(kafka: Kafka, new_topic: NewTopic) -> Group:
    topic = new_topic(PARTITIONS)
    return Group(kafka.bootstrap_servers, topic, topic)


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """Consumers are closed before their brokers."""
    with ExitStack() as closing:
        yield closing


def write(group: Group, *values: str) -> None:
    """In turn to all partitions."""
    producer = Producer({"bootstrap.servers": group.servers, "log_level": 0})
    for index, value in enumerate(values):
        producer.produce(group.topic, value, partition=index % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def confluent(group: Group, closing: ExitStack, **options: Any) -> Consumer:
    """A member of the group that has subscribed to the topic."""
    settings = {
        "bootstrap.servers": group.servers,
        "group.id": group.name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "fetch.wait.max.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    consumer = Consumer(settings | {name.replace("_", "."): value for name, value in options.items()})
    closing.callback(consumer.close)
    consumer.subscribe([group.topic])
    return consumer


class Reader:
    """Polls its consumers at the same time until something is so; `values`: what they have read.

    In turn would not do: a member that is not polled does not join, and the others wait for it.
    """

    def __init__(self, *consumers: Any) -> None:
        self.consumers = list(consumers)
        self.values: list[str] = []

    def until(self, reached: Callable[[], bool], what: str) -> None:
        def polled() -> str:
            with ThreadPoolExecutor(len(self.consumers)) as pool:
                for values in pool.map(_polled, self.consumers):
                    self.values += values
            return f"{self.shares()}, {len(self.values)} values"

        if not reached():
            until(polled, lambda _: reached(), what)

    def shares(self) -> list[int]:
        return [len(consumer.assignment()) for consumer in self.consumers]

    def until_shared(self, *shares: int) -> None:
        self.until(lambda: sorted(self.shares()) == sorted(shares), f"not shared as {shares}")

    def until_read(self, *values: str) -> None:
        self.until(lambda: len(self.values) >= len(values), "not read")
        assert sorted(self.values) == sorted(values)


def _polled(consumer: Any) -> list[str]:
    if isinstance(consumer, Consumer):
        return [(message.value() or b"").decode() for message in consumer.consume(100, timeout=0.05) if not message.error()]
    # Longer than any rebalance here takes: a join that ends just after a poll gave up is lost to kafka-python 3.0.12, which then
    # believes that it has joined, without an assignment.
    return [record.value.decode() for records in consumer.poll(1000).values() for record in records]


def commit(*consumers: Any) -> None:
    """What they have read so far; returns when that is stored."""
    for consumer in consumers:
        if isinstance(consumer, Consumer):
            consumer.commit(asynchronous=False)
        else:
            consumer.commit()


def committed(group: Group, consumer: Consumer) -> dict[int, int]:
    found = consumer.committed([TopicPartition(group.topic, index) for index in range(PARTITIONS)], timeout=DEADLINE_S)
    return {each.partition: each.offset for each in found if each.offset >= 0}


def kafka_python(group: Group, closing: ExitStack, **options: Any) -> Any:
    settings = {
        "bootstrap_servers": group.servers,
        "group_id": group.name,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "fetch_max_wait_ms": 50,
    }
    consumer = KafkaConsumer(group.topic, **(settings | options))
    closing.callback(consumer.close)
    return consumer


VALUES = [f"value {index}" for index in range(40)]


@pytest.mark.parametrize("make", [confluent, kafka_python])
def test_members_share_the_partitions_as_they_come_and_go(group: Group, closing: ExitStack, make: Any) -> None:
    write(group, *VALUES)
    first = make(group, closing)
    reader = Reader(first)
    reader.until_read(*VALUES)
    commit(first)
    second = make(group, closing)
    reader.consumers.append(second)
    reader.until_shared(2, 2)
    write(group, *VALUES)
    reader.until_read(*VALUES, *VALUES)
    commit(first, second)
    second.close()
    reader.consumers.remove(second)
    reader.until_shared(4)
    # What the one had committed is not read by the other.
    write(group, "last")
    reader.until_read(*VALUES, *VALUES, "last")


def described(group: Group) -> Any:
    client = AdminClient({"bootstrap.servers": group.servers, "log_level": 0})  # its futures end with it
    return client.describe_consumer_groups([group.name])[group.name].result(DEADLINE_S)


def test_offsets_and_groups_outlive_a_restart(tmp_path: Path, closing: ExitStack) -> None:
    config = BrokerConfig(data_dir=tmp_path)
    with EmbeddedBroker(config=config) as broker, ExitStack() as first:
        group = Group(broker.bootstrap_servers, broker.create_topic("t", PARTITIONS))
        write(group, *VALUES)
        consumer = confluent(group, first)
        Reader(consumer).until_read(*VALUES)
        commit(consumer)
    with EmbeddedBroker(config=config) as broker, ExitStack() as second:
        group = replace(group, servers=broker.bootstrap_servers)
        assert described(group).state is ConsumerGroupState.EMPTY
        consumer = confluent(group, second)
        assert committed(group, consumer) == {0: 10, 1: 10, 2: 10, 3: 10}
        write(group, "last")
        Reader(consumer).until_read("last")


def test_a_coordinator_may_move_and_die(closing: ExitStack) -> None:
    with EmbeddedBroker(3) as brokers, closing:
        group = Group(brokers.bootstrap_servers, brokers.create_topic("t", PARTITIONS, 3))
        first, second = confluent(group, closing), confluent(group, closing)
        reader = Reader(first, second)
        reader.until_shared(2, 2)
        internal = brokers.cluster.image.topics["__consumer_offsets"]
        partition = partition_for(group.name, len(internal.partitions))
        here = brokers.leader("__consumer_offsets", partition)
        there = next(broker for broker in brokers.broker_ids if broker != here)
        write(group, *VALUES)
        reader.until_read(*VALUES)

        brokers.move_leader("__consumer_offsets", partition, there)
        commit(first)
        reader.until_shared(2, 2)
        brokers.kill(there)
        write(group, *VALUES)
        reader.until_read(*VALUES, *VALUES)
        reader.until_shared(2, 2)
        commit(first, second)
        assert sum(committed(group, first).values()) == 2 * len(VALUES)
