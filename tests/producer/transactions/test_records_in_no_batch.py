"""A record of a transaction that gets into no batch takes the transaction with it, as in Java (KafkaProducer.doSend)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spark_kafka_sink.errors import KafkaSinkError, TransactionAbortableError
from tests.faults.producing import commit_next
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.producer.transactions.transacting import under_id, until_read
from tests.waiting import HOUR_MS

AT_ONCE: dict[str, dict[str, Any]] = {
    "too large": {"value": b"x" * 2_000_000},
    "a partition that is not there": {"value": b"1", "partition": 77},
    "no legal topic": {"topic": "no topic", "value": b"1"},
}


class Refusing:
    """A partitioner that has no partition for some rows."""

    def partition(self, topic: str, columns: Any, sizes: Any, cluster: Any) -> Any:
        if b"bad" in columns.value.to_pylist():
            raise ValueError("no partition for this")
        return np.zeros(columns.num_records, np.int32)


@pytest.mark.parametrize("record", AT_ONCE.values(), ids=AT_ONCE)
def test_what_fails_at_once_lets_nothing_be_committed(
    transaction_kafka: Kafka, new_topic: NewTopic, record: dict[str, Any]
) -> None:
    topic = new_topic(1, on=transaction_kafka)
    with under_id(transaction_kafka.bootstrap_servers, topic, max_block_ms=HOUR_MS) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1")
        failed = producer.send(**{"topic": topic} | record)
        assert isinstance(failed.exception(60), KafkaSinkError)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        commit_next(producer, topic, 2)
    until_read(transaction_kafka, topic, [2])


def test_what_its_partitioner_refuses_later_lets_nothing_be_committed(transaction_kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=transaction_kafka)
    with under_id(transaction_kafka.bootstrap_servers, topic, partitioner_class=Refusing, linger_ms=1_000) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1")
        failed = producer.send(topic, b"bad")
        with pytest.raises(TransactionAbortableError, match="no partition for this"):
            producer.commit_transaction()
        assert isinstance(failed.exception(60), KafkaSinkError)
        producer.abort_transaction()
        commit_next(producer, topic, 2)
    until_read(transaction_kafka, topic, [2])
