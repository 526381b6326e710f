"""Partitioners in the real producer against real Kafka: what lies where, read by a consumer that is not ours."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import producer_at
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic


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
    producer = producer_at(kafka, partitioner_class=name)
    send(producer, topic, numbered(200))
    assert ByLength.events == [name]
    producer.close(30)
    producer.close(30)
    assert ByLength.events == [name, "closed"]
    assert {len(str(n)) - 1 == partition for n, partition in places(kafka, topic).items()} == {True}


def test_records_sent_one_by_one_are_partitioned_too(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    with producer_at(kafka, partitioner_class="round_robin") as producer:
        futures = [producer.send(topic, value=b"%d" % n, partition=1 if n % 3 == 0 else None) for n in range(9)]
        chosen: list[Any] = [future.result(30).partition for future in futures]
    assert chosen[::3] == [1, 1, 1]
    assert Counter(chosen[1::3] + chosen[2::3]) == {0: 2, 1: 2, 2: 2}
