"""confluent-kafka writes to an embedded broker, kafka-python and another confluent-kafka read it back."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError, KafkaException

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


def test_a_topic_can_have_the_times_of_the_broker(servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    writer = confluent.producer(servers)
    writer.produce(topic, b"value", timestamp=1)
    assert writer.flush(TIMEOUT_S) == 0
    reader = confluent.consumer(servers)
    reader.subscribe([topic])
    (found,) = confluent.polled(reader, 1)
    kind, timestamp = found.timestamp()
    reader.close()
    assert kind == 2
    assert timestamp > 1_700_000_000_000


def test_a_topic_can_have_a_codec_of_its_own(servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(compression_type="zstd")
    confluent.write(servers, topic, *VALUES, compression_type="gzip", linger_ms=20)
    assert [(record.value or b"").decode() for record in read_topic(servers, topic)] == VALUES


def test_an_unknown_topic_is_made_when_it_is_written_to(servers: str, name: str) -> None:
    topic = f"made-{name}"
    writer = confluent.producer(servers)
    told = Deliveries()
    writer.produce(topic, b"value", on_delivery=told)
    assert writer.flush(TIMEOUT_S) == 0
    assert told.delivered == [(0, 0)]


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


def test_a_record_that_is_too_large_fails_alone(servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="1000")
    told = confluent.write(servers, topic, "small", "x" * 2000, "small too", batch_num_messages=1)
    assert [error.code() for error in told.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert [record.value for record in read_topic(servers, topic)] == [b"small", b"small too"]


def test_a_compacted_topic_refuses_a_record_without_a_key(servers: str, new_topic: NewTopic) -> None:
    told = confluent.write(servers, new_topic(cleanup_policy="compact"), "value")
    assert [error.code() for error in told.errors] == [KafkaError.INVALID_RECORD]


def test_an_idempotent_producer_writes_each_record_once_and_in_order(servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    values = [str(index) for index in range(3000)]
    told = confluent.write(servers, topic, *values, enable_idempotence=True, batch_num_messages=50)
    assert len(told.delivered) == len(values)
    records = read_topic(servers, topic)
    for partition in range(3):
        assert [(record.value or b"").decode() for record in records if record.partition == partition] == values[partition::3]


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


def test_a_zombie_cannot_even_begin_where_another_has_its_id(servers: str, new_topic: NewTopic, name: str) -> None:
    topic = new_topic()
    zombie = confluent.producer(servers, transactional_id=name)
    zombie.init_transactions(TIMEOUT_S)
    confluent.producer(servers, transactional_id=name).init_transactions(TIMEOUT_S)
    zombie.begin_transaction()
    zombie.produce(topic, "late")
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(TIMEOUT_S)
    assert fenced.value.args[0].fatal()
    assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert read_topic(servers, topic, isolation_level="read_committed") == []


def test_a_transaction_that_takes_too_long_is_aborted(servers: str, new_topic: NewTopic, name: str) -> None:
    topic = new_topic()
    slow = confluent.producer(servers, transactional_id=name, transaction_timeout_ms=1000)
    slow.init_transactions(TIMEOUT_S)
    slow.begin_transaction()
    slow.produce(topic, "too late")
    assert slow.flush(TIMEOUT_S) == 0
    # Nothing behind it can be read before the broker has given it up.
    confluent.write(servers, topic, "behind")
    reader = confluent.consumer(servers, isolation_level="read_committed")
    reader.subscribe([topic])
    assert confluent.values(confluent.polled(reader, 1)) == ["behind"]
    reader.close()
    with pytest.raises(KafkaException):
        slow.commit_transaction(TIMEOUT_S)
