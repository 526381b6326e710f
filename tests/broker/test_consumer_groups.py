"""Consumer groups of other people's clients on embedded brokers: partitions are shared, passed on and never lost from sight."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.coordinator_partition import partition_for
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker

with warnings.catch_warnings():
    # It reads its schemas by a function of importlib that is deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

TOPIC = "t"
PARTITIONS = 4
GROUP = "readers"
DEADLINE_S = 30.0
# Members learn of a rebalance by their next heartbeat; Kafka's default of 3 s would be most of these tests' time.
HEARTBEAT_MS = 200


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        yield broker


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """Consumers are closed before their brokers."""
    with ExitStack() as closing:
        yield closing


def write(broker: EmbeddedBroker, *values: str) -> None:
    """In turn to all partitions."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for index, value in enumerate(values):
        producer.produce(TOPIC, value, partition=index % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def confluent(broker: EmbeddedBroker, closing: ExitStack, **options: Any) -> Consumer:
    """A member of the group that has subscribed to the topic."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "fetch.wait.max.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    consumer = Consumer(settings | {name.replace("_", "."): value for name, value in options.items()})
    closing.callback(consumer.close)
    consumer.subscribe([TOPIC])
    return consumer


class Reader:
    """Polls its consumers in turn until something is so; `values`: what they have read, `poll` what one poll of one finds."""

    def __init__(self, *consumers: Any) -> None:
        self.consumers = list(consumers)
        self.values: list[str] = []

    def until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < deadline, f"{what}: {self.shares()}, {len(self.values)} values"
            for consumer in self.consumers:
                self.values += _polled(consumer)

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


def committed(consumer: Consumer) -> dict[int, int]:
    found = consumer.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], timeout=DEADLINE_S)
    return {each.partition: each.offset for each in found if each.offset >= 0}


def kafka_python(broker: EmbeddedBroker, closing: ExitStack, **options: Any) -> Any:
    settings = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "fetch_max_wait_ms": 50,
    }
    consumer = KafkaConsumer(TOPIC, **(settings | options))
    closing.callback(consumer.close)
    return consumer


VALUES = [f"value {index}" for index in range(40)]


@pytest.mark.parametrize("make", [confluent, kafka_python])
def test_members_share_the_partitions_as_they_come_and_go(broker: EmbeddedBroker, closing: ExitStack, make: Any) -> None:
    write(broker, *VALUES)
    first = make(broker, closing)
    reader = Reader(first)
    reader.until_read(*VALUES)
    commit(first)
    second = make(broker, closing)
    reader.consumers.append(second)
    reader.until_shared(2, 2)
    write(broker, *VALUES)
    reader.until_read(*VALUES, *VALUES)
    commit(first, second)
    second.close()
    reader.consumers.remove(second)
    reader.until_shared(4)
    # What the one had committed is not read by the other.
    write(broker, "last")
    reader.until_read(*VALUES, *VALUES, "last")


def test_members_of_different_clients_are_in_one_group(broker: EmbeddedBroker, closing: ExitStack) -> None:
    reader = Reader(
        confluent(broker, closing, partition_assignment_strategy="roundrobin"),
        kafka_python(broker, closing, partition_assignment_strategy=[RoundRobinPartitionAssignor]),
    )
    reader.until_shared(2, 2)
    write(broker, *VALUES)
    reader.until_read(*VALUES)


def test_cooperative_members_give_up_only_what_others_get(broker: EmbeddedBroker, closing: ExitStack) -> None:
    consumers = [confluent(broker, closing, partition_assignment_strategy="cooperative-sticky") for _ in range(3)]
    reader = Reader(*consumers)
    reader.until_shared(1, 1, 2)
    write(broker, *VALUES)
    reader.until_read(*VALUES)


def test_a_static_member_that_is_restarted_makes_no_rebalance(broker: EmbeddedBroker, closing: ExitStack) -> None:
    first = confluent(broker, closing, group_instance_id="a")
    second = confluent(broker, closing, group_instance_id="b")
    Reader(first, second).until_shared(2, 2)
    before = described(broker)
    second.close()
    again = confluent(broker, closing, group_instance_id="b")
    Reader(first, again).until_shared(2, 2)
    after = described(broker)

    assert [member.assignment.topic_partitions for member in after.members if member.group_instance_id == "b"] == [
        member.assignment.topic_partitions for member in before.members if member.group_instance_id == "b"
    ]
    unchanged = [member.member_id for member in before.members if member.group_instance_id == "a"]
    assert [member.member_id for member in after.members if member.group_instance_id == "a"] == unchanged


def admin(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


def described(broker: EmbeddedBroker) -> Any:
    client = admin(broker)  # its futures end with it
    return client.describe_consumer_groups([GROUP])[GROUP].result(DEADLINE_S)


def test_an_administrator_sees_moves_and_deletes_groups(broker: EmbeddedBroker, closing: ExitStack) -> None:
    write(broker, *VALUES)
    consumer = confluent(broker, closing)
    Reader(consumer).until_read(*VALUES)
    commit(consumer)
    client = admin(broker)
    assert described(broker).state is ConsumerGroupState.STABLE
    assert [group.group_id for group in client.list_consumer_groups().result(DEADLINE_S).valid] == [GROUP]
    consumer.close()
    assert described(broker).state is ConsumerGroupState.EMPTY

    moved = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 0, 3)])
    client.alter_consumer_group_offsets([moved])[GROUP].result(DEADLINE_S)
    found = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(DEADLINE_S)
    assert {each.partition: each.offset for each in found.topic_partitions} == {0: 3, 1: 10, 2: 10, 3: 10}
    client.delete_consumer_groups([GROUP])[GROUP].result(DEADLINE_S)
    assert client.list_consumer_groups().result(DEADLINE_S).valid == []


def test_a_topic_that_is_deleted_takes_its_offsets_along(broker: EmbeddedBroker, closing: ExitStack) -> None:
    write(broker, *VALUES)
    consumer = confluent(broker, closing)
    Reader(consumer).until_read(*VALUES)
    commit(consumer)
    broker.cluster.delete_topic(TOPIC)
    broker.create_topic(TOPIC, PARTITIONS)
    deadline = time.monotonic() + DEADLINE_S
    while committed(consumer):
        assert time.monotonic() < deadline
        consumer.poll(0.05)


def test_offsets_and_groups_outlive_a_restart(tmp_path: Path, closing: ExitStack) -> None:
    config = BrokerConfig(data_dir=tmp_path)
    with EmbeddedBroker(config=config) as broker, ExitStack() as first:
        broker.create_topic(TOPIC, PARTITIONS)
        write(broker, *VALUES)
        consumer = confluent(broker, first)
        Reader(consumer).until_read(*VALUES)
        commit(consumer)
    with EmbeddedBroker(config=config) as broker, ExitStack() as second:
        assert described(broker).state is ConsumerGroupState.EMPTY
        consumer = confluent(broker, second)
        assert committed(consumer) == {0: 10, 1: 10, 2: 10, 3: 10}
        write(broker, "last")
        Reader(consumer).until_read("last")


def test_a_coordinator_may_move_and_die(closing: ExitStack) -> None:
    with EmbeddedBroker(3) as brokers, closing:
        brokers.create_topic(TOPIC, PARTITIONS, 3)
        first, second = confluent(brokers, closing), confluent(brokers, closing)
        reader = Reader(first, second)
        reader.until_shared(2, 2)
        internal = brokers.cluster.image.topics["__consumer_offsets"]
        partition = partition_for(GROUP, len(internal.partitions))
        here = brokers.leader("__consumer_offsets", partition)
        there = next(broker for broker in brokers.broker_ids if broker != here)
        write(brokers, *VALUES)
        reader.until_read(*VALUES)

        brokers.move_leader("__consumer_offsets", partition, there)
        commit(first)
        reader.until_shared(2, 2)
        brokers.kill(there)
        write(brokers, *VALUES)
        reader.until_read(*VALUES, *VALUES)
        reader.until_shared(2, 2)
        commit(first, second)
        assert sum(committed(first).values()) == 2 * len(VALUES)


def test_offsets_are_committed_with_the_records_that_came_of_them(broker: EmbeddedBroker, closing: ExitStack) -> None:
    write(broker, *VALUES)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "copy", "log_level": 0, "linger.ms": 0}
    )
    producer.init_transactions(DEADLINE_S)
    consumer = confluent(broker, closing)
    reader = Reader(consumer)
    reader.until_read(*VALUES)
    positions = consumer.position(consumer.assignment())

    producer.begin_transaction()
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), DEADLINE_S)
    producer.abort_transaction(DEADLINE_S)
    assert committed(consumer) == {}
    producer.begin_transaction()
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), DEADLINE_S)
    producer.commit_transaction(DEADLINE_S)

    reader.until(lambda: committed(consumer) == {0: 10, 1: 10, 2: 10, 3: 10}, "not committed")
