"""A producer with transactional.id, record by record, as a program writes it."""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_kafka_sink import ConsumerGroupMetadata, OffsetAndMetadata
from spark_kafka_sink.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    UsageError,
)
from tests.faults.producing import commit_next, numbers
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.producer.transactions.transacting import under_id, until_read, values


@pytest.fixture
def topic(transaction_kafka: Kafka, new_topic: NewTopic) -> str:
    return new_topic(1, on=transaction_kafka)


def committed_offset(kafka: Kafka, topic: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], 30)
        return int(found.offset)
    finally:
        consumer.close()


def test_what_is_committed_is_read_and_what_is_aborted_is_not(transaction_kafka: Kafka, topic: str) -> None:
    with under_id(transaction_kafka.bootstrap_servers, topic) as producer:
        for turn in range(6):
            producer.begin_transaction()
            futures = [producer.send(topic, b"%d" % (turn * 10 + row)) for row in range(3)]
            producer.abort_transaction() if turn % 3 == 1 else producer.commit_transaction()
            assert all(future.done() for future in futures)
    until_read(transaction_kafka, topic, [turn * 10 + row for turn in (0, 2, 3, 5) for row in range(3)])


def test_columns_belong_to_the_open_transaction_too(transaction_kafka: Kafka, topic: str) -> None:
    with under_id(transaction_kafka.bootstrap_servers, topic) as producer:
        producer.begin_transaction()
        with producer.scope() as scope:
            scope.append(topic, numbers(range(5)))
        assert values(transaction_kafka, topic) == []
        producer.commit_transaction()
        with (
            producer.scope() as scope,
            pytest.raises(UsageError, match=r"send\(\) is not allowed in state READY: call begin_transaction\(\)"),
        ):
            scope.append(topic, numbers(range(5)))
    until_read(transaction_kafka, topic, list(range(5)))


def test_a_groups_offsets_are_committed_with_the_records_or_not_at_all(transaction_kafka: Kafka, topic: str) -> None:
    with under_id(transaction_kafka.bootstrap_servers, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1")
        producer.send_offsets_to_transaction({(topic, 0): 17}, topic)
        producer.abort_transaction()
        assert committed_offset(transaction_kafka, topic, topic) < 0
        producer.begin_transaction()
        producer.send_offsets_to_transaction({(topic, 0): (18, "")}, ConsumerGroupMetadata(topic))
        producer.commit_transaction()
        until_offset(transaction_kafka, topic, 18)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({(topic, 0): OffsetAndMetadata(19)}, topic)
        producer.send_offsets_to_transaction({(topic, 0): OffsetAndMetadata(20)}, topic)
        producer.send_offsets_to_transaction({}, topic)
        producer.commit_transaction()
        until_offset(transaction_kafka, topic, 20)


def until_offset(kafka: Kafka, topic: str, expected: int) -> None:
    """The markers take some ms, during which the coordinator says that it is not stable yet."""
    assert committed_offset(kafka, topic, topic) == expected


def test_a_consumer_that_is_not_of_the_group_is_refused(transaction_kafka: Kafka, topic: str) -> None:
    with under_id(transaction_kafka.bootstrap_servers, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1")
        gone = ConsumerGroupMetadata(topic, generation_id=3, member_id="gone")
        with pytest.raises(TransactionAbortableError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
            producer.send_offsets_to_transaction({(topic, 0): 1}, gone)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        commit_next(producer, topic, 2)
    until_read(transaction_kafka, topic, [2])


def test_the_id_is_the_latest_ones(transaction_kafka: Kafka, topic: str) -> None:
    with under_id(transaction_kafka.bootstrap_servers, topic) as zombie:
        zombie.begin_transaction()
        zombie.send(topic, b"1").result(30)
        with under_id(transaction_kafka.bootstrap_servers, topic) as living:
            commit_next(living, topic, 2)
            with pytest.raises(ProducerFencedError) as fenced:
                zombie.commit_transaction()
    assert fenced.value.facts["transactional_id"] == topic
    assert str(pickle.loads(pickle.dumps(fenced.value))) == str(fenced.value)
    until_read(transaction_kafka, topic, [2])


def test_each_call_has_its_time(transaction_kafka: Kafka, topic: str) -> None:
    with under_id(transaction_kafka.bootstrap_servers, topic, initialized=False) as producer:
        for call, instead in (
            (producer.begin_transaction, "init_transactions"),
            (producer.commit_transaction, "init_"),
            (producer.abort_transaction, "init_"),
        ):
            with pytest.raises(UsageError, match=rf"UNINITIALIZED: call {instead}"):
                call()
        with pytest.raises(UsageError, match="UNINITIALIZED"):
            producer.send(topic, b"1")
        producer.init_transactions()
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(UsageError, match=r"READY: call begin_transaction\(\) to open"):
                call()
        producer.begin_transaction()
        for call in (producer.begin_transaction, producer.init_transactions):
            with pytest.raises(UsageError, match=r"IN_TRANSACTION: end the open transaction first"):
                call()
        with pytest.raises(UsageError, match=r"is not a \(topic, partition\) pair"):
            producer.send_offsets_to_transaction({topic: 1}, "g")  # type: ignore[dict-item]
        with pytest.raises(UsageError, match="must not be negative"):
            producer.send_offsets_to_transaction({(topic, 0): -1}, "g")
        producer.abort_transaction()
