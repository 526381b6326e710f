"""Sequence numbers against a model of what a broker does with them, through lost answers, refusals and cut connections."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.producer.accumulator.sequences import (
    FORGOTTEN_MS,
    MAX_EPOCH,
    MAX_IN_FLIGHT,
    PartitionSequences,
    ProducerIdAndEpoch,
)
from tests.examples import examples


@dataclass(eq=False)
class FakeBatch:
    """The part of a SealedBatch that numbering touches; a real one needs memory and columns. Its records are numbers."""

    name: int  # its first record
    record_count: int = 1
    first_record: int = -1
    producer: ProducerIdAndEpoch | None = None
    on_wire: bool = False
    known_not_stored: bool = False
    ordinal: int = 0
    created_ms: int = 0

    def number(self, producer: ProducerIdAndEpoch, first_record: int) -> None:
        self.producer, self.first_record = producer, first_record

    @property
    def records(self) -> list[int]:
        return list(range(self.name, self.name + self.record_count))


@dataclass
class ModelBroker:
    """Kafka's ProducerStateManager and ProducerAppendInfo for one producer and partition."""

    log: list[int] = field(default_factory=list)
    epoch: int = -1
    next_sequence: int = 0
    last_batches: list[tuple[int, int]] = field(default_factory=list)  # (first, count) of the last five

    def append(self, batch: FakeBatch) -> str:
        assert batch.producer is not None
        if batch.producer.epoch > self.epoch:
            if self.epoch != -1 and batch.first_record != 0:
                return "OUT_OF_ORDER"
            self.epoch, self.last_batches = batch.producer.epoch, []
        elif batch.producer.epoch < self.epoch:
            return "FENCED"
        elif (batch.first_record, batch.record_count) in self.last_batches:
            return "STORED"
        elif batch.first_record != self.next_sequence:
            return "OUT_OF_ORDER"
        self.next_sequence = batch.first_record + batch.record_count
        self.last_batches = [*self.last_batches, (batch.first_record, batch.record_count)][-MAX_IN_FLIGHT:]
        self.log += batch.records
        return "STORED"


class Line:
    """A partition between a sender and a broker: what waits, what is on the wire, what was told to the user."""

    def __init__(self, unlucky: dict[int, int] | None = None) -> None:
        self.unlucky = unlucky or {}
        self.sequences = PartitionSequences(ProducerIdAndEpoch(7, 0))
        self.broker = ModelBroker()
        self.wire: list[FakeBatch] = []
        self.retries: list[FakeBatch] = []
        self.made = 0
        self.acked: list[int] = []
        self.failed: list[int] = []

    def send(self, count: int) -> None:
        """What RecordAccumulator.drain and Sender do for one request."""
        any_sequences: Any = self.sequences
        batch = next((b for b in self.retries if any_sequences.may_resend(b)), None)
        if batch is not None:
            self.retries.remove(batch)
        elif not self.retries and self.sequences.may_send_new():
            batch = FakeBatch(self.made, count)
            self.made += count
            any_sequences.assign(batch)
        if batch is not None:
            batch.on_wire, batch.known_not_stored = True, False
            self.wire.append(batch)

    def deliver(self, fate: str) -> None:
        """The oldest request on the wire meets its fate; `unlucky` batches lose their answers some times more."""
        if not self.wire:
            return
        batch = self.wire.pop(0)
        if self.unlucky.get(batch.name):
            self.unlucky[batch.name] -= 1
            fate = "lose the answer"
        batch.on_wire = False
        any_sequences: Any = self.sequences
        if fate == "refuse for good":
            self.failed += batch.records
            any_sequences.dropped(batch)
        elif fate == "too large" and batch.record_count > 1 and batch.name not in self.broker.log:
            self.replace(batch, batch.record_count // 2, batch.record_count - batch.record_count // 2)
        elif fate == "first record rejected" and batch.record_count > 1 and batch.name not in self.broker.log:
            self.reject_first(batch)
        elif fate == "refuse for now":
            self._again(batch)
        else:
            answer = self.broker.append(batch)
            assert answer != "FENCED"
            if fate == "lose the answer":
                self._again(batch)
            elif answer == "STORED":
                any_sequences.acked(batch)
                self.acked += batch.records
            else:
                any_sequences.out_of_order(batch)
                self._again(batch)
        self.sequences.resolve(ProducerIdAndEpoch(7, 0))

    def expire_a_retry(self) -> None:
        if self.retries:
            batch = self.retries.pop(0)
            self.failed += batch.records
            any_sequences: Any = self.sequences
            any_sequences.dropped(batch)
        self.sequences.resolve(ProducerIdAndEpoch(7, 0))

    def replace(self, batch: FakeBatch, *counts: int) -> list[FakeBatch]:
        """What Delivery does with a batch that was too large: parts of so many records take its place."""
        ends = itertools.accumulate(counts, initial=batch.name)
        parts = [FakeBatch(name, count, known_not_stored=True) for name, count in zip(ends, counts, strict=False)]
        return self._put_in_its_place(batch, parts)

    def reject_first(self, batch: FakeBatch) -> list[FakeBatch]:
        """What Delivery does with a batch of which the broker names the first record: the others take its place."""
        self.failed.append(batch.name)
        return self._put_in_its_place(batch, [FakeBatch(batch.name + 1, batch.record_count - 1, known_not_stored=True)])

    def _put_in_its_place(self, batch: FakeBatch, parts: list[FakeBatch]) -> list[FakeBatch]:
        any_sequences: Any = self.sequences
        any_sequences.replaced(batch, parts)
        self.retries = sorted([*self.retries, *parts], key=lambda b: b.first_record)
        return parts

    def _again(self, batch: FakeBatch) -> None:
        self.retries.append(batch)
        self.retries.sort(key=lambda b: b.first_record)

    def settle(self) -> None:
        """A healthy broker from here on."""
        for _ in range(200):
            self.send(1) if self.retries or self.sequences.gap else None
            self.deliver("store")
            self.sequences.resolve(ProducerIdAndEpoch(7, 0))
            if not self.wire and not self.retries and not self.sequences.gap:
                return
        raise AssertionError("a healthy broker did not settle it")


FATES = st.sampled_from(
    ["store", "store", "store", "lose the answer", "refuse for now", "refuse for good", "too large", "first record rejected"]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 5)),
        st.tuples(st.just("deliver"), FATES),
        st.tuples(st.just("expire"), st.none()),
    ),
    max_size=80,
)


@settings(max_examples=examples(1000), deadline=None)
@given(STEPS, st.dictionaries(st.integers(0, 5), st.integers(1, 12), max_size=2))
def test_each_batch_is_stored_at_most_once_in_order_and_acked_only_if_stored(
    steps: list[tuple[str, Any]], unlucky: dict[int, int]
) -> None:
    line = Line(unlucky)
    for step, argument in steps:
        if step == "send":
            line.send(argument)
        elif step == "deliver":
            line.deliver(argument)
        else:
            line.expire_a_retry()
    line.settle()
    stored = line.broker.log
    assert stored == sorted(stored)
    assert len(stored) == len(set(stored))
    assert set(line.acked) <= set(stored)
    assert sorted(line.acked + line.failed) == list(range(line.made))


def test_a_sixth_batch_waits_until_one_of_five_is_answered() -> None:
    line = Line()
    line.send(1)
    line.deliver("store")
    for _ in range(MAX_IN_FLIGHT + 1):
        line.send(1)
    assert len(line.wire) == MAX_IN_FLIGHT
    line.deliver("store")
    line.send(1)
    assert len(line.wire) == MAX_IN_FLIGHT


def test_no_sixth_batch_goes_while_the_first_of_five_is_open_though_the_others_are_acked() -> None:
    line = Line({1: 3})
    line.send(1)
    line.deliver("store")
    for _ in range(20):
        line.send(1)
        line.deliver("store")
    line.settle()
    assert line.broker.log == sorted(set(line.broker.log))


@pytest.mark.parametrize("answer", ["out_of_order", "lost"])
def test_a_broker_that_lost_count_of_the_next_batch_gets_a_new_epoch(answer: str) -> None:
    sequences = PartitionSequences(ProducerIdAndEpoch(7, 0))
    batch: Any = FakeBatch(0)
    sequences.assign(batch)
    getattr(sequences, answer)(batch)
    assert sequences.resolve(ProducerIdAndEpoch(7, 0))
    assert batch.producer == ProducerIdAndEpoch(7, 1)


def test_after_one_of_five_fails_for_good_the_others_are_renumbered_under_a_new_epoch_and_delivered() -> None:
    line = Line()
    line.send(1)
    line.deliver("store")
    for _ in range(5):
        line.send(2)
    line.deliver("refuse for good")
    line.settle()
    assert line.failed == [1, 2]
    assert line.broker.log == [0, *range(3, 11)]
    assert line.sequences.producer == ProducerIdAndEpoch(7, 1)


def assert_one_goes_alone_until_it_is_stored(line: Line) -> None:
    line.send(1)
    line.send(1)
    assert len(line.wire) == 1
    line.deliver("store")
    line.send(1)
    line.send(1)
    assert len(line.wire) == 2


def test_the_first_batch_of_an_identity_goes_alone() -> None:
    line = Line()
    assert_one_goes_alone_until_it_is_stored(line)


def test_the_first_batch_of_a_new_epoch_goes_alone_though_the_old_epoch_was_known() -> None:
    line = Line()
    line.send(1)
    line.deliver("store")
    line.send(1)
    line.deliver("refuse for good")
    assert line.sequences.producer == ProducerIdAndEpoch(7, 1)
    assert_one_goes_alone_until_it_is_stored(line)


def test_after_its_topic_was_unknown_a_batch_goes_alone_until_one_is_stored_again() -> None:
    line = Line()
    line.send(1)
    line.deliver("store")
    line.send(1)
    line.sequences.topic_unknown()
    line.deliver("refuse for now")
    assert_one_goes_alone_until_it_is_stored(line)  # the retry


@pytest.mark.parametrize(("idle_ms", "alone"), [(FORGOTTEN_MS, True), (FORGOTTEN_MS - 1, False)])
def test_after_a_long_time_a_batch_goes_alone_since_the_broker_may_have_forgotten_the_producer(idle_ms: int, alone: bool) -> None:
    sequences = PartitionSequences(ProducerIdAndEpoch(7, 0))
    first, second = FakeBatch(0), FakeBatch(1, created_ms=idle_ms)
    both: Any = SimpleNamespace(first=first, second=second)
    sequences.assign(both.first)
    sequences.acked(both.first)
    sequences.assign(both.second)
    assert sequences.may_send_new() == (not alone)
    sequences.acked(both.second)
    assert sequences.known


def test_a_batch_whose_answer_was_lost_keeps_its_numbers() -> None:
    line = Line()
    line.send(1)
    line.deliver("lose the answer")
    line.send(1)
    assert line.wire[0].first_record == 0
    line.deliver("store")
    assert line.broker.log == [0]
    assert line.acked == [0]


def test_when_the_epochs_are_used_up_a_gap_waits_for_another_producer_id() -> None:
    old, new = ProducerIdAndEpoch(7, MAX_EPOCH), ProducerIdAndEpoch(8, 0)
    sequences = PartitionSequences(old)
    batch: Any = FakeBatch(0)
    sequences.assign(batch)
    sequences.dropped(batch)
    assert not sequences.resolve(old)
    assert sequences.needs_producer_id(old)
    assert sequences.resolve(new)
    assert sequences.producer == new
    assert sequences.next_record == 0


def test_a_batch_that_expired_but_was_stored_needs_no_new_epoch() -> None:
    sequences = PartitionSequences(ProducerIdAndEpoch(7, 0))
    expired, following = FakeBatch(0), FakeBatch(1)
    both: Any = SimpleNamespace(expired=expired, following=following)
    sequences.assign(both.expired)
    sequences.assign(both.following)  # both were on the wire
    sequences.dropped(both.expired)
    sequences.acked(both.following)
    assert sequences.resolve(ProducerIdAndEpoch(7, 0))
    assert sequences.producer == ProducerIdAndEpoch(7, 0)
    assert sequences.next_record == 2


def line_with(*counts: int) -> tuple[Line, list[FakeBatch]]:
    """A partition that has stored record 0 of its producer, and batches of so many records that are on the wire."""
    line = Line()
    line.send(1)
    line.deliver("store")
    for count in counts:
        line.send(count)
    return line, list(line.wire)


def too_large(line: Line, batch: FakeBatch, *counts: int) -> list[FakeBatch]:
    line.wire.remove(batch)
    batch.on_wire = False
    return line.replace(batch, *counts)


def test_parts_take_the_numbers_of_their_batch_and_go_before_what_was_behind_it() -> None:
    line, (first, *_) = line_with(6, 2, 2)
    parts = too_large(line, first, 3, 2, 1)
    assert [(part.first_record, part.record_count) for part in parts] == [(1, 3), (4, 2), (6, 1)]
    line.settle()
    assert line.broker.log == list(range(11))
    assert line.sequences.producer == ProducerIdAndEpoch(7, 0)


def test_without_a_rejected_record_the_last_batch_goes_on_under_its_numbers_and_the_next_behind_it() -> None:
    line, (batch,) = line_with(3)
    line.wire.remove(batch)
    (rest,) = line.reject_first(batch)
    assert (rest.first_record, rest.record_count) == (1, 2)
    assert (line.sequences.next_record, line.sequences.gap) == (3, False)
    line.settle()
    line.send(1)
    line.settle()
    assert line.broker.log == [0, 2, 3, 4]
    assert line.sequences.producer == ProducerIdAndEpoch(7, 0)


def test_without_a_rejected_record_what_was_behind_the_batch_is_numbered_anew_under_a_new_epoch() -> None:
    line, (first, second) = line_with(3, 2)
    line.wire.remove(first)
    first.on_wire = False
    line.reject_first(first)
    assert line.sequences.gap, "to be told by the broker would cost a round"
    line.settle()
    assert line.broker.log == [0, 2, 3, *second.records]
    assert line.sequences.producer == ProducerIdAndEpoch(7, 1)


def test_a_part_can_be_replaced_in_turn() -> None:
    line, (first, _) = line_with(4, 2)
    too_large(line, first, 2, 2)
    line.deliver("store")  # what was behind it: out of order
    line.send(1)
    too_large(line, line.wire[0], 1, 1)
    line.settle()
    assert line.broker.log == list(range(7))
    assert line.sequences.producer == ProducerIdAndEpoch(7, 0)


def test_parts_count_against_the_five_that_a_broker_remembers() -> None:
    line, (first,) = line_with(8)
    too_large(line, first, 1, 1, 1, 1, 1, 1, 1, 1)
    for left in range(8, 0, -1):
        assert line.sequences.may_send_new() == (left < MAX_IN_FLIGHT)
        line.send(1)
        line.deliver("store")
    assert line.broker.log == list(range(9))


def test_what_was_behind_the_parts_holds_nothing_new_back_for_their_sake() -> None:
    line, _ = line_with(8, 1)
    too_large(line, line.wire[0], 1, 1, 1, 1, 1, 1, 1, 1)
    line.deliver("store")  # the one behind: out of order
    for _ in range(8):
        line.send(1)
        line.deliver("store")
    line.send(1)
    assert [batch.record_count for batch in line.wire] == [1]
    assert line.sequences.may_send_new()


def test_behind_a_gap_parts_wait_to_be_renumbered() -> None:
    line, (_, second, _) = line_with(1, 4, 1)
    line.deliver("refuse for good")
    any_sequences: Any = line.sequences
    assert any_sequences.gap
    assert not any(any_sequences.may_resend(part) for part in too_large(line, second, 2, 2))
    line.settle()
    assert line.broker.log == [0, 2, 3, 4, 5, 6]
    assert line.sequences.producer == ProducerIdAndEpoch(7, 1)


def test_renumbered_batches_behind_one_that_fails_are_renumbered_again_before_they_are_sent() -> None:
    line, _ = line_with(1, 1, 1)
    for fate in ("refuse for good", "store", "store"):  # the last two are out of order
        line.deliver(fate)
    line.send(1)
    line.deliver("refuse for good")
    (last,) = line.retries
    assert (last.producer, last.first_record) == (ProducerIdAndEpoch(7, 2), 0)
    line.settle()
    assert line.broker.log == [0, *last.records]


def test_behind_a_gap_what_may_be_stored_goes_one_at_a_time_to_a_broker_that_may_not_know_the_producer() -> None:
    line, _ = line_with(1, 1, 1)
    line.sequences.topic_unknown()
    line.broker = ModelBroker(line.broker.log)
    for _ in range(3):
        line.deliver("refuse for now")
    line.send(1)
    line.deliver("refuse for good")
    line.send(1)
    line.send(1)
    assert [batch.records for batch in line.wire] == [[2]], "the broker would accept any number"
    line.deliver("refuse for now")
    line.settle()
    assert line.broker.log == [0, 2, 3]
