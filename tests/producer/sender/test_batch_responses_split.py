"""A batch that is too large, without a broker: its parts take its place in the queue, in its scope, in the pool and in time."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import DeliveryError
from spark_kafka_sink.producer.accumulator.producer_batch import SealedBatch
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.sender.batch_responses import Delivery
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.producer.parts import Parts, make_parts
from tests.producer.sender.test_batch_responses import STORED, delivery_of, identity_of, said, sent

TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
TIMEOUT_MS = 120_000  # delivery.timeout.ms
STEP_MS = 20_000  # more than the steps of a test may take; their real time counts as well


@pytest.fixture
def parts() -> Parts:
    return make_parts(retry_backoff_ms=0, retry_backoff_max_ms=0)


def split_in_two(parts: Parts, delivery: Delivery, scope: Tally) -> None:
    """Four records in one batch, refused and split."""
    parts.append(scope, [b"x" * 1000] * 4, [0] * 4)
    batch = next_one(parts)
    delivery.answered([said(batch, TOO_LARGE)], parts.clock())


def next_one(parts: Parts) -> SealedBatch:
    (batch,) = sent(parts)
    return batch


def assert_all_is_over(parts: Parts) -> None:
    assert not parts.accumulator.has_incomplete()
    assert parts.pool.total == parts.pool.available


def test_a_part_that_fails_for_good_leaves_the_other_to_be_delivered(parts: Parts) -> None:
    identity, scope = identity_of(parts), parts.tally()
    delivery = delivery_of(parts, identity)
    split_in_two(parts, delivery, scope)
    delivery.answered([said(next_one(parts), ErrorCode.INVALID_RECORD)], parts.clock())
    identity.resolve_gaps()
    delivery.answered([said(next_one(parts), STORED)], parts.clock())
    with pytest.raises(DeliveryError, match=r"2 records failed, 2 were acknowledged"):
        scope.raise_error()
    assert scope.unfinished == 0
    assert_all_is_over(parts)


def test_parts_expire_when_their_batch_would_have_and_before_what_came_later(parts: Parts) -> None:
    delivery, scope, later = delivery_of(parts), parts.tally(), parts.tally()
    parts.append(scope, [b"x" * 1000] * 4, [0] * 4)
    first = next_one(parts)
    parts.passed_ms = 2 * STEP_MS
    parts.append(later, [b"later"], [1])
    next(iter(parts.accumulator.queues("t")[1].batches)).created_ms += 2 * STEP_MS
    delivery.answered([said(first, TOO_LARGE)], parts.clock())
    parts.passed_ms = TIMEOUT_MS + STEP_MS
    delivery.expire(parts.clock())
    with pytest.raises(
        DeliveryError,
        match=r"4 records failed, .*2 records were not acknowledged.*split after MESSAGE_TOO_LARGE and not sent since",
    ):
        scope.raise_error()
    assert later.unfinished == 1
    later.raise_error()
    parts.passed_ms = TIMEOUT_MS + 3 * STEP_MS
    delivery.expire(parts.clock())
    with pytest.raises(DeliveryError, match="1 record failed"):
        later.raise_error()
    assert_all_is_over(parts)


def test_a_batch_that_expired_on_the_wire_is_not_split_any_more(parts: Parts) -> None:
    delivery, scope = delivery_of(parts), parts.tally()
    parts.append(scope, [b"x" * 1000] * 4, [0] * 4)
    batch = next_one(parts)
    parts.passed_ms = TIMEOUT_MS + 500
    delivery.expire(parts.clock())
    delivery.answered([said(batch, TOO_LARGE)], parts.clock())
    assert sent(parts) == []
    assert_all_is_over(parts)


def test_of_a_discarded_scope_the_parts_go_on_and_tell_nobody(parts: Parts) -> None:
    delivery, scope = delivery_of(parts), parts.tally()
    parts.append(scope, [b"x" * 1000] * 4, [0] * 4)
    batch = next_one(parts)
    parts.discard(scope)
    delivery.answered([said(batch, TOO_LARGE)], parts.clock())
    for _ in range(2):
        delivery.answered([said(next_one(parts), STORED)], parts.clock())
    assert scope.report().records == 0
    assert_all_is_over(parts)


def test_what_was_waiting_goes_behind_the_parts(parts: Parts) -> None:
    delivery, scope = delivery_of(parts), parts.tally()
    parts.append(scope, [b"x" * 1000] * 4, [0] * 4)
    first = next_one(parts)
    parts.append(scope, [b"later"], [0])
    delivery.answered([said(first, TOO_LARGE)], parts.clock())
    counts = []
    for _ in range(3):
        batch = next_one(parts)
        counts.append((batch.first_record, batch.record_count))
        delivery.answered([said(batch, STORED)], parts.clock())
    assert counts == [(0, 2), (2, 2), (4, 1)]


def test_records_that_come_later_make_batches_of_half_the_refused_size_at_most(parts: Parts) -> None:
    delivery, scope = delivery_of(parts), parts.tally()
    parts.append(scope, [b"x" * 1000] * 4, [0] * 4)
    refused = next_one(parts)
    delivery.answered([said(refused, TOO_LARGE)], parts.clock())
    while batches := sent(parts):
        delivery.answered([said(batch, STORED) for batch in batches], parts.clock())
    for topic in ("t", "u"):
        parts.append(scope, [b"y" * 100] * 60, [0] * 60, topic)
    drained = parts.drain_all()
    sizes = {topic: [batch.size for batch in drained if batch.queue.topic == topic] for topic in ("t", "u")}
    assert len(sizes["t"]) == 4
    assert max(sizes["t"]) <= refused.raw_size // 2
    assert len(sizes["u"]) == 1, "another topic's batches stay as they were"


def test_an_open_batch_that_is_over_the_new_limit_already_takes_no_more(parts: Parts) -> None:
    delivery, scope = delivery_of(parts), parts.tally()
    parts.append(scope, [b"x" * 1000] * 4, [0] * 4)
    first = next_one(parts)
    parts.append(scope, [b"y" * 100] * 30, [1] * 30)  # lingers
    delivery.answered([said(first, TOO_LARGE)], parts.clock())
    parts.append(scope, [b"z" * 100] * 5, [1] * 5)
    assert [batch.record_count for batch in parts.accumulator.queues("t")[1].batches] == [30, 5]
