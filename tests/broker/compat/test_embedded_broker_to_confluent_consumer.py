"""An embedded broker read by confluent-kafka: every way to find a place in a log, and to stay or move there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    TopicPartition,
)

from tests.broker.compat import confluent
from tests.broker.compat.confluent import TIMEOUT_S, polled, values
from tests.broker.compat.conftest import NewTopic

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


def test_offsets_are_found_by_their_time(reader: Consumer, topic: str) -> None:
    def first_from(timestamp: int) -> int:
        (found,) = reader.offsets_for_times([TopicPartition(topic, 0, timestamp)], TIMEOUT_S)
        return found.offset

    assert first_from(START_MS - 1) == 0
    assert first_from(START_MS + 4000) == 4
    assert first_from(START_MS + 4001) == 5
    assert first_from(START_MS + 9001) == OFFSET_END


def test_an_offset_that_is_not_there_is_reset_or_told(servers: str, topic: str) -> None:
    for policy, expected in (("earliest", "0"), ("error", KafkaError._AUTO_OFFSET_RESET)):
        consumer = confluent.consumer(servers, auto_offset_reset=policy)
        consumer.assign([TopicPartition(topic, 0, 1000)])
        message = consumer.poll(TIMEOUT_S)
        consumer.close()
        assert message is not None
        error = message.error()
        assert (error.code() if error is not None else values([message])[0]) == expected


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
