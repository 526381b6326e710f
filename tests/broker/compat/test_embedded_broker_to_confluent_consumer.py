"""An embedded broker read by confluent-kafka: every way to find a place in a log, and to stay or move there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    TopicPartition,
)

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.compat import confluent
from tests.broker.compat.confluent import TIMEOUT_S, polled, values
from tests.broker.compat.conftest import NewTopic
from tests.waiting import wait_until

START_MS = 1_700_000_000_000


@pytest.fixture
def topic(servers: str, new_topic: NewTopic) -> str:
    """Ten records in one partition, a second apart."""
    name = new_topic()
    writer = confluent.producer(servers)
    for index in range(10):
        writer.produce(name, str(index), timestamp=START_MS + 1000 * index)
    assert writer.flush(TIMEOUT_S) == 0
    return name


@pytest.fixture
def reader(servers: str, name: str) -> Iterator[Consumer]:
    consumer = confluent.consumer(servers, group_id=name)
    yield consumer
    consumer.close()


def test_it_begins_where_it_is_told_to(reader: Consumer, topic: str) -> None:
    for offset, first in ((OFFSET_BEGINNING, "0"), (4, "4"), (9, "9")):
        reader.assign([TopicPartition(topic, 0, offset)])
        assert values(polled(reader, 1)) == [first]


def test_from_the_end_only_what_is_written_later_is_read(servers: str, topic: str, name: str) -> None:
    consumer = confluent.consumer(servers, group_id=name, enable_partition_eof=True)
    for offset, told in ((9, ["9"]), (OFFSET_END, [])):
        consumer.assign([TopicPartition(topic, 0, offset)])
        assert values(polled(consumer, len(told))) == told
        # The end is looked up in the background. A record that is written before the consumer says so may be in front of it.
        assert end_of_partition(consumer) == 10
    confluent.write(servers, topic, "new")
    assert values(polled(consumer, 1)) == ["new"]
    consumer.close()


def test_it_seeks_back_and_forth(reader: Consumer, topic: str) -> None:
    reader.assign([TopicPartition(topic, 0, 8)])
    assert values(polled(reader, 2)) == ["8", "9"]
    reader.seek(TopicPartition(topic, 0, 2))
    assert values(polled(reader, 3)) == ["2", "3", "4"]
    assert [each.offset for each in reader.position([TopicPartition(topic, 0)])] == [5]


def test_watermarks_tell_the_first_and_the_next_offset(servers: str, reader: Consumer, topic: str) -> None:
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, 10)
    admin = confluent.admin(servers)
    admin.delete_records([TopicPartition(topic, 0, 3)])
    wait_until(lambda: reader.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (3, 10), "records deleted")
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert values(polled(reader, 1)) == ["3"]


def test_offsets_are_found_by_their_time(reader: Consumer, topic: str) -> None:
    def first_from(timestamp: int) -> int:
        (found,) = reader.offsets_for_times([TopicPartition(topic, 0, timestamp)], TIMEOUT_S)
        return found.offset

    assert first_from(START_MS - 1) == 0
    assert first_from(START_MS + 4000) == 4
    assert first_from(START_MS + 4001) == 5
    assert first_from(START_MS + 9001) == OFFSET_END


def test_a_paused_partition_waits(servers: str, new_topic: NewTopic, reader: Consumer) -> None:
    topic = new_topic(2)
    partitions = [TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)]
    confluent.write(servers, topic, "first", "second")
    reader.assign(partitions)
    # librdkafka forgets where to begin if it is paused before it has begun.
    assert sorted(values(polled(reader, 2))) == ["first", "second"]
    reader.pause(partitions[:1])
    confluent.write(servers, topic, "waits", "comes")
    assert values(polled(reader, 1)) == ["comes"]
    assert reader.poll(0.2) is None
    reader.resume(partitions[:1])
    assert values(polled(reader, 1)) == ["waits"]


def test_an_offset_that_is_not_there_is_reset_or_told(servers: str, topic: str) -> None:
    for policy, expected in (("earliest", "0"), ("error", KafkaError._AUTO_OFFSET_RESET)):
        consumer = confluent.consumer(servers, auto_offset_reset=policy)
        consumer.assign([TopicPartition(topic, 0, 1000)])
        message = consumer.poll(TIMEOUT_S)
        consumer.close()
        assert message is not None
        error = message.error()
        assert (error.code() if error is not None else values([message])[0]) == expected


def test_the_end_of_a_partition_is_told(servers: str, topic: str) -> None:
    consumer = confluent.consumer(servers, enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, 0, 9)])
    assert values(polled(consumer, 1)) == ["9"]
    assert end_of_partition(consumer) == 10
    consumer.close()


def end_of_partition(consumer: Consumer) -> int | None:
    """Waits until a consumer with `enable.partition.eof` says that it is at the end, and returns the offset."""
    end = consumer.poll(TIMEOUT_S)
    assert end is not None
    error = end.error()
    assert error is not None
    assert error.code() == KafkaError._PARTITION_EOF
    return end.offset()


@pytest.mark.parametrize("fetch", [{"fetch_max_bytes": 2000, "message_max_bytes": 2000}, {"max_partition_fetch_bytes": 1}])
def test_a_record_is_read_however_little_is_asked_for_at_once(servers: str, new_topic: NewTopic, fetch: dict[str, int]) -> None:
    topic = new_topic()
    large = ["x" * 5000, "y" * 5000]
    confluent.write(servers, topic, *large, batch_num_messages=1)
    consumer = confluent.consumer(servers, **fetch)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = values(polled(consumer, 2))
    consumer.close()
    assert found == large


def test_a_group_goes_on_where_it_committed(servers: str, topic: str, name: str) -> None:
    read: list[str] = []
    for settings in ({"enable_auto_commit": True, "auto_commit_interval_ms": 100}, {}, {}):
        consumer = confluent.consumer(servers, group_id=name, **settings)
        consumer.subscribe([topic])
        read += values(polled(consumer, 3))
        if not settings:
            consumer.commit(asynchronous=False)
        consumer.close()
    assert read == [str(index) for index in range(9)]


def test_only_what_was_stored_is_committed(servers: str, topic: str, name: str) -> None:
    consumer = confluent.consumer(servers, group_id=name, enable_auto_commit=True, enable_auto_offset_store=False)
    consumer.subscribe([topic])
    found = polled(consumer, 5)
    consumer.store_offsets(found[2])
    consumer.commit(asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    consumer.close()
    assert committed.offset == 3


def test_committed_offsets_keep_their_text(servers: str, topic: str, name: str) -> None:
    consumer = confluent.consumer(servers, group_id=name)
    consumer.commit(offsets=[TopicPartition(topic, 0, 4, "of mine")], asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    consumer.close()
    admin = confluent.admin(servers)
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(TIMEOUT_S)
    assert (committed.offset, committed.metadata) == (4, "of mine")
    assert [(each.topic, each.partition, each.offset) for each in listed.topic_partitions] == [(topic, 0, 4)]


def test_a_group_has_no_offset_where_nothing_was_committed(reader: Consumer, topic: str) -> None:
    (nothing,) = reader.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    assert nothing.offset == OFFSET_INVALID


def test_a_pattern_finds_topics_that_are_made_later(broker: EmbeddedBroker, servers: str, new_topic: NewTopic, name: str) -> None:
    first = new_topic()
    consumer = confluent.consumer(servers, group_id=name, topic_metadata_refresh_interval_ms=100, heartbeat_interval_ms=200)
    consumer.subscribe([f"^{first}($|-later)"])
    confluent.write(servers, first, "one")
    assert values(polled(consumer, 1)) == ["one"]
    consumer.commit(asynchronous=False)
    broker.create_topic(f"{first}-later")
    confluent.write(servers, f"{first}-later", "two")
    assert values(polled(consumer, 1)) == ["two"]
    consumer.close()
