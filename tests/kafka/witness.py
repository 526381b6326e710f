"""Reads a topic back with confluent-kafka, an independent implementation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, Consumer, KafkaError, KafkaException, Message, TopicPartition

REQUEST_TIMEOUT_S = 60.0  # nothing asks again
CONSUME_AT_ONCE = 10_000
LEADER_NOT_YET = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.OFFSET_NOT_AVAILABLE)


class Witnessed(NamedTuple):
    """A record as it was read. timestamp: CreateTime in ms; None if the topic or the record has none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None


def read_topic(
    bootstrap_servers: str,
    topic: str,
    *,
    partitions: Sequence[int] | None = None,
    isolation_level: str = "read_uncommitted",
    deadline_s: float = 60.0,
) -> list[Witnessed]:
    """Returns every record from the log's start to the current high watermark, in order of offset within each partition.

    Partitions follow one another. With "read_committed" it ends at the last stable offset. TimeoutError at the deadline.
    """
    deadline = time.monotonic() + deadline_s
    with _consumer(bootstrap_servers, isolation_level) as consumer:
        wanted = sorted(partitions if partitions is not None else _partitions(consumer, topic))
        ends = {partition: _high_watermark(consumer, topic, partition, deadline) for partition in wanted}
        found: dict[int, list[Witnessed]] = {partition: [] for partition in wanted}
        for message in _messages(consumer, topic, ends, deadline):
            record = _witnessed(message)
            if record.offset < ends[record.partition]:
                found[record.partition].append(record)
    return [record for partition in wanted for record in found[partition]]


@contextmanager
def _consumer(bootstrap_servers: str, isolation_level: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "witness",  # required, but nothing is committed and no group is joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "check.crcs": True,
            "fetch.wait.max.ms": 10,  # a log's end is told by an empty answer, for which 500 ms would be waited
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    description = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
    if description.error is not None:
        raise KafkaException(description.error)
    return list(description.partitions)


def _high_watermark(consumer: Consumer, topic: str, partition: int, deadline: float) -> int:
    while True:
        try:
            watermarks = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            # Metadata name a leader before it has opened the log of a partition that has just been made, and a leader that has
            # just been elected knows no high watermark until its followers have fetched (KIP-207).
            if error.args[0].code() not in LEADER_NOT_YET or time.monotonic() > deadline:
                raise
            continue
        if watermarks is None:
            raise TimeoutError(f"no leader of {topic}-{partition} told its high watermark within {REQUEST_TIMEOUT_S:g} s")
        return watermarks[1]


def _messages(consumer: Consumer, topic: str, ends: dict[int, int], deadline: float) -> Iterator[Message]:
    """Yields messages until the consumer reports the end of each partition, because the last offset may be a marker's."""
    unfinished = {partition for partition, end in ends.items() if end > 0}
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in unfinished])
    while unfinished:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic}: partitions {sorted(unfinished)} were not read to their ends {ends} before the deadline")
        for message in consumer.consume(CONSUME_AT_ONCE, timeout=0.02):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(cast(int, message.partition()))
            elif not error.retriable():
                raise KafkaException(error)


def _witnessed(message: Message) -> Witnessed:
    kind, timestamp = message.timestamp()
    return Witnessed(
        partition=cast(int, message.partition()),
        offset=cast(int, message.offset()),
        key=message.key(),
        value=message.value(),
        headers=tuple(cast("list[tuple[str, bytes | None]]", message.headers() or [])),
        timestamp=timestamp if kind == TIMESTAMP_CREATE_TIME else None,
    )
