"""Columns reach each version of Kafka once and in order, whatever they are compressed with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from spark_kafka_sink import Producer, RecordColumns
from tests.kafka.cluster import KafkaCluster
from tests.kafka.dump_log import dump_files
from tests.kafka.versions import OLDEST
from tests.kafka.witness import Witnessed, read_topic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = 2_000
KEYS = 50
APPENDS = 4
PARTITIONS = 4


def numbered(codec: str, start: int, count: int) -> RecordColumns:
    """Rows whose value is their number, whose key is its remainder by KEYS, and whose headers name the codec."""
    numbers = range(start, start + count)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return RecordColumns(
        num_records=count,
        key=pa.array([str(number % KEYS) for number in numbers]),
        value=pa.array([str(number) for number in numbers]),
        headers=pa.array([[{"key": "codec", "value": codec.encode()}, {"key": "none", "value": None}]] * count, headers),
    )


def assert_each_once_and_in_order(records: list[Witnessed], codec: str) -> None:
    by_key = defaultdict[int, list[int]](list)
    for record in records:
        assert record.headers == (("codec", codec.encode()), ("none", None))
        by_key[int(record.key or b"-1")].append(int(record.value or b"-1"))
    assert by_key == {key: list(range(key, ROWS, KEYS)) for key in range(KEYS)}


def test_rows_arrive_once_and_in_order_with_every_codec(kafka_version: str, versioned_kafka: KafkaCluster, topic: str) -> None:
    topics = {codec: versioned_kafka.create_topic(f"{topic}-{codec}", PARTITIONS) for codec in CODECS}
    for codec, name in topics.items():
        settings = {"bootstrap.servers": versioned_kafka.bootstrap_servers, "compression.type": codec, "batch.size": 2_000}
        with Producer(settings) as producer, producer.scope() as scope:
            for start in range(0, ROWS, ROWS // APPENDS):
                scope.append(name, numbered(codec, start, ROWS // APPENDS))
            scope.flush()
    for codec, name in topics.items():
        assert_each_once_and_in_order(read_topic(versioned_kafka.direct_servers, name), codec)
    assert_written_as_asked(versioned_kafka, list(topics.values()))


def assert_written_as_asked(cluster: KafkaCluster, topics: list[str]) -> None:
    """Kafka's DumpLogSegments sees as many rows under each codec, and the ids and sequences of idempotent producers."""
    partitions = [(name, number) for name in topics for number in range(PARTITIONS)]
    folders = [cluster.log_dir(cluster.leader(name, number)) / f"{name}-{number}" for name, number in partitions]
    batches = dump_files([segment for folder in folders for segment in folder.glob("*.log")])
    rows = Counter[str]()
    for batch in batches:
        assert batch.valid
        assert batch.base_sequence >= 0
        rows[batch.codec.lower()] += batch.count
    assert rows == dict.fromkeys(CODECS, ROWS)
    assert len({batch.producer_id for batch in batches} - {-1}) == len(topics)


# What only old brokers do: before 2.4 they forget a producer whose records were deleted (KAFKA-7190)


@pytest.fixture
def oldest3() -> Iterator[KafkaCluster]:
    with KafkaCluster(3, version=OLDEST, zookeeper=True, heap_mb=256) as cluster:
        yield cluster


@pytest.mark.kafka
@pytest.mark.whole("a cluster of three old brokers")
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
