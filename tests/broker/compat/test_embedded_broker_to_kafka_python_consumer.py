"""An embedded broker read by kafka-python: every way to find a place in a log, and to stay or move there."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import Any

import pytest

from tests.broker.compat import confluent, kafka_python
from tests.broker.compat.confluent import TIMEOUT_S
from tests.broker.compat.conftest import NewTopic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import TopicPartition
    from kafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError

START_MS = 1_700_000_000_000


@pytest.fixture
def place(servers: str, new_topic: NewTopic) -> Any:
    """A partition of ten records, a second apart."""
    name = new_topic()
    writer = confluent.producer(servers)
    for index in range(10):
        writer.produce(name, str(index), timestamp=START_MS + 1000 * index)
    assert writer.flush(TIMEOUT_S) == 0
    return TopicPartition(name, 0)


@pytest.fixture
def reader(servers: str, closing: ExitStack, place: Any) -> Any:
    """Assigned to the partition."""
    consumer = kafka_python.consumer(servers, closing)
    consumer.assign([place])
    return consumer


def following(reader: Any, count: int) -> list[str]:
    return [next(reader).value.decode() for _ in range(count)]


def test_it_seeks_back_and_forth(reader: Any, place: Any) -> None:
    assert following(reader, 2) == ["0", "1"]
    reader.seek(place, 8)
    assert following(reader, 2) == ["8", "9"]
    reader.seek_to_beginning(place)
    assert following(reader, 1) == ["0"]
    reader.seek_to_end(place)
    assert reader.position(place) == 10


def test_the_first_and_the_next_offset(reader: Any, place: Any) -> None:
    assert reader.beginning_offsets([place]) == {place: 0}
    assert reader.end_offsets([place]) == {place: 10}


def test_offsets_are_found_by_their_time(reader: Any, place: Any) -> None:
    def first_from(timestamp: int) -> Any:
        return reader.offsets_for_times({place: timestamp})[place]

    assert first_from(START_MS - 1)[:2] == (0, START_MS)
    assert first_from(START_MS + 4001)[:2] == (5, START_MS + 5000)
    assert first_from(START_MS + 9001) is None


def test_a_paused_partition_waits(reader: Any, place: Any) -> None:
    reader.pause(place)
    assert reader.poll(200) == {}
    reader.resume(place)
    assert following(reader, 1) == ["0"]


def test_an_offset_that_is_not_there_is_told(servers: str, closing: ExitStack, place: Any) -> None:
    reader = kafka_python.consumer(servers, closing, auto_offset_reset="none")
    reader.assign([place])
    with pytest.raises(NoOffsetForPartitionError):
        next(reader)
    reader.seek(place, 1000)
    with pytest.raises(OffsetOutOfRangeError):
        next(reader)


def test_a_group_goes_on_where_it_committed(servers: str, closing: ExitStack, place: Any, name: str) -> None:
    read = []
    for settings in ({"enable_auto_commit": True}, {}, {}):
        reader = kafka_python.consumer(servers, closing, place.topic, group_id=name, **settings)
        read += following(reader, 3)
        if not settings:
            reader.commit()
        reader.close()
    assert read == [str(index) for index in range(9)]


def test_records_of_a_running_transaction_are_held_back(servers: str, closing: ExitStack, new_topic: NewTopic, name: str) -> None:
    topic = new_topic()
    writer = confluent.producer(servers, transactional_id=name)
    writer.init_transactions(TIMEOUT_S)
    committed, uncommitted = (
        kafka_python.consumer(servers, closing, topic, isolation_level=level) for level in ("read_committed", "read_uncommitted")
    )
    for ending in (writer.abort_transaction, writer.commit_transaction):
        writer.begin_transaction()
        writer.produce(topic, ending.__name__)
        assert writer.flush(TIMEOUT_S) == 0
        assert following(uncommitted, 1) == [ending.__name__]
        assert committed.poll(100) == {}
        ending(TIMEOUT_S)
    assert following(committed, 1) == ["commit_transaction"]
