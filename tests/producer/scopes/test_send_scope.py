"""A task's share of a producer: its own counts, its own errors, its own flush."""

from __future__ import annotations

import threading

import pytest

from spark_kafka_sink.errors import BrokerError, DeliveryError, UsageError
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.producer.accumulator.sequences import NO_PRODUCER
from spark_kafka_sink.producer.identity import Identity
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.producer.sender.batch_responses import Delivery
from spark_kafka_sink.protocol.apis.produce import PartitionProduceResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS
from spark_kafka_sink.reports.partition_reports import PartitionReport
from tests.producer.parts import Parts, make_parts


def sent(parts: Parts, scope: SendScope, rows: int = 1, partition: int = 0) -> SealedBatch:
    parts.append(scope.tally, [b"x"] * rows, [partition] * rows)
    parts.accumulator.flush(scope.tally)
    (batch,) = parts.drain()
    assert isinstance(batch, OpenBatch)
    sealed = SealedBatch(batch, Codec.NONE, 0)
    sealed.number(NO_PRODUCER, 0)
    parts.accumulator.sealed([sealed])
    sealed.attempts, sealed.first_sent_ms, sealed.on_wire = 1, parts.clock(), True
    return sealed


def delivery_of(parts: Parts) -> Delivery:
    return Delivery(parts.config, parts.accumulator, Identity(), parts.metrics, lambda queue: "its broker accepted no request")


def answer(parts: Parts, batch: SealedBatch, code: int = 0, base_offset: int = -1) -> None:
    answer = PartitionProduceResponse(index=batch.queue.partition, error_code=code, base_offset=base_offset)
    delivery_of(parts).answered([(batch, answer)], parts.clock())


def test_a_report_counts_what_was_acked_by_partition_with_its_offsets() -> None:
    parts = make_parts(enable_idempotence="false")
    scope = parts.scope()
    answer(parts, sent(parts, scope, rows=3), base_offset=10)
    answer(parts, sent(parts, scope, rows=2), base_offset=20)
    report = scope.report()
    assert (report.records, report.batches) == (5, 2)
    assert report.partitions == {("t", 0): PartitionReport(5, report.bytes, 10, 21)}
    assert report.compressed_bytes == report.bytes + 2 * 61
    assert sum(report.ack_latency["t"]) == 2
    assert len(report.ack_latency["t"]) == LATENCY_BUCKETS


def test_a_flush_returns_when_the_scopes_own_batches_are_acked() -> None:
    parts = make_parts(enable_idempotence="false")
    scope, other = parts.scope(), parts.scope()
    mine = sent(parts, scope)
    parts.append(other.tally, [b"y"], [1])
    flushed = threading.Thread(target=scope.flush)
    flushed.start()
    answer(parts, mine, base_offset=0)
    flushed.join(60)
    assert not flushed.is_alive()


def test_a_failed_batch_fails_the_flush_and_every_later_append_with_its_cause() -> None:
    parts = make_parts(enable_idempotence="false")
    scope = parts.scope()
    answer(parts, sent(parts, scope), base_offset=0)
    answer(parts, sent(parts, scope, rows=2), code=ErrorCode.INVALID_RECORD)
    with pytest.raises(DeliveryError, match=r"2 records failed, 1 was acknowledged: .*t partition 0.*INVALID_RECORD") as raised:
        scope.flush()
    assert isinstance(raised.value.__cause__, BrokerError)
    with pytest.raises(DeliveryError):
        scope.append("t", None)  # type: ignore[arg-type]  # it does not come to that
    assert scope.report().errors == {"INVALID_RECORD": 1}


def test_a_passing_error_is_counted_and_the_batch_goes_out_again() -> None:
    parts = make_parts(enable_idempotence="false", retry_backoff_ms=0)
    scope = parts.scope()
    batch = sent(parts, scope)
    answer(parts, batch, code=ErrorCode.NOT_ENOUGH_REPLICAS)
    parts.passed_ms = 100
    assert parts.drain() == [batch]
    report = scope.report()
    assert (report.retries, report.errors) == (1, {"NOT_ENOUGH_REPLICAS": 1})


def test_what_a_discarded_scope_has_in_flight_ends_without_a_word_and_gives_its_memory_back() -> None:
    parts = make_parts(enable_idempotence="false", buffer_memory=1 << 16)
    scope = parts.scope()
    in_flight = sent(parts, scope)
    scope.discard()
    answer(parts, in_flight, base_offset=0)
    assert scope.report().records == 0
    assert parts.pool.available == 1 << 16


def test_leaving_without_one_flushes() -> None:
    parts = make_parts(enable_idempotence="false")
    scope = parts.scope()
    batch = sent(parts, scope)
    left = threading.Event()

    def leave() -> None:
        with scope:
            pass
        left.set()

    leaving = threading.Thread(target=leave)
    leaving.start()
    answer(parts, batch, base_offset=0)
    leaving.join(60)
    assert left.is_set()
    assert scope.report().records == 1


def test_leaving_raises_what_was_not_delivered() -> None:
    parts = make_parts(enable_idempotence="false")
    scope = parts.scope()
    answer(parts, sent(parts, scope), code=ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(DeliveryError), scope:
        pass


def test_leaving_with_an_exception_discards() -> None:
    parts = make_parts()
    scope = parts.scope()
    parts.append(scope.tally, [b"x"], [0])
    with pytest.raises(KeyError), scope:
        raise KeyError
    with pytest.raises(UsageError, match="discarded"):
        scope.append("t", None)  # type: ignore[arg-type]  # it does not come to that
    assert parts.drain_all() == []


def test_closing_twice_ends_the_scope_once() -> None:
    parts = make_parts()
    ended: list[None] = []
    parts.lifecycle.scope_closed = lambda: ended.append(None)  # type: ignore[method-assign]
    scope = parts.scope()
    with scope:
        scope.close()
    assert ended == [None]


def test_a_flush_with_nothing_open_asks_nothing_of_the_producer() -> None:
    parts = make_parts(enable_idempotence="false")
    scope = parts.scope()
    answer(parts, sent(parts, scope), base_offset=0)
    parts.accumulator.closed = True
    scope.flush(0)
    assert scope.report().records == 1
