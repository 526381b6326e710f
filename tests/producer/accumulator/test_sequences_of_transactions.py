"""Numbering within the one epoch of a transaction, when a broker rejects records: against a model of what the broker does.

A copy of a batch whose answer was lost may arrive at any time later. Then its records need not be rejected any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.producer.accumulator.sequences import PartitionSequences, ProducerIdAndEpoch
from tests.examples import examples
from tests.producer.accumulator.test_sequences import FakeBatch, ModelBroker

IDENTITY = ProducerIdAndEpoch(7, 0, transactional=True)


@dataclass(eq=False)
class Batch(FakeBatch):
    """`numbers`: its records, which need not be consecutive any more."""

    numbers: list[int] = field(default_factory=list)

    @property
    def records(self) -> list[int]:
        return self.numbers


class Transaction:
    """A partition, its leader, and the wire between them. `bad` records are rejected. It ends when it can only be aborted."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.sequences: Any = PartitionSequences(IDENTITY)
        self.broker = ModelBroker()
        self.wire: list[Batch] = []
        self.retries: list[Batch] = []
        self.late: list[Batch] = []
        self.made = 0
        self.acked: list[int] = []
        self.rejected: list[int] = []
        self.aborted = ""

    def send(self, count: int) -> None:
        """What RecordAccumulator._take does."""
        if self.aborted:
            return
        batch = next((batch for batch in self.retries if self.sequences.may_resend(batch)), None)
        if batch is not None:
            self.retries.remove(batch)
        elif not self.retries and self.sequences.may_send_new():
            batch = Batch(self.made, count, numbers=list(range(self.made, self.made + count)))
            self.made += count
            self.sequences.assign(batch)
        if batch is not None:
            batch.on_wire, batch.known_not_stored = True, False
            self.wire.append(batch)

    def deliver(self, fate: str) -> None:
        """The oldest request on the wire meets its fate. What TransactionalIdentity and Delivery do with the answer."""
        if not self.wire or self.aborted:
            return
        batch = self.wire.pop(0)
        batch.on_wire = False
        if fate == "refused before it was appended":
            self.again(batch)
        elif fate == "lost on the way":
            self.unsure(batch)
        elif fate == "late":
            copy = Batch(batch.name, batch.record_count, batch.first_record, batch.producer, numbers=list(batch.numbers))
            self.late.append(copy)
            self.unsure(batch)
        elif bad := [number for number in batch.numbers if number in self.bad]:
            self.unsure(batch) if fate == "answer lost" else self.reject(batch, bad)
        elif fate == "too large" and batch.record_count > 1:
            half = batch.record_count // 2
            self.replace(batch, [batch.numbers[:half], batch.numbers[half:]])
        else:
            answer = self.broker.append(batch)
            if fate == "answer lost":
                self.unsure(batch)
            elif answer == "STORED":
                self.sequences.acked(batch)
                self.acked += batch.numbers
            elif self.sequences.is_first(batch) and not self.sequences.gap:
                self.aborted = "out of order"
            else:
                self.sequences.out_of_order(batch)
                self.again(batch)
        self.close_up()

    def arrive_late(self) -> None:
        if self.late:
            self.broker.append(self.late.pop(0))

    def unsure(self, batch: Batch) -> None:
        if batch.first_record >= self.sequences.gap_from:
            self.aborted = "it may be stored, and its numbers are wanted for others"
            return
        self.sequences.unsure(batch)
        self.again(batch)

    def again(self, batch: Batch) -> None:
        self.retries = sorted([*self.retries, batch], key=lambda b: b.first_record)

    def reject(self, batch: Batch, bad: list[int]) -> None:
        if not self.sequences.may_leave_out(batch):
            self.aborted = "an attempt may arrive later"
            return
        self.rejected += bad
        good = [number for number in batch.numbers if number not in self.bad]
        if good:
            self.replace(batch, [good])
        else:
            self.sequences.left_out(batch)

    def replace(self, batch: Batch, parts: list[list[int]]) -> None:
        made = [Batch(part[0], len(part), known_not_stored=True, numbers=part) for part in parts]
        self.sequences.replaced(batch, made)
        for part in made:
            self.again(part)

    def close_up(self) -> None:
        sequences = self.sequences
        if sequences.gap and not sequences.waits_for_answers and not self.aborted and not sequences.close_up():
            self.aborted = "an earlier attempt may arrive later"

    def settle(self) -> None:
        for _ in range(300):
            if self.aborted or (not self.wire and not self.retries):
                return
            self.send(1) if self.retries else None
            self.deliver("as Kafka")
        raise AssertionError("a healthy broker did not settle it")

    def check(self) -> None:
        """What is committed is what was acked: all good records, once, in order. A copy may still come, and is not stored."""
        while self.late:
            self.arrive_late()
        if not self.aborted:
            good = [number for number in range(self.made) if number not in self.bad]
            assert self.broker.log == good
            assert sorted(self.acked) == good
            assert sorted(self.rejected) == [number for number in range(self.made) if number in self.bad]


FATES = st.sampled_from(
    ["as Kafka"] * 6 + ["too large", "answer lost", "lost on the way", "late", "refused before it was appended"]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 4)),
        st.tuples(st.just("send"), st.integers(1, 4)),
        st.tuples(st.just("deliver"), FATES),
        st.tuples(st.just("arrive"), st.none()),
    ),
    max_size=60,
)


# 1 is rejected, 2 is late and is sent again, as is 3. The copy of 2 arrives when its old number comes next, which 3 has now.
BEHIND_A_GAP: list[tuple[str, Any]] = [
    ("send", 1),
    ("deliver", "as Kafka"),
    *[("send", 1)] * 3,
    *[("deliver", fate) for fate in ("as Kafka", "late", "as Kafka")],
    *[("send", 1), ("deliver", "as Kafka")] * 2,
    ("arrive", None),
]


@settings(max_examples=examples(1500), deadline=None)
@given(STEPS, st.sets(st.integers(0, 60), max_size=30))
@example(BEHIND_A_GAP, {1})
def test_a_transaction_has_each_good_record_once_in_order_or_is_aborted(steps: list[tuple[str, Any]], bad: set[int]) -> None:
    line = Transaction(bad)
    for step, argument in steps:
        if step == "send":
            line.send(argument)
        elif step == "deliver":
            line.deliver(argument)
        else:
            line.arrive_late()
    line.settle()
    line.check()


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(st.integers(1, 4), max_size=40), st.sets(st.integers(0, 100), max_size=100))
def test_where_every_attempt_is_answered_rejected_records_never_cost_the_transaction(counts: list[int], bad: set[int]) -> None:
    line = Transaction(bad)
    for count in counts:
        line.send(count)
        if len(line.wire) == 5 or count == 4:
            line.deliver("as Kafka")
    line.settle()
    assert not line.aborted
    line.check()


def line_with(*counts: int, bad: set[int]) -> Transaction:
    """A partition that has stored record 0, and batches of so many records on the wire."""
    line = Transaction(bad)
    line.send(1)
    line.deliver("as Kafka")
    for count in counts:
        line.send(count)
    assert len(line.wire) == len(counts)
    return line


def test_behind_a_batch_that_is_left_out_the_others_take_its_numbers_once_all_are_answered() -> None:
    line = line_with(2, 1, 3, bad={1, 2})
    _, second, third = line.wire
    line.deliver("as Kafka")
    line.deliver("as Kafka")
    assert (second.first_record, third.first_record) == (3, 4), "a copy is still on the wire"
    line.deliver("as Kafka")
    assert (second.first_record, third.first_record) == (1, 2)
    line.settle()
    assert line.broker.log == [0, 3, 4, 5, 6]


def test_the_last_batch_gives_its_numbers_to_the_next_one() -> None:
    line = line_with(2, bad={1, 2})
    line.deliver("as Kafka")
    line.send(1)
    assert line.wire[0].first_record == 1
    line.settle()
    assert (line.broker.log, line.aborted) == ([0, 3], "")


def test_the_very_first_batch_can_be_left_out() -> None:
    line = Transaction({0})
    line.send(1)
    line.deliver("as Kafka")
    line.send(2)
    assert line.wire[0].first_record == 0
    line.settle()
    assert line.broker.log == [1, 2]


def test_an_attempt_without_an_answer_keeps_its_numbers_from_being_used_again() -> None:
    line = line_with(1, bad={1})
    line.deliver("late")
    line.send(1)
    line.deliver("as Kafka")
    assert line.aborted == "an attempt may arrive later"


def test_a_lost_answer_behind_rejected_records_ends_the_transaction() -> None:
    line = line_with(1, 1, bad={1})
    line.deliver("as Kafka")
    line.deliver("late")
    assert line.aborted == "it may be stored, and its numbers are wanted for others"


def test_a_lost_answer_before_rejected_records_does_not() -> None:
    line = line_with(1, 1, 1, bad={2})
    line.deliver("answer lost")
    line.deliver("as Kafka")
    line.deliver("as Kafka")
    line.settle()
    assert (line.broker.log, line.aborted) == ([0, 1, 3], "")


def test_no_sixth_batch_goes_behind_batches_that_were_numbered_again() -> None:
    line = line_with(1, 1, 1, 1, 1, bad={1})
    for _ in range(5):
        line.deliver("as Kafka")
    assert [batch.ordinal for batch in line.retries] == [2, 3, 4, 5]
    line.settle()
    for _ in range(6):
        line.send(1)
    assert len(line.wire) == 5
