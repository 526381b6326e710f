"""What an answer does to batches, to the scope that they belong to, and to what waits behind them; no broker, no thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_kafka_sink.client.network_client import ClientResponse
from spark_kafka_sink.errors import DeliveryError, DeliveryTimeoutError, KafkaSinkError, UsageError
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.producer.accumulator.sequences import PartitionSequences, ProducerIdAndEpoch
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.identity import IdempotentIdentity, Identity
from spark_kafka_sink.producer.sender.batch_responses import BatchAnswer, Delivery
from spark_kafka_sink.protocol.apis.produce import (
    INIT_PRODUCER_ID,
    BatchIndexAndErrorMessage,
    InitProducerIdResponse,
    PartitionProduceResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.compression import Codec
from tests.producer.parts import Parts, make_parts

IDENTITY = ProducerIdAndEpoch(7, 0)
STORED = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.fixture
def parts() -> Parts:
    """Each record is a batch, and a retry may go at once."""
    return make_parts(batch_size=1, retry_backoff_ms=0, retry_backoff_max_ms=0)


def identity_of(parts: Parts) -> IdempotentIdentity:
    """Has its producer id from the start."""
    client: Any = None  # nothing is asked
    identity = IdempotentIdentity(parts.config, client, parts.accumulator)
    body = InitProducerIdResponse(producer_id=IDENTITY.producer_id, producer_epoch=IDENTITY.epoch)
    identity.answered(ClientResponse(0, INIT_PRODUCER_ID, 4, 0, body, None, 0, 0), 0)
    return identity


def delivery_of(parts: Parts, identity: Identity | None = None) -> Delivery:
    return Delivery(parts.config, parts.accumulator, identity or identity_of(parts), parts.metrics, lambda queue: "")


def sent(parts: Parts) -> list[SealedBatch]:
    """What Sender does for one request with all that may go now."""
    parts.accumulator.flush(None)
    batches = [drained if isinstance(drained, SealedBatch) else numbered(parts, drained) for drained in parts.drain()]
    for batch in batches:
        batch.attempts += 1
        batch.sent_to, batch.on_wire, batch.known_not_stored = 0, True, False
    return batches


def numbered(parts: Parts, opened: OpenBatch) -> SealedBatch:
    batch = SealedBatch(opened, Codec.NONE, 0)
    batch.queue.sequences = batch.queue.sequences or PartitionSequences(IDENTITY)
    batch.queue.sequences.assign(batch)
    parts.accumulator.sealed([batch])
    return batch


def said(batch: SealedBatch, code: ErrorCode) -> BatchAnswer:
    base_offset = 0 if code is STORED else -1
    return batch, PartitionProduceResponse(index=batch.queue.partition, error_code=code, base_offset=base_offset)


def test_a_failure_is_told_after_the_acks_of_its_answer_are_counted(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery, scope = delivery_of(parts), parts.tally()
    parts.append(scope, [b"0", b"1", b"2", b"3"], [0, 1, 2, 3])
    refused, *others = sent(parts)
    assert len(others) == 3
    acked_when_told: list[int] = []
    batch_failed = scope.batch_failed

    def told(record_count: int, error: KafkaSinkError, *, rejected: bool) -> None:
        batch_failed(record_count, error, rejected=rejected)
        acked_when_told.append(scope.report().records)
        with pytest.raises(DeliveryError, match=r"1 record failed, 3 were acknowledged: .*INVALID_RECORD"):
            scope.raise_error()

    monkeypatch.setattr(scope, "batch_failed", told)
    answers = [said(refused, ErrorCode.INVALID_RECORD), *(said(batch, STORED) for batch in others)]
    delivery.answered(answers, parts.clock())
    assert acked_when_told == [3]


@pytest.mark.parametrize("codes", [(STORED, STORED), (STORED, OUT_OF_ORDER), (OUT_OF_ORDER, OUT_OF_ORDER)])
def test_a_partition_goes_on_once_all_that_was_in_flight_behind_a_failed_batch_is_answered(
    parts: Parts, codes: tuple[ErrorCode, ErrorCode]
) -> None:
    identity, scope = identity_of(parts), parts.tally()
    delivery = delivery_of(parts, identity)
    parts.append(scope, [b"0", b"1", b"2", b"3", b"4"], [0] * 5)
    (first,) = sent(parts)
    delivery.answered([said(first, STORED)], parts.clock())
    (failing,), (second,), (third,) = sent(parts), sent(parts), sent(parts)
    delivery.answered([said(failing, ErrorCode.INVALID_RECORD)], parts.clock())
    for batch, code in zip((second, third), codes, strict=True):
        identity.resolve_gaps()
        assert not sent(parts), "what comes next has to wait for what is in flight"
        delivery.answered([said(batch, code)], parts.clock())
    identity.resolve_gaps()
    while batches := sent(parts):
        delivery.answered([said(batch, STORED) for batch in batches], parts.clock())
    assert scope.report().records == 4
    assert not parts.accumulator.has_incomplete()


@pytest.mark.fault("error codes", "no retry after the delivery timeout or the last attempt")
@pytest.mark.parametrize(("age_ms", "again"), [(119_999, True), (120_000, False)])
def test_a_batch_is_sent_again_while_there_is_time(parts: Parts, age_ms: int, again: bool) -> None:
    delivery, scope = delivery_of(parts), parts.tally()
    parts.append(scope, [b"0"], [0])
    (batch,) = sent(parts)
    delivery.answered([said(batch, ErrorCode.NOT_ENOUGH_REPLICAS)], batch.created_ms + age_ms)
    assert parts.accumulator.has_incomplete() == again


def rejected_late(delivery: Delivery, batch: SealedBatch, code: ErrorCode) -> None:
    delivery.answered([said(batch, code)], batch.created_ms + 120_000)


def expired_before_its_retry(delivery: Delivery, batch: SealedBatch, code: ErrorCode) -> None:
    delivery.answered([said(batch, code)], batch.created_ms)
    delivery.expire(batch.created_ms + 120_000)


@pytest.mark.parametrize("ends", [rejected_late, expired_before_its_retry])
@pytest.mark.parametrize(
    ("code", "advice"), [(ErrorCode.NOT_ENOUGH_REPLICAS, ""), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "; create the topic, or .*")]
)
def test_whether_a_batch_expires_before_or_with_its_last_rejection_the_error_is_the_same(
    parts: Parts, ends: Callable[[Delivery, SealedBatch, ErrorCode], None], code: ErrorCode, advice: str
) -> None:
    delivery, scope = delivery_of(parts), parts.tally()
    parts.append(scope, [b"0"], [0])
    (batch,) = sent(parts)
    ends(delivery, batch, code)
    wanted = (
        r"topic t partition 0: 1 record was not acknowledged within delivery\.timeout\.ms \(120000 ms passed\);"
        rf" sent 1 time, may have been stored; last error: {code.name}{advice}$"
    )
    with pytest.raises(DeliveryError, match=wanted) as raised:
        scope.raise_error()
    assert isinstance(raised.value.__cause__, DeliveryTimeoutError)
    assert parts.pool.available == parts.pool.total


@pytest.mark.fault("error codes", "no retry after the delivery timeout or the last attempt")
def test_a_batch_without_retries_left_fails_with_its_rejection_however_late() -> None:
    parts = make_parts(retries=1)
    delivery, scope = delivery_of(parts), parts.tally()
    parts.append(scope, [b"0"], [0])
    (batch,) = sent(parts)
    batch.attempts = 2
    rejected_late(delivery, batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(DeliveryError, match=r"the broker rejected 1 record: NOT_ENOUGH_REPLICAS; tried 2 times$"):
        scope.raise_error()


def test_no_retry_waits_longer_than_the_longest_back_off() -> None:
    parts = make_parts(batch_size=1, retry_backoff_ms=1, retry_backoff_max_ms=1000)
    delivery, now_ms = delivery_of(parts), 0
    parts.append(parts.tally(), [b"0"], [0])
    (batch,) = sent(parts)
    waits: list[int] = []
    for _ in range(60):
        batch.attempts += 1
        now_ms = parts.clock()
        delivery.answered([said(batch, ErrorCode.NOT_ENOUGH_REPLICAS)], now_ms)
        waits.append(batch.queue.back_off_until_ms - now_ms)
        parts.passed_ms += 2000
        batch.created_ms = parts.clock()  # it has all the time it needs
        parts.ready_nodes()
    assert waits[:3] == sorted(waits[:3])
    assert all(800 <= wait <= 1000 for wait in waits[12:])


def test_records_that_are_rejected_leave_their_batch_unfinished_until_the_others_are_acked() -> None:
    parts = make_parts(retry_backoff_ms=0, retry_backoff_max_ms=0)
    delivery, scope = delivery_of(parts), parts.tally()
    parts.append(scope, [b"0", b"1", b"2"], [0] * 3)
    (batch,) = sent(parts)
    answer = PartitionProduceResponse(
        index=0, error_code=ErrorCode.INVALID_RECORD, base_offset=-1, record_errors=[BatchIndexAndErrorMessage(1, "bad")]
    )
    delivery.answered([(batch, answer)], parts.clock())
    with pytest.raises(
        DeliveryError,
        match=r"1 record failed, 0 were acknowledged: .*the broker rejected 1 of 3 records: INVALID_RECORD; record 1: bad",
    ):
        scope.raise_error()
    assert scope.unfinished == 1
    (rest,) = sent(parts)
    assert (rest.record_count, rest.attempts, rest.created_ms) == (2, 1, batch.created_ms)
    delivery.answered([said(rest, STORED)], parts.clock())
    assert scope.unfinished == 0
    assert scope.report().records == 2
    assert parts.pool.available == parts.pool.total


def lingering(parts: Parts, delivery: Delivery, scope: Tally) -> None:
    parts.append(scope, [b"0"], [0])


def waiting_for_its_retry(parts: Parts, delivery: Delivery, scope: Tally) -> None:
    on_the_wire(parts, delivery, scope)
    (batch,) = parts.accumulator.queues("t")[0].sequences.in_flight  # type: ignore[union-attr]  # it was numbered
    assert isinstance(batch, SealedBatch)
    delivery.answered([said(batch, ErrorCode.NOT_ENOUGH_REPLICAS)], parts.clock())


def on_the_wire(parts: Parts, delivery: Delivery, scope: Tally) -> None:
    parts.append(scope, [b"0"], [0])
    sent(parts)


def behind_one_on_the_wire(parts: Parts, delivery: Delivery, scope: Tally) -> None:
    on_the_wire(parts, delivery, scope)
    parts.append(scope, [b"1"], [0])


STATES = [lingering, waiting_for_its_retry, on_the_wire, behind_one_on_the_wire]


@pytest.mark.parametrize("bring_about", STATES)
def test_whatever_state_they_are_in_batches_expire_once_and_give_their_memory_back(
    parts: Parts, bring_about: Callable[[Parts, Delivery, Tally], None]
) -> None:
    delivery, scope = delivery_of(parts), parts.tally()
    bring_about(parts, delivery, scope)
    on_wire = [b for b in parts.accumulator._incomplete.values() if isinstance(b, SealedBatch) and b.on_wire]
    records = parts.accumulator.incomplete_records()
    parts.passed_ms = parts.config.delivery_timeout_ms + 1000
    for _ in range(2):
        delivery.expire(parts.clock())
    with pytest.raises(DeliveryError, match=rf"{records} records? failed, 0 were acknowledged: .*delivery.timeout.ms"):
        scope.wait_for_acks(1, lambda: None)
    assert scope.unfinished == 0
    assert (parts.pool.available == parts.pool.total) == (not on_wire), "what is on the wire keeps its memory"
    delivery.answered([said(batch, STORED) for batch in on_wire], parts.clock())
    assert (scope.report().records, scope.unfinished) == (0, 0)
    assert parts.pool.available == parts.pool.total


@pytest.mark.parametrize("bring_about", STATES)
def test_whatever_state_they_are_in_a_close_by_force_ends_all_batches(
    parts: Parts, bring_about: Callable[[Parts, Delivery, Tally], None]
) -> None:
    delivery, scope = delivery_of(parts), parts.tally()
    bring_about(parts, delivery, scope)
    records = parts.accumulator.incomplete_records()
    for _ in range(2):
        delivery.fail_all(UsageError("closed"))
    with pytest.raises(DeliveryError, match=rf"{records} records? failed, 0 were acknowledged: .*closed"):
        scope.wait_for_acks(1, lambda: None)
    assert scope.unfinished == 0
    assert parts.pool.available == parts.pool.total
    assert not parts.accumulator.has_incomplete()


def test_a_close_by_force_fails_what_expired_on_the_wire_no_second_time(parts: Parts) -> None:
    delivery, scope = delivery_of(parts), parts.tally()
    on_the_wire(parts, delivery, scope)
    parts.passed_ms = parts.config.delivery_timeout_ms + 1000
    delivery.expire(parts.clock())
    delivery.fail_all(UsageError("closed"))
    with pytest.raises(DeliveryError, match=r"1 record failed, 0 were acknowledged: .*delivery.timeout.ms"):
        scope.raise_error()
    assert scope.unfinished == 0
