"""buffer.memory is a bound, whoever holds it: batches in flight, expired ones, appends that wait, brokers that stand still."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import (
    BufferExhaustedError,
    DeliveryError,
    FlushTimeoutError,
    KafkaSinkError,
    RecordTooLargeError,
    UsageError,
)
from spark_kafka_sink.producer.producer import CHUNK_SIZE, Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import buffered_bytes, failing_scope, figure, numbers, one_by_one, producer_on
from tests.faults.recording_broker import RecordingBroker, carries
from tests.producer.inside import meet
from tests.waiting import HOUR_MS, wait_until

TWO_CHUNKS = 2 * CHUNK_SIZE


def wait_until_blocked(producer: Producer) -> None:
    wait_until(lambda: figure(producer, "waiting-threads") > 0, "an append waits for memory")


def append_in_thread(producer: Producer, outcome: list[BaseException | None]) -> threading.Thread:
    def append() -> None:
        try:
            with producer.scope() as scope:
                scope.append("t", numbers([9]))
                scope.flush(10)
            outcome.append(None)
        except KafkaSinkError as error:
            outcome.append(error)

    thread = threading.Thread(target=append)
    thread.start()
    return thread


@pytest.mark.fault("memory", "the pool is full for max.block.ms")
def test_memory_that_stays_out_ends_an_append_at_max_block_ms(cluster: RecordingBroker) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    with one_by_one(cluster.bootstrap_servers, buffer_memory=TWO_CHUNKS, max_block_ms=1000) as producer:
        meet(producer, "t")
        with producer.scope() as scope:
            scope.append("t", numbers([0]))
            scope.append("t", numbers([1]))
            begun = time.monotonic()
            with pytest.raises(BufferExhaustedError, match=r"buffer.memory: timed out after \d+ ms waiting for 16384 bytes"):
                scope.append("t", numbers([2]))
            assert time.monotonic() - begun >= 1
            held.remove()
            scope.flush(10)
            assert scope.report().records == 2
        with producer.scope() as scope:
            scope.append("t", numbers([3]))
            scope.flush(10)
    assert cluster.values() == [0, 1, 3]


@pytest.mark.fault("memory", "failures of every kind give memory back")
def test_memory_comes_back_once_batches_are_acked_failed_or_discarded(cluster: RecordingBroker) -> None:
    cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD, times=None, when=carries(3, 31, 44))
    with one_by_one(cluster.bootstrap_servers, buffer_memory=TWO_CHUNKS) as producer:
        for start in range(0, 60, 2):
            failing = pytest.raises(DeliveryError) if start in (2, 30, 44) else nullcontext()
            with failing, producer.scope() as scope:
                scope.append("t", numbers([start, start + 1]))
                scope.flush(10)
        wait_until(lambda: buffered_bytes(producer) == 0, "the memory is back")
    assert set(range(60)) - set(cluster.values()) <= {3, 31, 44, 45}


def test_a_compressed_batch_without_an_answer_holds_its_compressed_bytes_only(cluster: RecordingBroker) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE)
    with producer_on(cluster.bootstrap_servers, compression_type="zstd") as producer, producer.scope() as scope:
        scope.append("t", numbers([1], width=20 * CHUNK_SIZE))
        held.wait()
        assert 0 < buffered_bytes(producer) <= CHUNK_SIZE
        held.remove()
        scope.flush(10)
    assert cluster.values() == [1]


@pytest.mark.fault("memory", "a batch expires in flight while the pool is under pressure (KAFKA-19012)")
@pytest.mark.usefixtures("patient_requests")
def test_what_expired_in_flight_keeps_its_memory_until_its_request_is_over(cluster: RecordingBroker) -> None:
    """KAFKA-19012: a buffer that was given to another batch went out under the first one's header.

    The broker does not read what comes behind 1, so the large batch stays half sent when its time is over; others want its memory
    at once.
    """
    size = 3 << 20
    cluster.topic(max_message_bytes=2 * size)
    held = cluster.faults.hold(ApiKey.PRODUCE, when=carries(1))
    settings = {"request_timeout_ms": 3000, "delivery_timeout_ms": 3000, "max_request_size": 2 * size}
    with producer_on(cluster.bootstrap_servers, buffer_memory=size + 2 * CHUNK_SIZE, **settings) as producer:
        with failing_scope(producer) as scope:
            scope.append("t", numbers([0]))
            scope.flush(10)
            scope.append("t", numbers([1]))
            scope.append("t", numbers([2], width=size))
            with pytest.raises(DeliveryError, match=r"sent 1 time, may have been stored"):
                scope.flush(10)
        assert buffered_bytes(producer) >= size, "the memory of a batch on the wire was given back"
        outcome: list[BaseException | None] = []
        others = [append_in_thread(producer, outcome) for _ in range(4)]
        with producer.scope() as scope:
            refill = threading.Thread(target=lambda: scope.append("t", numbers([3], width=size)))
            refill.start()
            wait_until_blocked(producer)
            held.remove()
            refill.join(10)
            scope.flush(10)
        for thread in others:
            thread.join(10)
    # Every batch that came had a right CRC (`RecordingBroker` checks), and the large ones are all zeros but for the end.
    assert outcome == [None] * 4
    stored = sorted(cluster.values())
    assert [value for value in stored if value not in (1, 2)] == [0, 3, 9, 9, 9, 9]
    assert max(stored.count(1), stored.count(2)) <= 1


def test_an_append_that_waits_for_memory_says_why_the_producer_failed(cluster: RecordingBroker) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE)
    cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    errors: list[KafkaSinkError] = []
    with one_by_one(cluster.bootstrap_servers, buffer_memory=32768) as producer, failing_scope(producer) as scope:

        def append() -> None:
            try:
                scope.append("t", numbers(range(10)))
            except KafkaSinkError as error:
                errors.append(error)

        appending = threading.Thread(target=append)
        appending.start()
        held.wait()
        wait_until(lambda: figure(producer, "waiting-threads") > 0, "a wait for memory")
        held.remove()
        appending.join(10)
        wait_until(lambda: producer.unfinished() == 0, "the end of all records")
    assert "CLUSTER_AUTHORIZATION_FAILED" in str(errors[0])
    assert figure(producer, "record-error-total") == 10  # each once, whether it was in a batch or not


@pytest.mark.fault("memory", "close with blocked senders")
@pytest.mark.parametrize("timeout_s", [0.0, 0.2])
def test_close_wakes_whoever_waits_for_memory(cluster: RecordingBroker, timeout_s: float) -> None:
    cluster.faults.hold(ApiKey.PRODUCE, times=None)
    producer = one_by_one(cluster.bootstrap_servers, buffer_memory=TWO_CHUNKS, max_block_ms=HOUR_MS)
    scope = producer.scope()
    scope.append("t", numbers([0, 1]))
    outcome: list[BaseException | None] = []
    waiting = append_in_thread(producer, outcome)
    wait_until_blocked(producer)
    with pytest.raises(FlushTimeoutError):
        producer.close(timeout_s)
    waiting.join()
    assert isinstance(outcome[0], UsageError)
    with pytest.raises(KafkaSinkError):
        scope.flush(5)


@pytest.mark.fault("memory", "a record over buffer.memory or max.request.size")
def test_a_record_over_the_memory_is_refused_before_anything_is_buffered(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers, buffer_memory=TWO_CHUNKS) as producer, producer.scope() as scope:
        with pytest.raises(RecordTooLargeError, match=r"row 1 of 3: .* 4\d{4} bytes before compression, more than buffer.memory"):
            scope.append("t", RecordColumns(3, value=pa.array([b"1", b"2" * 40_000, b"3"])))
        assert buffered_bytes(producer) == 0
        scope.append("t", numbers([5]))
        scope.flush(10)
    assert cluster.values() == [5]


def test_a_scope_that_ends_in_an_error_gives_back_what_it_buffered(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError), producer.scope() as scope:
                scope.append("t", numbers(range(10)))
                assert buffered_bytes(producer) > 0
                raise ZeroDivisionError
        assert buffered_bytes(producer) == 0
    assert cluster.values() == []
