"""What makes a partition's batches ready, and what one drain takes: Java's conditions, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.producer.accumulator import appender
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import Batch
from spark_kafka_sink.producer.accumulator.sequences import NO_PRODUCER, PartitionSequences, ProducerIdAndEpoch
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.pieces import encode_pieces
from tests.producer.clusters import cluster_of
from tests.producer.parts import Parts, make_parts
from tests.waiting import HOUR_MS

MINUTE_MS = 60_000  # more than the steps of a test may take; their real time counts as well


def lingering(**settings: int) -> Parts:
    """Batches that stay open for an hour unless something else makes them ready."""
    return make_parts(linger_ms=HOUR_MS, delivery_timeout_ms=10 * HOUR_MS, **settings)


def sealed(parts: Parts, batch: Batch) -> SealedBatch:
    assert isinstance(batch, OpenBatch)
    result = SealedBatch(batch, Codec.NONE, 0)
    result.number(NO_PRODUCER, 0)
    result.sent_to = batch.queue.leader
    parts.accumulator.sealed([result])
    return result


def partitions(batches: list[Batch]) -> list[int]:
    return [batch.queue.partition for batch in batches]


def test_an_open_batch_waits_for_linger_ms() -> None:
    parts = lingering()
    parts.append(parts.tally(), [b"x"], [0])
    assert parts.ready_nodes() == []
    parts.passed_ms = HOUR_MS + 1
    assert parts.ready_nodes() == [0]


def test_an_append_wakes_the_sender_unless_it_looks_in_time_by_itself() -> None:
    parts, scope = lingering(), Tally()
    parts.append(scope, [b"x"], [0])
    assert parts.wakeups.count == 1
    parts.append(scope, [b"x"], [1])
    assert parts.wakeups.count == 2, "it has not looked: the first wake-up may be lost"
    parts.ready_nodes()
    parts.append(scope, [b"x"], [2])
    assert parts.wakeups.count == 2, "it looks when the first batch has lingered"


def test_the_next_check_is_when_the_oldest_batch_has_lingered() -> None:
    parts = lingering()
    parts.append(parts.tally(), [b"x"], [0])
    check = parts.accumulator.ready(parts.cluster, parts.clock())
    assert HOUR_MS - MINUTE_MS <= check.next_check_ms <= HOUR_MS


def test_a_full_batch_is_ready_at_once() -> None:
    parts = lingering(batch_size=1000)
    scope = parts.tally()
    parts.append(scope, [b"x" * 100] * 6, [0] * 6)
    assert parts.ready_nodes() == []
    parts.append(scope, [b"y" * 100] * 4, [0] * 4)
    assert parts.ready_nodes() == [0]
    (full,) = parts.drain()
    assert 6 < full.record_count < 10
    assert parts.drain() == []


def test_a_batch_without_room_for_another_row_is_full() -> None:
    parts = lingering(batch_size=300)
    parts.append(parts.tally(), [b"x" * 200], [0])
    assert len(parts.drain()) == 1


def test_another_scopes_append_makes_the_first_ones_batch_ready() -> None:
    parts = lingering()
    parts.append(parts.tally(), [b"x"], [0])
    parts.append(parts.tally(), [b"y"], [0])
    assert len(parts.drain()) == 1


def test_a_batch_that_another_scope_began_during_an_append_is_closed_by_it_and_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = lingering()
    others = [parts.tally()]

    def encode(*columns: Any) -> Any:
        while others:
            parts.append(others.pop(), [b"y"], [0])
        return encode_pieces(*columns)

    monkeypatch.setattr(appender, "encode_pieces", encode)
    scope = parts.tally()
    parts.append(scope, [b"x"], [0])
    (closed,) = parts.drain()
    assert closed.tally is not scope
    assert parts.drain() == []  # the other one lingers


def test_when_an_append_waits_for_memory_every_partition_is_ready() -> None:
    parts = lingering()
    parts.append(parts.tally(), [b"x", b"y"], [0, 1])
    parts.accumulator.memory_waiters = 1
    assert partitions(parts.drain()) == [0, 1]


def test_a_flush_makes_its_own_scopes_batches_ready_and_no_others() -> None:
    parts = lingering()
    mine, other = parts.tally(), parts.tally()
    parts.append(mine, [b"x"], [0])
    parts.append(other, [b"y"], [1])
    parts.accumulator.flush(mine)
    assert partitions(parts.drain()) == [0]


def test_a_closing_accumulator_has_everything_ready() -> None:
    parts = lingering()
    parts.append(parts.tally(), [b"x"], [0])
    parts.accumulator.closed = True
    assert partitions(parts.drain()) == [0]


def test_a_partition_without_a_leader_is_reported_and_goes_out_when_it_has_one() -> None:
    parts = make_parts(linger_ms=0)
    parts.cluster = cluster_of({"t": 1}, leaderless={("t", 0)})
    parts.append(parts.tally(), [b"x"], [0], count=1)
    check = parts.accumulator.ready(parts.cluster, parts.clock())
    assert check.nodes == []
    assert check.unknown_leader_topics == {"t"}
    parts.cluster = cluster_of({"t": 1})
    assert partitions(parts.drain()) == [0]


def test_a_drain_takes_one_batch_per_partition_up_to_the_request_size_and_goes_on_with_the_others() -> None:
    parts = make_parts(linger_ms=0, batch_size=300)
    parts.append(parts.tally(), [b"x" * 200] * 6, [0, 0, 1, 1, 2, 2])
    first = parts.drain(max_size=500)
    assert partitions(first) == [0, 1]
    assert partitions(parts.drain(max_size=500)) == [2, 0]
    assert partitions(parts.drain(max_size=500)) == [1, 2]


def test_batches_that_are_still_to_be_compressed_count_as_much_as_the_last_ones_had_when_they_were() -> None:
    parts = make_parts(linger_ms=0, batch_size=300)
    parts.append(parts.tally(), [b"x" * 200] * 4, [0, 1, 2, 3])
    parts.ready_nodes()
    assert partitions(parts.accumulator.drain(0, 500, lambda batch: 0.7 * batch.size)) == [0, 1, 2]


def test_a_batch_over_the_request_size_goes_alone() -> None:
    parts = make_parts(linger_ms=0)
    parts.append(parts.tally(), [b"x" * 5000, b"y"], [0, 1])
    assert partitions(parts.drain(max_size=100)) == [0]


def test_what_is_put_back_is_the_next_of_its_queue_again() -> None:
    parts = make_parts(batch_size=1)
    parts.append(parts.tally(), [b"0", b"1"], [0, 1])
    parts.append(parts.tally(), [b"behind 0", b"behind 1"], [0, 1])
    parts.accumulator.flush(None)
    first, other = parts.drain()
    retry = sealed(parts, other)
    parts.accumulator.put_back([first, retry])
    assert set(parts.drain()) == {first, retry}
    behind = parts.drain()
    assert partitions(behind) == [0, 1]
    assert not {first, retry, other} & set(behind)
    assert parts.drain() == []


def test_a_batch_that_is_being_written_to_is_not_taken_until_the_append_ends() -> None:
    parts = make_parts(linger_ms=0)
    scope = parts.tally()
    parts.append(scope, [b"x"], [0])
    batch = parts.accumulator.queues("t")[0].open
    assert batch is not None
    batch.writing = True
    assert parts.drain() == []
    batch.writing = False
    assert parts.accumulator.undefer(scope)
    assert parts.drain() == [batch]


def test_a_retry_waits_for_its_back_off_and_then_goes_first() -> None:
    parts = make_parts(linger_ms=0, batch_size=100)
    parts.append(parts.tally(), [b"x" * 80, b"y" * 80], [0, 0])
    retry = sealed(parts, parts.drain()[0])
    parts.accumulator.reenqueue(retry, parts.clock() + HOUR_MS)
    assert parts.drain() == []
    parts.passed_ms = HOUR_MS + 1
    assert parts.drain() == [retry]


def test_of_two_retries_the_longer_back_off_counts() -> None:
    parts = make_parts(linger_ms=0, batch_size=100)
    parts.append(parts.tally(), [b"x" * 80, b"y" * 80], [0, 0])
    first, second = (sealed(parts, parts.drain()[0]) for _ in range(2))
    parts.accumulator.reenqueue(first, parts.clock() + HOUR_MS)
    parts.accumulator.reenqueue(second, parts.clock() + MINUTE_MS)
    parts.passed_ms = MINUTE_MS + 1
    assert parts.drain() == []
    parts.passed_ms = HOUR_MS + 1
    assert len(parts.drain()) == 1


def test_a_new_leader_ends_a_back_off() -> None:
    parts = make_parts(linger_ms=0)
    parts.append(parts.tally(), [b"x"], [0])
    retry = sealed(parts, parts.drain()[0])
    parts.accumulator.reenqueue(retry, parts.clock() + HOUR_MS)
    parts.cluster = cluster_of({"t": 300}, leader=1)
    assert parts.ready_nodes() == [1]


def test_a_batch_refused_by_a_leader_of_the_past_goes_to_the_new_one_at_once() -> None:
    parts = make_parts(linger_ms=0)
    parts.append(parts.tally(), [b"x"], [0])
    retry = sealed(parts, parts.drain()[0])
    parts.cluster = cluster_of({"t": 300}, leader=1)
    assert parts.ready_nodes() == []
    parts.accumulator.reenqueue(retry, parts.clock() + HOUR_MS)
    assert parts.ready_nodes() == [1]


def test_a_back_off_that_ended_early_does_not_end_the_next_one() -> None:
    parts = make_parts(linger_ms=0)
    parts.append(parts.tally(), [b"x"], [0])
    retry = sealed(parts, parts.drain()[0])
    parts.accumulator.reenqueue(retry, parts.clock() + 100)
    parts.cluster = cluster_of({"t": 300}, leader=1)
    assert parts.ready_nodes() == [1]
    assert parts.accumulator.drain(1, 2**31) == [retry]
    retry.sent_to = 1
    parts.accumulator.reenqueue(retry, parts.clock() + HOUR_MS)
    parts.passed_ms = 101
    assert parts.ready_nodes() == []


def test_queues_that_wait_for_answers_do_not_hide_one_that_can_go() -> None:
    parts = make_parts(linger_ms=0, batch_size=100)
    scope = parts.tally()
    for partition in range(20):
        parts.append(scope, [b"x" * 80], [partition])
    for partition in range(19):
        queue = parts.accumulator.queues("t")[partition]
        queue.sequences = PartitionSequences(ProducerIdAndEpoch(1, 0))
        queue.sequences.gap = True
    assert partitions(parts.drain()) == [19]


def test_a_muted_partition_is_not_ready_until_it_is_unmuted() -> None:
    parts = make_parts(linger_ms=0)
    scope = parts.tally()
    parts.append(scope, [b"x"], [0])
    queue = parts.accumulator.queues("t")[0]
    parts.accumulator.mute(queue)
    assert parts.drain() == []
    parts.accumulator.unmute(queue)
    assert len(parts.drain()) == 1


def test_a_lingered_batch_that_sequences_hold_back_goes_out_after_the_answer() -> None:
    parts = make_parts(linger_ms=0, batch_size=100)
    parts.append(parts.tally(), [b"x" * 80, b"y" * 80], [0, 0])
    queue = parts.accumulator.queues("t")[0]
    queue.sequences = PartitionSequences(ProducerIdAndEpoch(1, 0))
    first = sealed(parts, parts.drain()[0])
    queue.sequences.assign(first)
    first.on_wire = True
    assert parts.drain() == []  # the first of an identity goes alone
    queue.sequences.acked(first)
    parts.accumulator.answered(queue)
    assert partitions(parts.drain()) == [0]


def test_nothing_new_goes_to_a_new_leader_before_the_old_one_has_answered() -> None:
    parts = make_parts(linger_ms=0, batch_size=100)
    parts.append(parts.tally(), [b"x" * 80, b"y" * 80], [0, 0])
    queue = parts.accumulator.queues("t")[0]
    queue.sequences = PartitionSequences(ProducerIdAndEpoch(1, 0))
    queue.sequences.known = True
    first = sealed(parts, parts.drain()[0])
    queue.sequences.assign(first)
    parts.cluster = cluster_of({"t": 300}, leader=1)
    parts.ready_nodes()
    assert parts.accumulator.drain(1, 2**31) == []
    queue.sequences.acked(first)
    parts.accumulator.answered(queue)
    parts.ready_nodes()
    assert partitions(parts.accumulator.drain(1, 2**31)) == [0]


@pytest.mark.fault("sequence", "answers out of order")
def test_retries_go_in_the_order_of_their_numbers_whatever_order_they_come_back_in() -> None:
    parts = make_parts(linger_ms=0, batch_size=100)
    parts.append(parts.tally(), [b"x" * 80] * 3, [0] * 3)
    batches = [sealed(parts, parts.drain()[0]) for _ in range(3)]
    for number, batch in enumerate(batches):
        batch.first_record = number
    for batch in (batches[2], batches[0], batches[1]):
        parts.accumulator.reenqueue(batch, 0)
    assert parts.accumulator.queues("t")[0].retries == batches


def test_what_is_older_than_the_delivery_timeout_expires_oldest_first_sent_or_not() -> None:
    parts = make_parts(linger_ms=0, request_timeout_ms=500, delivery_timeout_ms=HOUR_MS)
    scope = parts.tally()
    parts.append(scope, [b"x"], [0])
    sent = sealed(parts, parts.drain()[0])
    parts.append(scope, [b"y"], [1])
    assert parts.accumulator.expired(parts.clock()) == []
    parts.passed_ms = HOUR_MS + 1
    expired = parts.accumulator.expired(parts.clock())
    assert expired[0] is sent
    assert partitions(expired) == [0, 1]
    assert parts.drain() == []


def test_no_broker_is_needed_once_all_batches_are_taken_out() -> None:
    parts = make_parts(linger_ms=0, request_timeout_ms=500, delivery_timeout_ms=1000)
    scope = parts.tally()

    def append_ready() -> None:
        parts.append(scope, [b"x"], [0])
        assert parts.ready_nodes() == [0]

    append_ready()
    (unsent,) = parts.accumulator.unsent_for(lambda queue: True)
    parts.accumulator.remove(unsent)
    assert parts.ready_nodes() == []
    append_ready()
    parts.accumulator.reenqueue(sealed(parts, parts.drain()[0]), 0)
    assert parts.ready_nodes() == [0]
    parts.passed_ms = 1001
    (expired,) = parts.accumulator.expired(parts.clock())
    parts.accumulator.remove(expired)
    assert parts.ready_nodes() == []
    append_ready()
    parts.discard(scope)
    assert parts.ready_nodes() == []


def test_a_discarded_scope_leaves_nothing_to_send_and_detaches_what_is_in_flight() -> None:
    parts = lingering()
    scope, other = parts.tally(), parts.tally()
    parts.append(scope, [b"x"], [0])
    parts.accumulator.flush(scope)
    in_flight = sealed(parts, parts.drain()[0])
    parts.append(scope, [b"y"], [1])
    parts.append(other, [b"z"], [2])
    parts.discard(scope)
    assert in_flight.tally is None
    parts.accumulator.flush(None)
    assert partitions(parts.drain()) == [2]


def test_a_loss_is_told_while_it_still_counts_as_not_finished() -> None:
    """Who ends a transaction once all is finished has heard of it by then."""
    parts = lingering()
    scope, other = parts.tally(), parts.tally()
    parts.append(scope, [b"x", b"y"], [0, 1])
    parts.discard(scope)
    parts.discard(other)
    assert parts.losses == [2]
    assert not parts.accumulator.has_incomplete()


def test_a_batch_that_is_sealed_while_its_scope_is_discarded_is_detached_too() -> None:
    parts = make_parts(linger_ms=0)
    scope = parts.tally()
    parts.append(scope, [b"x"], [0])
    batch = parts.drain()[0]
    parts.discard(scope)
    assert sealed(parts, batch).tally is None


@pytest.mark.parametrize("drained", [False, True])
def test_abort_all_hands_out_whatever_is_not_finished(drained: bool) -> None:
    parts = make_parts(linger_ms=0)
    parts.append(parts.tally(), [b"x"], [0])
    if drained:
        sealed(parts, parts.drain()[0])
    assert len(parts.accumulator.abort_all()) == 1
    assert not parts.accumulator.has_incomplete()
    assert parts.drain() == []


def test_what_waited_for_the_old_leaders_answer_may_go_once_that_is_the_leader_again() -> None:
    parts = make_parts(linger_ms=0, batch_size=1)
    scope = parts.tally()
    parts.append(scope, [b"1"], [0])
    (first,) = parts.drain()
    batch = sealed(parts, first)
    queue = first.queue
    queue.sequences = PartitionSequences(ProducerIdAndEpoch(1, 0))
    queue.sequences.known = True
    queue.sequences.in_flight.append(batch)
    parts.cluster = cluster_of({"t": 300}, leader=1)
    parts.append(scope, [b"2"], [0])
    assert parts.ready_nodes() == [1]
    assert parts.accumulator.drain(1, 2**31) == []
    assert parts.ready_nodes() == []
    parts.cluster = cluster_of({"t": 300}, leader=0)
    assert parts.ready_nodes() == [0]
    (second,) = parts.accumulator.drain(0, 2**31)
    assert second.record_count == 1


def test_it_is_known_until_when_no_batch_expires() -> None:
    parts, scope = make_parts(linger_ms=0, delivery_timeout_ms=10 * HOUR_MS), Tally()
    accumulator = parts.accumulator
    assert accumulator.expires_ms > parts.clock() + 100 * HOUR_MS
    for partition in (0, 1):
        parts.append(scope, [b"x"], [partition])
    first, second = parts.drain_all()
    assert accumulator.expires_ms == first.created_ms + 10 * HOUR_MS
    second.created_ms += 5_000
    accumulator.remove(first)
    parts.ready_nodes()
    assert accumulator.expires_ms == second.created_ms + 10 * HOUR_MS
    accumulator.remove(second)
    parts.ready_nodes()
    assert accumulator.expires_ms > parts.clock() + 100 * HOUR_MS
