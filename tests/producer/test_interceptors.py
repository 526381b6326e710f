"""Interceptors: what they may change, that they hear of every record's end once, and that none of them harms anybody."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import (
    BrokerError,
    DeliveryError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    KafkaSinkError,
    MetadataTimeoutError,
    OptionError,
    RecordError,
    RecordTooLargeError,
    SerializationError,
    UsageError,
)
from spark_kafka_sink.producer.base.producer_record import RecordMetadata
from spark_kafka_sink.producer.interceptors import ColumnsMetadata
from spark_kafka_sink.producer.producer import CHUNK_SIZE, Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import failing_scope, numbers, producer_on
from tests.faults.recording_broker import RecordingBroker
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.producer.inside import meet
from tests.producer.recording_interceptors import (
    Appending,
    Raising,
    Recording,
    Redirecting,
    Unconfigured,
    WrongType,
)
from tests.producer.told import Told
from tests.waiting import HOUR_MS, wait_until

HERE = "tests.producer.recording_interceptors"


def intercepted(on: Kafka | RecordingBroker, *interceptors: object, **settings: object) -> Producer:
    return producer_on(on.bootstrap_servers, interceptor_classes=interceptors, **settings)


# The chain


def test_each_sees_what_the_one_before_it_made_and_all_hear_of_the_end_in_order(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, calls, told = new_topic(1), list[tuple[str, str]](), Told()
    first, second = Appending("-1", calls), Appending("-2", calls)
    with intercepted(kafka, first, second) as producer:
        future = producer.send(topic, b"v", on_completion=lambda *_: calls.append(("callback", "")))
        future.result(60)
        producer.send(topic, b"w", on_completion=told.of("w")).result(60)
    assert [record.value for record in second.sent] == [b"v-1", b"w-1"]
    assert [record.value for record in read_topic(kafka.bootstrap_servers, topic)] == [b"v-1-2", b"w-1-2"]
    assert calls[:2] == [("-1", "configure"), ("-2", "configure")]
    assert calls[2:7] == [
        ("-1", "on_send"),
        ("-2", "on_send"),
        ("-1", "on_acknowledgement"),
        ("-2", "on_acknowledgement"),
        ("callback", ""),
    ]
    assert calls[-2:] == [("-1", "close"), ("-2", "close")]
    assert first.ends == second.ends
    assert [(metadata.offset, error) for metadata, error in first.ends] == [(0, None), (1, None)]


def test_one_may_change_all_of_a_record(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, other = new_topic(1), new_topic(3, config={"retention.ms": "-1"})
    where = {"topic": other, "partition": 2, "timestamp": 1_600_000_000_000}
    with intercepted(kafka, Redirecting(**where, value="new", key=b"k", headers=[("h", b"1")])) as producer:
        metadata = producer.send(topic, b"old").result(60)
    assert metadata == RecordMetadata(other, 2, 0, 1_600_000_000_000, 1, 3)
    (record,) = read_topic(kafka.bootstrap_servers, other)
    assert (record.key, record.value, record.headers) == (b"k", b"new", (("h", b"1"),))
    assert not read_topic(kafka.bootstrap_servers, topic)


def test_they_get_all_settings_by_their_names(kafka: Kafka) -> None:
    one = Recording()
    intercepted(kafka, one, acks="1", linger_ms=7).close()
    (settings,) = one.settings
    assert (settings["acks"], settings["linger.ms"], settings["batch.size"]) == (1, 7, 512 * 1024)


def test_they_are_made_of_dotted_names_classes_and_objects(cluster: RecordingBroker) -> None:
    one = Recording()
    for value in (f"{HERE}.Recording, {HERE}.Appending", [Recording, one], f" {HERE}.Recording ", ""):
        with producer_on(cluster.bootstrap_servers, interceptor_classes=value) as producer:
            assert producer.send("t", b"1").exception(60) is None
    assert len(one.ends) == 1


def test_one_that_cannot_be_had_is_said_at_once_and_those_before_it_are_closed() -> None:
    before = Recording()
    with pytest.raises(OptionError, match=r"Unconfigured\.configure failed: RuntimeError: no such setting") as raised:
        Producer({"bootstrap.servers": "127.0.0.1:1", "interceptor.classes": [before, Unconfigured]})
    assert raised.value.facts["option"] == "interceptor.classes"
    assert before.closes == 1


# Errors of their own


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(1)])
def test_one_that_raises_is_logged_and_passed_over(
    cluster: RecordingBroker, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    if isinstance(error, SystemExit):
        raising: Recording = Raising(error=ZeroDivisionError())
        raising.on_acknowledgement = raising.on_acknowledgement_columns = _exit  # type: ignore[method-assign, assignment]
    else:
        raising = Raising(error=error)
    before, after, told = Recording("before"), Recording("after"), Told()
    with caplog.at_level(logging.WARNING), intercepted(cluster, before, raising, after) as producer:
        assert producer.send("t", b"1", on_completion=told.of(1)).result(60).offset == 0
        with producer.scope() as scope:
            scope.append("t", numbers([2]))
    assert cluster.values() == [1, 2]
    assert told.records == [1]
    for one in (before, after):
        assert [len(calls) for calls in (one.sent, one.sent_columns, one.ends, one.column_ends)] == [1, 1, 1, 1]
        assert one.closes == 1
    for method in ("on_send", "on_send_columns", "on_acknowledgement", "on_acknowledgement_columns", "close"):
        assert f"interceptor {HERE}.Raising: {method} raised an exception, which is ignored" in caplog.text


def _exit(*_: object) -> None:
    raise SystemExit(1)


def test_one_that_returns_something_else_is_logged_and_passed_over(
    cluster: RecordingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), intercepted(cluster, WrongType()) as producer:
        assert producer.send("t", b"1").result(60).offset == 0
        with producer.scope() as scope:
            scope.append("t", numbers([2]))
    assert cluster.values() == [1, 2]
    assert "returned NoneType, not ProducerRecord" in caplog.text
    assert "returned list, not RecordColumns" in caplog.text


# Single records: each end, once


FAILURES: list[tuple[dict[str, Any], type[KafkaSinkError], bool]] = [
    ({"value": 1.5}, SerializationError, True),
    ({"partition": -1}, RecordError, True),
    ({"timestamp": -1}, RecordError, True),
    ({"topic": None}, RecordError, True),
    ({"topic": "nowhere"}, MetadataTimeoutError, False),
    ({"topic": "no name"}, RecordError, False),
    ({"value": bytes(3000)}, RecordTooLargeError, False),
    ({"partition": 9}, RecordError, False),
]


@pytest.mark.parametrize(("call", "kind", "raised"), FAILURES)
def test_a_record_that_fails_before_it_is_in_a_batch_is_told_once(
    cluster: RecordingBroker, call: dict[str, Any], kind: type[KafkaSinkError], raised: bool
) -> None:
    one, told = Recording(), Told()
    max_block_ms = 1000 if kind is MetadataTimeoutError else HOUR_MS
    with intercepted(cluster, one, max_block_ms=max_block_ms, max_request_size=2000) as producer:
        given: dict[str, Any] = {"topic": "t", "value": b"1", "on_completion": told.of("it"), **call}
        if raised:
            with pytest.raises(kind):
                producer.send(**given)
        else:
            assert isinstance(producer.send(**given).exception(0), kind)
    ((metadata, error),) = one.ends
    assert isinstance(error, kind)
    assert (metadata.topic, metadata.partition, metadata.offset) == (given["topic"], -1, -1)
    assert len(told.ends) == (not raised)


class Refusing:
    def partition_record(self, *_: object) -> int:
        raise ValueError("no partition")


def test_a_record_that_the_partitioner_refuses_is_told_once(cluster: RecordingBroker) -> None:
    one = Recording()
    with intercepted(cluster, one, partitioner_class=Refusing) as producer:
        futures = [producer.send("t", b"%d" % n) for n in range(5)]
        producer.flush()
        assert [type(future.exception(0)) for future in futures] == [RecordError] * 5
    assert [type(error) for _, error in one.ends] == [RecordError] * 5


def test_a_record_for_a_closed_producer_is_told_once(cluster: RecordingBroker) -> None:
    one = Recording()
    producer = intercepted(cluster, one)
    with producer.scope() as scope:
        scope.append("t", numbers([1]))
    scope = producer.scope()
    producer.close()
    with pytest.raises(UsageError, match="closed"):
        producer.send("t", b"1")
    with pytest.raises(UsageError, match="closed"):
        scope.append("t", numbers([2, 3]))
    assert [type(error) for _, error in one.ends] == [UsageError]
    assert (one.rows(None), one.rows(UsageError)) == (1, 2)
    scope.discard()


def test_a_record_that_a_broker_refuses_is_told_once_just_before_its_callback(cluster: RecordingBroker) -> None:
    cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
    calls: list[tuple[str, str]] = []
    one = Recording("one", calls)
    with intercepted(cluster, one) as producer:
        future = producer.send("t", b"1", on_completion=lambda *_: calls.append(("callback", "")))
        assert isinstance(future.exception(60), BrokerError)
    assert calls[-3:] == [("one", "on_acknowledgement"), ("callback", ""), ("one", "close")]
    assert [type(error) for _, error in one.ends] == [BrokerError]


@pytest.mark.parametrize("memory", [CHUNK_SIZE, 32 << 20])
def test_records_that_expire_are_told_once(cluster: RecordingBroker, memory: int) -> None:
    cluster.faults.hold(ApiKey.PRODUCE, times=None)
    one = Recording()
    timeouts = {"delivery_timeout_ms": 300, "request_timeout_ms": 200, "linger_ms": 0}
    with intercepted(cluster, one, buffer_memory=memory, **timeouts) as producer:
        futures = [producer.send("t", bytes(CHUNK_SIZE - 200)), producer.send("t", b"1"), producer.send("t", b"2")]
        assert {type(future.exception(60)) for future in futures} == {DeliveryTimeoutError}
        wait_until(lambda: len(one.ends) == 3, "all have heard")
    assert {type(error) for _, error in one.ends} == {DeliveryTimeoutError}
    assert len(one.ends) == 3


@pytest.mark.parametrize("memory", [CHUNK_SIZE, 32 << 20])
def test_records_of_a_producer_that_is_closed_by_force_are_told_once(cluster: RecordingBroker, memory: int) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    one = Recording()
    producer = intercepted(cluster, one, buffer_memory=memory)
    producer.send("t", bytes(CHUNK_SIZE - 200))
    held.wait()
    for _ in range(5):
        producer.send("t", b"1")
    with pytest.raises(FlushTimeoutError):
        producer.close(0)
    assert [type(error) for _, error in one.ends] == [UsageError] * 6
    assert one.closes == 1


def test_they_are_closed_once_also_by_a_close_that_a_callback_begins(cluster: RecordingBroker) -> None:
    one = Recording()
    producer = intercepted(cluster, one)
    producer.send("t", b"1", on_completion=lambda *_: producer.close())
    wait_until(lambda: one.closes == 1, "closed, although nobody waits for it")
    producer.close()
    assert one.closes == 1
    assert one.shared[-1] == ("", "close")


# Columns


def test_columns_may_be_changed_and_their_rows_are_told_by_batch_with_their_offsets(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)

    class Doubling(Recording):
        def on_send_columns(self, topic: str, columns: RecordColumns) -> RecordColumns:
            super().on_send_columns(topic, columns)
            assert columns.value is not None
            return RecordColumns(2 * columns.num_records, value=pa.concat_arrays([columns.value, columns.value]))

    doubling, after = Doubling(), Recording()
    with intercepted(kafka, doubling, after, batch_size=2000) as producer, producer.scope() as scope:
        for start in range(0, 3000, 500):
            scope.append(topic, numbers(range(start, start + 500)))
        scope.flush()
        assert scope.report().records == 6000
    assert [columns.num_records for _, columns in after.sent_columns] == [1000] * 6
    read = [int(record.value or b"") for record in read_topic(kafka.bootstrap_servers, topic)]
    assert sorted(read) == sorted(2 * list(range(3000)))
    for one in (doubling, after):
        assert (one.rows(None), one.rows(KafkaSinkError)) == (6000, 0)
        assert len(one.column_ends) > 6
        for partition in range(3):
            parts = [metadata for metadata, _ in one.column_ends if metadata.partition == partition]
            offsets = np.concatenate([np.arange(part.base_offset, part.base_offset + part.num_records) for part in parts])
            assert offsets.tolist() == list(range(len(offsets)))
    assert not doubling.ends


def test_columns_that_are_refused_whole_are_told_once(cluster: RecordingBroker) -> None:
    one = Recording()
    settings = {"max_block_ms": 2000, "max_request_size": 2000, "value_serializer": "long"}
    good = RecordColumns(1, value=pa.array([1], pa.int64()))
    with intercepted(cluster, one, **settings) as producer, failing_scope(producer) as scope:
        meet(producer, "t")
        with pytest.raises(SerializationError):
            scope.append("t", RecordColumns(2, value=pa.array(["1", "2"])))
        with pytest.raises(MetadataTimeoutError):
            scope.append("nowhere", good)
        with pytest.raises(RecordError):
            scope.append("t", RecordColumns(1, value=good.value, partition=np.array([7], np.int32)))
        with pytest.raises(RecordTooLargeError):
            scope.append("t", RecordColumns(1, value=good.value, key=pa.array([bytes(3000)])))
    assert [(metadata.topic, metadata.num_records, type(error)) for metadata, error in one.column_ends] == [
        ("t", 2, SerializationError),
        ("nowhere", 1, MetadataTimeoutError),
        ("t", 1, RecordError),
        ("t", 1, RecordTooLargeError),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_told_once_where_some_batches_fail_and_memory_runs_out(cluster: RecordingBroker, seed: int) -> None:
    cluster.topic("u", [1] * 4)
    cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD, topic="u", partition=seed, times=None)
    one, appended = Recording(), 0
    with intercepted(cluster, one, buffer_memory=8 * CHUNK_SIZE, batch_size=4000, max_block_ms=0) as producer:
        for start in range(20):
            with failing_scope(producer) as scope:
                try:
                    appended += 400
                    scope.append("u", numbers(range(400), width=200 + start))
                    scope.flush(60)
                except (DeliveryError, KafkaSinkError):
                    pass
    assert one.rows(None) + one.rows(KafkaSinkError) == appended
    assert one.rows(None) == sum(len(cluster.values("u", partition)) for partition in range(4))
    assert one.rows(KafkaSinkError) > 0


def test_rows_of_a_scope_that_is_discarded_are_told_once(cluster: RecordingBroker) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    one = Recording()
    with intercepted(cluster, one, batch_size=1, linger_ms=0) as producer:
        with producer.scope() as scope:
            scope.append("t", numbers(range(10)))
            held.wait()  # the first batch goes alone
            scope.discard()
        assert one.rows(UsageError) == 9
        held.remove()
        wait_until(lambda: one.rows(None) == 1, "what was in flight goes on")
    assert len(one.column_ends) == 10


def test_rows_of_a_producer_that_is_closed_by_force_are_told_once(cluster: RecordingBroker) -> None:
    cluster.faults.hold(ApiKey.PRODUCE, times=None)
    one = Recording()
    producer = intercepted(cluster, one, batch_size=1, linger_ms=0)
    scope = producer.scope()
    scope.append("t", numbers(range(10)))
    with pytest.raises(FlushTimeoutError):
        producer.close(0)
    assert one.rows(UsageError) == len(one.column_ends) == 10
    scope.discard()


def test_one_may_not_wait_for_records_in_the_senders_thread(cluster: RecordingBroker) -> None:
    outcome: list[object] = []

    class Waiting(Recording):
        def on_acknowledgement_columns(self, metadata: ColumnsMetadata, error: KafkaSinkError | None) -> None:
            if error is not None:
                return
            try:
                with producer.scope() as inner:
                    inner.append("t", numbers([2]))
            except KafkaSinkError as raised:
                outcome.append(raised)

    producer = intercepted(cluster, Waiting(), linger_ms=60_000, delivery_timeout_ms=120_000)
    with producer, producer.scope() as scope:
        scope.append("t", numbers([1]))
        scope.flush(60)
        (error,) = outcome
        assert isinstance(error, UsageError)
        assert "must not wait" in str(error)
    assert cluster.values() == [1]
