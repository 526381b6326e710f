"""Records sent one by one, against real Kafka: what arrives, what their futures say, and what is refused, how."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spark_kafka_sink.errors import (
    BrokerError,
    KafkaSinkError,
    MetadataTimeoutError,
    RecordError,
    RecordTooLargeError,
    SerializationError,
    UsageError,
)
from spark_kafka_sink.producer.base.producer_record import RecordMetadata
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.single_records.record_future import RecordFuture
from spark_kafka_sink.producer.single_records.topic_buffer import TopicBuffer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.every import every
from tests.faults.producing import producer_at
from tests.faults.recording_broker import RecordingBroker
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import Witnessed, read_topic
from tests.producer.inside import lifecycle_of, meet
from tests.producer.told import Told
from tests.tiers import whole_but
from tests.waiting import HOUR_MS, wait_until


def read(kafka: Kafka, topic: str) -> dict[tuple[int, int], Witnessed]:
    return {(record.partition, record.offset): record for record in read_topic(kafka.bootstrap_servers, topic)}


@pytest.mark.parametrize("linger_ms", whole_but([0, 5, 300], [5], "the same records in more or in fewer batches"))
def test_every_part_of_a_record_arrives_where_its_future_says(kafka: Kafka, new_topic: NewTopic, linger_ms: int) -> None:
    topic = new_topic(3)
    sent: list[tuple[dict[str, Any], tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]] = [
        ({"value": b"v", "key": b"k"}, (b"k", b"v", [])),
        ({"value": None, "key": b"k"}, (b"k", None, [])),
        ({"value": b"v"}, (None, b"v", [])),
        ({}, (None, None, [])),
        ({"value": b"", "key": b""}, (b"", b"", [])),
        ({"value": "gr\u00fc\u00df", "key": "\u00fc"}, ("\u00fc".encode(), "gr\u00fc\u00df".encode(), [])),
        ({"value": bytearray(b"array"), "key": memoryview(b"view")}, (b"view", b"array", [])),
        (
            {"value": b"h", "headers": [("a", b"1"), ("a", None), ("\u00fc", b"")]},
            (None, b"h", [("a", b"1"), ("a", None), ("\u00fc", b"")]),
        ),
        ({"value": b"h", "headers": {"b": b"2", "c": None}}, (None, b"h", [("b", b"2"), ("c", None)])),
        ({"value": b"h", "headers": []}, (None, b"h", [])),
        ({"value": b"p", "partition": 2}, (None, b"p", [])),
        ({"value": b"x" * 700_000}, (None, b"x" * 700_000, [])),
    ]
    before = time.time_ns() // 1_000_000
    with producer_at(kafka, linger_ms=linger_ms) as producer:
        futures = [producer.send(topic, **given) for given, _ in sent]
        found = [future.result(30) for future in futures]
    after = time.time_ns() // 1_000_000
    records = read(kafka, topic)
    assert len(records) == len(sent)
    for (given, (key, value, headers)), metadata in zip(sent, found, strict=True):
        record = records[metadata.partition, metadata.offset]
        assert (record.key, record.value, list(record.headers), record.timestamp) == (key, value, headers, metadata.timestamp)
        assert before <= metadata.timestamp <= after
        sizes = [-1 if data is None else len(data) for data in (key, value)]
        assert [metadata.serialized_key_size, metadata.serialized_value_size] == sizes
        assert metadata.topic == topic
        assert given.get("partition", metadata.partition) == metadata.partition


def test_what_is_changed_after_the_call_is_not_sent(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    value, headers = bytearray(b"before"), [("h", b"before")]
    with producer_at(kafka, linger_ms=60_000) as producer:
        future = producer.send(topic, value, headers=headers)
        value[:] = b"after!"
        headers[0] = ("h", b"after")
        producer.flush()
        assert future.done()
    (record,) = read(kafka, topic).values()
    assert (record.value, list(record.headers)) == (b"before", [("h", b"before")])


@pytest.mark.parametrize("timestamp", [0, 1_600_000_000_000, 2**53])
def test_a_timestamp_that_was_given_is_the_records(kafka: Kafka, new_topic: NewTopic, timestamp: int) -> None:
    topic = new_topic(1, config={"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"})
    with producer_at(kafka) as producer:
        metadata = producer.send(topic, b"v", timestamp=timestamp).result(60)
        now = producer.send(topic, b"v").result(60)
    assert metadata.timestamp == timestamp
    assert [record.timestamp for record in read(kafka, topic).values()] == [timestamp, now.timestamp]


def test_the_timestamp_is_the_brokers_where_the_topic_says_so(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, config={"message.timestamp.type": "LogAppendTime"})
    before = time.time_ns() // 1_000_000
    with producer_at(kafka) as producer:
        found = [future.result(60) for future in [producer.send(topic, b"v", timestamp=17), producer.send(topic, b"w")]]
    assert all(before <= metadata.timestamp <= time.time_ns() // 1_000_000 for metadata in found)


def test_without_acks_a_record_is_sent_and_its_offset_is_not_known(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, told = new_topic(1), Told()
    with producer_at(kafka, acks="0") as producer:
        futures = [producer.send(topic, b"%d" % n, timestamp=50 + n, on_completion=told.of(n)) for n in range(3)]
        assert [future.result(60) for future in futures] == [RecordMetadata(topic, 0, -1, 50 + n, -1, 1) for n in range(3)]
    assert told.records == [0, 1, 2]
    wait_until(lambda: len(read(kafka, topic)) == 3, "all three records")


@pytest.mark.parametrize(
    "settings", [{}, {"acks": "1"}, {"enable_idempotence": "false", "max_in_flight_requests_per_connection": 1}]
)
def test_callbacks_run_in_order_within_a_partition_and_before_anybody_has_the_result(
    kafka: Kafka, new_topic: NewTopic, settings: dict[str, object]
) -> None:
    topic, told = new_topic(3), Told()
    with producer_at(kafka, batch_size=3000, linger_ms=0, **settings) as producer:
        futures = [producer.send(topic, b"%d" % n, on_completion=told.of(n)) for n in range(3_000)]
        for n in range(0, 3_000, 997):
            futures[n].result(30)
            assert n in told.records
        producer.flush()
    assert set(told.records) == set(range(3_000))
    assert len(told.records) == 3_000
    assert told.errors == [None] * 3_000
    for partition in range(3):
        here = [(record, metadata.offset) for record, metadata, _ in told.ends if metadata.partition == partition]
        assert here == sorted(here)
        assert [offset for _, offset in here] == list(range(len(here)))
    assert [metadata for _, metadata, _ in sorted(told.ends)] == [future.result() for future in futures]
    assert len(set(told.threads)) == 1


# What is refused


@every(
    "call, error, text",
    [
        ({"value": 1.5}, SerializationError, "value"),
        ({"key": ["k"]}, SerializationError, "key"),
        ({"value": "\ud800"}, SerializationError, "UTF-8"),
        ({"partition": -1}, RecordError, "partition is -1"),
        ({"partition": "0"}, RecordError, "partition is '0'"),
        ({"partition": True}, RecordError, "partition is True"),
        ({"timestamp": -1}, RecordError, "timestamp -1 ms is before 1970"),
        ({"timestamp": 1.0}, RecordError, "timestamp is 1.0"),
        ({"timestamp": 2**63}, RecordError, "timestamp 9223372036854775808 ms does not fit in 64 bits"),
        ({"on_completion": 5}, UsageError, r"on_completion is int, must be a function\(metadata, error\)"),
        ({"headers": [("a",)]}, RecordError, "pairs"),
        ({"headers": [(None, b"")]}, RecordError, "pairs"),
        ({"headers": [b"a"]}, RecordError, "pairs"),
        ({"headers": 7}, RecordError, "headers is int"),
        ({"headers": {"a": "text"}}, RecordError, "'a' has a value of type str"),
        ({"topic": None}, RecordError, "topic is None"),
        ({"topic": ["t"]}, RecordError, r"topic is \['t'\]"),
    ],
)
def test_a_malformed_call_is_raised_and_harms_no_other(
    kafka: Kafka, new_topic: NewTopic, call: dict[str, Any], error: type[KafkaSinkError], text: str
) -> None:
    topic, told = new_topic(1), Told()
    with producer_at(kafka, linger_ms=60_000) as producer:
        before = producer.send(topic, b"before")
        with pytest.raises(error, match=text):
            producer.send(**{"topic": topic, "on_completion": told.of("never"), **call})
        after = producer.send(topic, b"after")
        producer.flush()
        assert (before.result().offset, after.result().offset) == (0, 1)
    assert told.records == []


def test_numbers_of_numpy_are_numbers(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with producer_at(kafka) as producer:
        numbers: dict[str, Any] = {"partition": np.int32(1), "timestamp": np.int64(1_700_000_000_000)}
        found = producer.send(topic, b"v", **numbers).result(30)
    assert (found.partition, found.timestamp, type(found.timestamp)) == (1, 1_700_000_000_000, int)


@every(
    "call, error, text",
    [
        ({"topic": "nowhere"}, MetadataTimeoutError, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"topic": "no such name"}, RecordError, "not a valid topic name"),
        ({"topic": ""}, RecordError, "not a valid topic name"),
        ({"topic": "\ud800"}, RecordError, "not a valid topic name"),
        ({"topic": "t" * 300}, RecordError, "not a valid topic name"),
        ({"partition": 2}, RecordError, "partition is 2, but there are 2 partitions, 0 to 1"),
        ({"partition": 2**40}, RecordError, "partition is 1099511627776"),
        ({"value": bytes(2000)}, RecordTooLargeError, "takes 20.. bytes before compression, more than max.request.size"),
        ({"headers": {"h": bytes(2000)}}, RecordTooLargeError, "takes 20.. bytes"),
    ],
)
def test_what_cannot_be_sent_fails_its_future_and_harms_no_other(
    kafka: Kafka, new_topic: NewTopic, call: dict[str, Any], error: type[KafkaSinkError], text: str
) -> None:
    topic, told = new_topic(2), Told()
    # A topic that does not exist is waited for so long.
    max_block_ms = 2000 if error is MetadataTimeoutError else HOUR_MS
    with producer_at(kafka, linger_ms=60_000, max_block_ms=max_block_ms, max_request_size=2000) as producer:
        meet(producer, topic)
        before = producer.send(topic, b"before", partition=0)
        failed = producer.send(**{"topic": topic, "value": b"v", "on_completion": told.of("failed"), **call})
        assert failed.done()
        with pytest.raises(error, match=text):
            failed.result()
        after = producer.send(topic, b"after", partition=0)
        producer.flush()
        assert (before.result().offset, after.result().offset) == (0, 1)
    ((_, metadata, told_error),) = told.ends
    assert told_error is failed.exception()
    assert (metadata.partition, metadata.offset, metadata.timestamp) == (-1, -1, -1)
    assert metadata.serialized_value_size == len(call.get("value", b"v"))


def buffered_topics() -> set[str]:
    gc.collect()
    return {each.waiter.topic for each in gc.get_objects() if isinstance(each, TopicBuffer)}


def test_names_of_topics_that_are_wrong_leave_nothing_behind(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    with producer_at(kafka, max_block_ms=0) as producer:
        for n in range(50):
            assert isinstance(producer.send(f"nowhere-{n}", b"").exception(), MetadataTimeoutError)
            assert isinstance(producer.send(f"no name {n}", b"").exception(), RecordError)
        assert not [name for name in buffered_topics() if name.startswith(("nowhere-", "no name"))]
    with producer_at(kafka) as producer:
        assert producer.send(topic, b"").result(60).offset == 0
        assert topic in buffered_topics()


@pytest.mark.parametrize("topic", ["t", "u"])
def test_a_producer_that_has_failed_takes_no_records_and_says_why_it_failed(topic: str) -> None:
    with RecordingBroker() as cluster:
        cluster.topic("t")
        cluster.topic("u")
        cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None)
        producer = producer_at(cluster, linger_ms=0, client_id="failing")
        first = producer.send("t", b"v")
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            first.result(60)
        wait_until(lambda: not any("failing" in each.name for each in threading.enumerate()), "the end of the sender's thread")
        for _ in range(2):
            with pytest.raises(BrokerError, match="the producer cannot continue: CLUSTER_AUTHORIZATION_FAILED"):
                producer.send(topic, b"v")
        assert repr(producer).endswith(", failed with [AUTHORIZATION]>")
        producer.flush(1)
        producer.close()


# Another process


def _use_in_child(producer: Producer, acked: RecordFuture, waiting: RecordFuture, told: multiprocessing.SimpleQueue[Any]) -> None:
    calls: list[Callable[[], object]] = [
        waiting.done,
        lambda: waiting.result(60),
        lambda: waiting.exception(60),
        lambda: producer.send("t", b"v"),
        producer.flush,
        lambda: producer.partitions_for("t"),
    ]
    for call in calls:
        try:
            call()
            told.put("nothing was raised")
        except UsageError as error:
            told.put(str(error))
    told.put(acked.result().offset)
    producer.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_told_instead_of_waiting_for_ever(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, context = new_topic(1), multiprocessing.get_context("fork")
    with producer_at(kafka, linger_ms=60_000) as producer:
        acked = producer.send(topic, b"0")
        producer.flush()
        waiting = producer.send(topic, b"1")
        told = context.SimpleQueue()
        with waiting._waiter.tally._lock, lifecycle_of(producer)._lock:  # as some thread of the parent may hold them
            child = context.Process(target=_use_in_child, args=(producer, acked, waiting, told))
            child.start()
            said = [told.get() for _ in range(7)]
            child.join(60)
        assert child.exitcode == 0
        assert all("belongs to process" in text for text in said[:6])
        assert said[6] == 0
        producer.flush()
        assert waiting.result().offset == 1
