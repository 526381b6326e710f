"""What goes wrong is in the figures: retries, errors before and after sending, throttling, and waits for memory."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import (
    BufferExhaustedError,
    DeliveryError,
    FlushTimeoutError,
    MetadataTimeoutError,
    RecordTooLargeError,
)
from spark_kafka_sink.producer.producer import CHUNK_SIZE, Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import failing_scope, numbers, one_by_one, producer_on
from tests.faults.recording_broker import RecordingBroker, carries
from tests.producer.inside import meet


def of_producer(producer: Producer) -> dict[str, float]:
    return producer.metrics()["producer-metrics"]


def of_topic(producer: Producer) -> dict[str, float]:
    return producer.metrics()["producer-topic-metrics"]["t"]


def test_a_retry_counts_its_records_as_retried_and_as_sent_again(cluster: RecordingBroker) -> None:
    cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, times=2)
    with producer_on(cluster.bootstrap_servers) as producer:
        with producer.scope() as scope:
            scope.append("t", numbers(range(5)))
            scope.flush(10)
        for metrics in (of_producer(producer), of_topic(producer)):
            assert metrics["record-retry-total"] == 10
            assert metrics["record-send-total"] == 15
            assert metrics["record-error-total"] == 0
        assert of_topic(producer)["byte-total"] == 3 * of_producer(producer)["batch-size-max"]
        assert of_producer(producer)["record-queue-time-max"] > 0


def test_a_refused_batch_counts_its_records_as_errors(cluster: RecordingBroker) -> None:
    cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD, when=carries(1))
    # A batch in flight behind the refused one would be out of order, and retried.
    with one_by_one(cluster.bootstrap_servers, max_in_flight_requests_per_connection=1) as producer:
        with failing_scope(producer) as scope:
            scope.append("t", numbers([0, 1, 2]))
            with pytest.raises(DeliveryError):
                scope.flush(10)
        for metrics in (of_producer(producer), of_topic(producer)):
            assert metrics["record-error-total"] == 1
            assert metrics["record-retry-total"] == 0


def test_a_batch_that_is_split_counts_as_that_and_not_as_retried(cluster: RecordingBroker) -> None:
    cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE)
    with producer_on(cluster.bootstrap_servers) as producer:
        with producer.scope() as scope:
            scope.append("t", numbers(range(4), width=100))
            scope.flush(10)
        metrics = of_producer(producer)
        assert metrics["batch-split-total"] == 1
        assert metrics["record-retry-total"] == metrics["record-error-total"] == 0
        assert metrics["record-send-total"] == 8
        assert metrics["record-size-avg"] == metrics["record-size-max"] > 100


def test_what_a_close_leaves_undone_is_an_error_and_nothing_stays_in_flight(cluster: RecordingBroker) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    producer = one_by_one(cluster.bootstrap_servers)
    scope = producer.scope()
    scope.append("t", numbers([0, 1]))
    held.wait()
    assert of_producer(producer)["requests-in-flight"] == 1
    with pytest.raises(FlushTimeoutError):
        producer.close(0)
    assert of_producer(producer)["record-error-total"] == 2
    assert of_producer(producer)["requests-in-flight"] == 0


def test_records_that_an_append_refuses_are_errors_without_having_been_sent(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers, max_request_size=1000, max_block_ms=1000) as producer, producer.scope() as scope:
        meet(producer, "t")
        with pytest.raises(RecordTooLargeError):
            scope.append("t", RecordColumns(3, value=pa.array([b"1", b"2" * 1000, b"3"])))
        assert of_producer(producer)["record-error-total"] == 3
        with pytest.raises(MetadataTimeoutError):
            scope.append("no-such-topic", numbers([1, 2]))
        metrics = of_producer(producer)
        assert metrics["record-error-total"] == 5
        assert metrics["record-send-total"] == metrics["buffer-exhausted-total"] == 0
        assert metrics["metadata-wait-time-ns-total"] > 0


def test_memory_that_stays_out_is_waited_for_and_then_refused(cluster: RecordingBroker) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    with one_by_one(cluster.bootstrap_servers, buffer_memory=2 * CHUNK_SIZE, max_block_ms=1000) as producer:
        meet(producer, "t")
        with producer.scope() as scope:
            begun_ns = time.monotonic_ns()
            with pytest.raises(BufferExhaustedError) as refused:
                scope.append("t", numbers(range(10)))
            passed_ns = time.monotonic_ns() - begun_ns
            assert refused.value.facts["buffered"] == 2
            metrics = of_producer(producer)
            assert metrics["buffer-exhausted-total"] == metrics["record-error-total"] == 8
            assert metrics["buffer-exhausted-rate"] > 0
            assert 0 < metrics["bufferpool-wait-time-ns-total"] < passed_ns
            assert metrics["bufferpool-wait-ratio"] == pytest.approx(
                metrics["bufferpool-wait-time-ns-total"] / 30_000_000_000, rel=0.2
            )
            assert (metrics["buffer-available-bytes"], metrics["buffer-total-bytes"]) == (0, 2 * CHUNK_SIZE)
            held.remove()
            scope.flush(10)
        assert of_producer(producer)["record-send-total"] == 2
