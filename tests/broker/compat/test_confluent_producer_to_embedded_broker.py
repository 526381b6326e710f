"""confluent-kafka writes to an embedded broker, kafka-python and another confluent-kafka read it back."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.compat import confluent, kafka_python
from tests.broker.compat.confluent import TIMEOUT_S, Deliveries
from tests.broker.compat.conftest import NewTopic
from tests.kafka.witness import read_topic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
VALUES = [f"value {index}" * (index % 7) for index in range(300)]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_stored_as_it_came(servers: str, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    told = confluent.write(servers, topic, *VALUES, compression_type=codec, linger_ms=20)
    assert told.delivered == [(0, offset) for offset in range(len(VALUES))]
    assert [(record.value or b"").decode() for record in read_topic(servers, topic)] == VALUES


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acks(servers: str, new_topic: NewTopic, closing: ExitStack, acks: str) -> None:
    topic = new_topic(2)
    told = confluent.write(servers, topic, *VALUES, acks=acks)
    assert len(told.delivered) == len(VALUES)
    # With acks=0 what was sent counts as delivered.
    assert {offset is None for _, offset in told.delivered} == {acks == "0"}
    reader = kafka_python.consumer(servers, closing, topic)
    assert sorted(next(reader).value.decode() for _ in VALUES) == sorted(VALUES)


def test_every_part_of_a_record_comes_back(servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    writer = confluent.producer(servers)
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", b"2"), ("nothing", None), ("empty", b"")]
    writer.produce(topic, b"value", b"key", headers=headers, timestamp=1_700_000_000_123)
    writer.produce(topic, None, b"deleted", timestamp=1_700_000_000_124)
    writer.produce(topic, b"", None, timestamp=1_700_000_000_125)
    assert writer.flush(TIMEOUT_S) == 0
    assert [record[1:] for record in read_topic(servers, topic)] == [
        (0, b"key", b"value", tuple(headers), 1_700_000_000_123),
        (1, b"deleted", None, (), 1_700_000_000_124),
        (2, None, b"", (), 1_700_000_000_125),
    ]


def test_without_auto_creation_an_unknown_topic_stays_unknown() -> None:
    with EmbeddedBroker(config=BrokerConfig(auto_create_topics_enable=False)) as broker:
        writer = confluent.producer(
            broker.bootstrap_servers, topic_metadata_propagation_max_ms=10, topic_metadata_refresh_interval_ms=100
        )
        told = Deliveries()
        writer.produce("nowhere", b"value", on_delivery=told)
        assert writer.flush(TIMEOUT_S) == 0
        assert [error.code() for error in told.errors] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
        assert not broker.cluster.image.topics


def test_an_idempotent_producer_writes_on_over_restarts() -> None:
    with EmbeddedBroker() as broker:
        topic = broker.create_topic("t")
        writer = confluent.producer(broker.bootstrap_servers, enable_idempotence=True, batch_num_messages=10, retry_backoff_ms=10)
        told = Deliveries()
        for index in range(1500):
            if index % 500 == 499:
                broker.kill(1)
                broker.restart(1)
            writer.produce(topic, str(index), on_delivery=told)
            writer.poll(0)
        assert writer.flush(TIMEOUT_S) == 0
        assert told.errors == []
        records = read_topic(broker.bootstrap_servers, topic)
    assert [(record.value or b"").decode() for record in records] == [str(index) for index in range(1500)]
