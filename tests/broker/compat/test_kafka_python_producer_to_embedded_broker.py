"""kafka-python writes to an embedded broker, confluent-kafka reads it back."""

from __future__ import annotations

import warnings
from contextlib import ExitStack

import pytest

from tests.broker.compat import kafka_python
from tests.broker.compat.conftest import NewTopic
from tests.broker.compat.kafka_python import TIMEOUT_S
from tests.kafka.witness import read_topic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import TopicPartition
    from kafka.errors import KafkaError, MessageSizeTooLargeError, ProducerFencedError
    from kafka.structs import OffsetAndMetadata

VALUES = [f"value {index}".encode() for index in range(200)]


def of(servers: str, topic: str, isolation_level: str = "read_committed") -> list[bytes | None]:
    """Values, partition by partition."""
    return [record.value for record in read_topic(servers, topic, isolation_level=isolation_level)]


# What it needs for snappy is not among this project's packages.
@pytest.mark.parametrize("codec", [None, "gzip", "lz4", "zstd"])
def test_every_codec(servers: str, new_topic: NewTopic, closing: ExitStack, codec: str | None) -> None:
    topic = new_topic()
    writer = kafka_python.producer(servers, closing, compression_type=codec, linger_ms=20)
    sent = [writer.send(topic, value) for value in VALUES]
    writer.flush(TIMEOUT_S)
    assert [future.get(TIMEOUT_S).offset for future in sent] == list(range(len(VALUES)))
    assert of(servers, topic) == VALUES


@pytest.mark.parametrize("acks", [0, 1])
def test_less_acks_than_all(servers: str, new_topic: NewTopic, closing: ExitStack, acks: int) -> None:
    topic = new_topic()
    writer = kafka_python.producer(servers, closing, acks=acks, enable_idempotence=False)
    for value in VALUES:
        writer.send(topic, value)
    writer.flush(TIMEOUT_S)
    reader = kafka_python.consumer(servers, closing, topic)
    assert [next(reader).value for _ in VALUES] == VALUES


def test_every_part_of_a_record_comes_back(servers: str, new_topic: NewTopic, closing: ExitStack) -> None:
    topic = new_topic()
    writer = kafka_python.producer(servers, closing)
    writer.send(topic, b"value", key=b"key", headers=[("a", b"1"), ("a", b"")], timestamp_ms=1_700_000_000_123)
    writer.send(topic, None, key=b"deleted", timestamp_ms=1_700_000_000_124)
    writer.flush(TIMEOUT_S)
    assert [record[1:] for record in read_topic(servers, topic)] == [
        (0, b"key", b"value", (("a", b"1"), ("a", b"")), 1_700_000_000_123),
        (1, b"deleted", None, (), 1_700_000_000_124),
    ]


def test_a_record_that_is_too_large_fails_alone(servers: str, new_topic: NewTopic, closing: ExitStack) -> None:
    topic = new_topic(max_message_bytes="1000")
    writer = kafka_python.producer(servers, closing)
    assert writer.send(topic, b"small").get(TIMEOUT_S).offset == 0
    with pytest.raises(MessageSizeTooLargeError):
        writer.send(topic, b"x" * 2000).get(TIMEOUT_S)
    assert of(servers, topic) == [b"small"]


def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    servers: str, new_topic: NewTopic, closing: ExitStack
) -> None:
    topic = new_topic(2)
    writer = kafka_python.producer(servers, closing, enable_idempotence=True, batch_size=200)
    for index, value in enumerate(VALUES):
        writer.send(topic, value, partition=index % 2)
    writer.flush(TIMEOUT_S)
    assert of(servers, topic) == VALUES[::2] + VALUES[1::2]


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    servers: str, new_topic: NewTopic, closing: ExitStack, name: str
) -> None:
    topic = new_topic(2)
    writer = kafka_python.producer(servers, closing, transactional_id=name)
    writer.init_transactions()
    for ending in (writer.commit_transaction, writer.abort_transaction, writer.commit_transaction):
        writer.begin_transaction()
        for partition in (0, 1):
            writer.send(topic, ending.__name__.encode(), partition=partition)
        writer.flush(TIMEOUT_S)
        ending()
    assert of(servers, topic) == [b"commit_transaction"] * 4
    assert len(of(servers, topic, "read_uncommitted")) == 6


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    servers: str, new_topic: NewTopic, closing: ExitStack, name: str
) -> None:
    topic = new_topic()
    place = TopicPartition(topic, 0)
    writer = kafka_python.producer(servers, closing, transactional_id=name)
    writer.init_transactions()
    reader = kafka_python.consumer(servers, closing, group_id=name)
    for ending, offset in ((writer.commit_transaction, 1), (writer.abort_transaction, 2)):
        writer.begin_transaction()
        writer.send(topic, b"value")
        writer.send_offsets_to_transaction({place: OffsetAndMetadata(offset, "mine", -1)}, name)
        ending()
    assert reader.committed(place) == 1


def test_a_second_producer_with_the_id_fences_the_first(servers: str, new_topic: NewTopic, closing: ExitStack, name: str) -> None:
    topic = new_topic()
    zombie = kafka_python.producer(servers, closing, transactional_id=name)
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.send(topic, b"zombie")
    zombie.flush(TIMEOUT_S)
    writer = kafka_python.producer(servers, closing, transactional_id=name)
    writer.init_transactions()
    writer.begin_transaction()
    writer.send(topic, b"living")
    writer.commit_transaction()
    with pytest.raises(KafkaError) as fenced:
        zombie.commit_transaction()
    assert isinstance(fenced.value, ProducerFencedError) or isinstance(fenced.value.__cause__, ProducerFencedError)
    assert of(servers, topic) == [b"living"]
