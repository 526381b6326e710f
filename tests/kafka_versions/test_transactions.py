"""The producer's transactions on each version of Kafka: of version 1 before 4.0, of version 2 since."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_kafka_sink import Producer, RecordColumns
from spark_kafka_sink.errors import ProducerFencedError
from tests.kafka.cluster import KafkaCluster
from tests.kafka.dump_log import dump_log
from tests.kafka.fixtures import only_versions
from tests.kafka.versions import OLDEST, POMS
from tests.kafka.witness import read_topic


def transactional(cluster: KafkaCluster, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions()
    return producer


def visible(cluster: KafkaCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in read_topic(cluster.direct_servers, topic, isolation_level="read_committed")]


def committed_offset(cluster: KafkaCluster, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.direct_servers, "group.id": group, "log_level": 0})
    try:
        (place,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        return int(place.offset)
    finally:
        consumer.close()


def epochs(cluster: KafkaCluster, topic: str) -> set[int]:
    """Returns the producer epochs in partition 0's log. Transactions of version 2 raise the epoch each time one ends."""
    batches = dump_log(cluster, cluster.leader(topic), topic)
    return {batch.producer_epoch for batch in batches if batch.transactional and not batch.control}


def test_what_is_committed_is_visible_and_what_is_aborted_is_not(
    kafka_version: str, versioned_kafka: KafkaCluster, topic: str
) -> None:
    with transactional(versioned_kafka, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"committed", partition=0)
        producer.send_offsets_to_transaction({(topic, 0): 7}, topic)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"aborted", partition=0).result(30)
        producer.send_offsets_to_transaction({(topic, 0): 9}, topic)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"committed later", partition=0)
        producer.commit_transaction()
    versioned_kafka.wait_for(lambda: visible(versioned_kafka, topic) == [b"committed", b"committed later"], "the commits", 30)
    stored = [record.value for record in read_topic(versioned_kafka.direct_servers, topic)]
    assert stored == [b"committed", b"aborted", b"committed later"]
    # Before 2.5, OffsetFetch does not wait for the marker of a transaction that has just ended (KIP-447).
    versioned_kafka.wait_for(lambda: committed_offset(versioned_kafka, topic, topic) == 7, "the offset of the transaction", 30)
    assert len(epochs(versioned_kafka, topic)) == (1 if kafka_version < "4" else 3)


def test_the_second_producer_with_an_id_fences_the_first(kafka_version: str, versioned_kafka: KafkaCluster, topic: str) -> None:
    with transactional(versioned_kafka, topic) as first:
        first.begin_transaction()
        first.send(topic, b"of the first", partition=0).result(30)
        with transactional(versioned_kafka, topic) as second:
            second.begin_transaction()
            second.send(topic, b"of the second", partition=0)
            second.commit_transaction()
            with pytest.raises(ProducerFencedError):
                first.commit_transaction()
    versioned_kafka.wait_for(lambda: visible(versioned_kafka, topic) == [b"of the second"], "the second's commit", 30)


# Before 2.4, a broker calls a record without a key CORRUPT_MESSAGE, which producers send again.
@only_versions(*(version for version in sorted(POMS) if version != OLDEST))
def test_a_transaction_goes_on_without_the_records_that_its_topic_rejects(versioned_kafka: KafkaCluster, topic: str) -> None:
    compacted = versioned_kafka.create_topic(f"{topic}-compacted", 1, config={"cleanup.policy": "compact"})
    values = [b"%d" % n for n in range(1000)]
    keys = pa.array([None if n % 30 == 7 else b"k%d" % n for n in range(1000)])
    settings = {"bootstrap.servers": versioned_kafka.bootstrap_servers, "batch.size": 300, "transactional.id": topic}
    with Producer({**settings, "retry.backoff.ms": 5, "retry.backoff.max.ms": 20}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with producer.scope(keeps_rejected=True) as scope:
            scope.append(compacted, RecordColumns(1000, value=pa.array(values), key=keys))
            scope.flush(60)
            rejected = [value for rows in scope.take_rejected() for value in rows.columns.value.to_pylist()]  # type: ignore[union-attr]
        producer.commit_transaction()
    assert sorted(map(int, rejected)) == list(range(7, 1000, 30))
    good = [value for n, value in enumerate(values) if n % 30 != 7]
    versioned_kafka.wait_for(lambda: visible(versioned_kafka, compacted) == good, "the good records", 30)
