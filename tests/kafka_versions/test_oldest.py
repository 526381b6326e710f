"""What only old brokers do: before 2.4 they forget a producer whose records were deleted (KAFKA-7190)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

from spark_kafka_sink import Producer
from tests.kafka.cluster import KafkaCluster
from tests.kafka.versions import OLDEST
from tests.kafka.witness import read_topic

pytestmark = [pytest.mark.kafka, pytest.mark.whole("a cluster of three old brokers")]


@pytest.fixture
def oldest3() -> Iterator[KafkaCluster]:
    with KafkaCluster(3, version=OLDEST, zookeeper=True, heap_mb=256) as cluster:
        yield cluster


def test_rows_are_stored_once_though_the_producer_is_forgotten_and_a_leader_is_killed(
    oldest3: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    oldest3.create_topic("events", 1)
    with Producer({"bootstrap.servers": oldest3.bootstrap_servers, "linger.ms": 0}) as producer:
        for number in range(10):
            producer.send("events", str(number).encode()).result(30)
        deleted = oldest3.admin.delete_records([TopicPartition("events", 0, 10)])
        assert [each.result(30).low_watermark for each in deleted.values()] == [10]
        producer.send("events", b"10").result(30)
        assert "UNKNOWN_PRODUCER_ID" in caplog.text

        futures = []
        for number in range(11, 1_000):
            futures.append(producer.send("events", str(number).encode()))
            if number == 500:
                oldest3.kill(oldest3.leader("events"))
        for future in futures:
            future.result(60)
    oldest3.heal()
    stored = [int(record.value or b"-1") for record in read_topic(oldest3.direct_servers, "events")]
    assert stored == list(range(10, 1_000))
