"""Batches of a transaction that a topic does not take: those of one transaction are visible all or not at all."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import BrokerError, TransactionAbortableError
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.producer.transactions.transacting import under_id, until_read


def test_what_is_too_large_goes_on_in_parts_of_the_same_transaction(transaction_kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=transaction_kafka, config={"max.message.bytes": "2000"})
    with under_id(transaction_kafka.bootstrap_servers, topic, batch_size=100_000, linger_ms=50) as producer:
        for turn in range(3):
            producer.begin_transaction()
            for row in range(40):
                producer.send(topic, b"%0200d" % (turn * 40 + row))
            producer.abort_transaction() if turn == 1 else producer.commit_transaction()
    until_read(transaction_kafka, topic, [*range(40), *range(80, 120)])


def test_a_record_that_is_refused_takes_its_transaction_with_it(transaction_kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=transaction_kafka, config={"cleanup.policy": "compact"})
    with under_id(transaction_kafka.bootstrap_servers, topic, linger_ms=50) as producer:
        producer.begin_transaction()
        before = producer.send(topic, b"1", b"k1")
        refused = producer.send(topic, b"2")
        with pytest.raises(TransactionAbortableError, match="INVALID_RECORD"):
            producer.commit_transaction()
        assert isinstance(refused.exception(60), BrokerError)
        producer.abort_transaction()
        assert before.done()
        producer.begin_transaction()
        producer.send(topic, b"3", b"k3")
        producer.commit_transaction()
    until_read(transaction_kafka, topic, [3])
