"""Partitioners in the real producer against real Kafka: what lies where, read by a consumer that is not ours."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer as ConfluentProducer

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.errors import OptionError, RecordError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.producer.partitioners.golden_keys import golden_keys
from tests.tiers import whole_but


def producer_on(kafka: Kafka, **settings: object) -> Producer:
    options = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, **options})


def send(producer: Producer, topic: str, *parts: RecordColumns) -> None:
    with producer.scope() as scope:
        for columns in parts:
            scope.append(topic, columns)
        scope.flush()


def numbered(count: int, start: int = 0, partition: list[int] | None = None) -> RecordColumns:
    values = pa.array([b"%d" % n for n in range(start, start + count)])
    return RecordColumns(count, value=values, partition=None if partition is None else np.array(partition, np.int32))


def places(kafka: Kafka, topic: str) -> dict[int, int]:
    """Where each numbered record is."""
    return {int(record.value or b""): record.partition for record in read_topic(kafka.bootstrap_servers, topic)}


@pytest.mark.parametrize(
    "name",
    whole_but(["consistent", "consistent_random", "fnv1a", "murmur2"], ["murmur2"], "test_other_clients.py asks the library"),
)
def test_keys_lie_where_librdkafka_puts_them(kafka: Kafka, new_topic: NewTopic, name: str) -> None:
    keys = [key for key in golden_keys().slice(1, 600).to_pylist() if key]
    topic, reference_topic = new_topic(7), new_topic(7)
    with producer_on(kafka, partitioner_class=name) as producer:
        send(producer, topic, RecordColumns(len(keys), key=pa.array(keys, pa.binary())))
    reference = ConfluentProducer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": name})
    for key in keys:
        reference.produce(reference_topic, key=key)
    assert reference.flush(30) == 0
    ours, theirs = (
        sorted((record.key or b"", record.partition) for record in read_topic(kafka.bootstrap_servers, name))
        for name in (topic, reference_topic)
    )
    assert ours == theirs


def test_round_robin_goes_on_from_append_to_append_and_leaves_named_partitions_alone(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    mixed = [NO_PARTITION if n % 2 else 2 for n in range(6)]
    with producer_on(kafka, partitioner_class="org.apache.kafka.clients.producer.RoundRobinPartitioner") as producer:
        send(producer, topic, numbered(4), numbered(4, 4), numbered(6, 8, mixed))
    found = places(kafka, topic)
    assert [found[n] for n in range(8)] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert [found[n] for n in range(8, 14)] == [2, 2, 2, 0, 2, 1]


def test_sticky_moves_on_with_each_batch(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    with producer_on(kafka, partitioner_class="sticky", batch_size=1000, linger_ms=60_000) as producer:
        send(producer, topic, *(numbered(50, start) for start in range(0, 4000, 50)))
    found = places(kafka, topic)
    runs = 1 + sum(found[n] != found[n + 1] for n in range(3999))
    # Each move is to another at random: 36 of them miss one of the four once in a million times.
    assert set(found.values()) == {0, 1, 2, 3}
    # A record takes at most 15 bytes: 66 and more of them fill a batch.
    assert 36 <= runs <= 61


class ByLength:
    """A partition for each length of value; and what is done with it."""

    events: list[object]

    def __init__(self) -> None:
        ByLength.events = []

    def configure(self, settings: dict[str, object]) -> None:
        self.events.append(settings["partitioner.class"])

    def partition_record(self, topic: str, key: bytes | None, value: bytes | None, cluster: Cluster) -> int:
        return len(value or b"") - 1

    def close(self) -> None:
        self.events.append("closed")


def test_a_users_own_partitioner_decides_and_is_closed_with_the_producer(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, name = new_topic(3), f"{__name__}.ByLength"
    producer = producer_on(kafka, partitioner_class=name)
    send(producer, topic, numbered(200))
    assert ByLength.events == [name]
    producer.close(30)
    producer.close(30)
    assert ByLength.events == [name, "closed"]
    assert {len(str(n)) - 1 == partition for n, partition in places(kafka, topic).items()} == {True}


def test_what_it_gets_wrong_costs_nothing_but_the_append(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    with producer_on(kafka, partitioner_class=ByLength) as producer, producer.scope() as scope:
        with pytest.raises(RecordError, match=r"ByLength: row 0 of 1: returned 3, but there are 3 partitions, 0 to 2"):
            scope.append(topic, numbered(1, 1000))
        scope.append(topic, numbered(1, 5))
        scope.flush()
    assert places(kafka, topic) == {5: 0}


def test_a_name_that_stands_for_nothing_makes_no_producer() -> None:
    with pytest.raises(OptionError, match="did you mean round_robin"):
        Producer({"bootstrap.servers": "localhost:1", "partitioner.class": "round_robbin"})


def test_records_sent_one_by_one_are_partitioned_too(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    with producer_on(kafka, partitioner_class="round_robin") as producer:
        futures = [producer.send(topic, value=b"%d" % n, partition=1 if n % 3 == 0 else None) for n in range(9)]
        chosen: list[Any] = [future.result(30).partition for future in futures]
    assert chosen[::3] == [1, 1, 1]
    assert Counter(chosen[1::3] + chosen[2::3]) == {0: 2, 1: 2, 2: 2}


def test_without_keys_all_partitions_get_batches(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    with producer_on(kafka, batch_size=2000, partitioner_availability_timeout_ms=1000) as producer:
        send(producer, topic, *(numbered(500, start) for start in range(0, 20_000, 500)))
    by_partition = defaultdict(list)
    for n, partition in sorted(places(kafka, topic).items()):
        by_partition[partition].append(n)
    assert sum(map(len, by_partition.values())) == 20_000
    assert len(by_partition) == 4
    assert all(len(numbers) > 1000 for numbers in by_partition.values())
