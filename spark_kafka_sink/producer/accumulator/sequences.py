"""Sequence numbers of one partition: what may be sent, and when a new epoch is needed. Has no clock, socket or lock.

In Java this is in TransactionManager and TxnPartitionEntry. Two differences ensure that no record is ever stored twice: an epoch
is bumped for one partition only (brokers check it per partition), and a batch is renumbered only once the broker has said that it
did not store it. A batch whose response was lost keeps its numbers until it is answered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

# A broker remembers the last 5 batches of a producer in a partition (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
MAX_IN_FLIGHT = 5
MAX_EPOCH = 2**15 - 1
# A broker forgets a producer that sent nothing to a partition for producer.id.expiration.ms, by default a day. Sending a batch
# alone costs one round trip, so well before that the broker's memory is no longer relied on.
FORGOTTEN_MS = 60_000
NO_SEQUENCE = -1
_NO_NUMBER = 2**63


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """The producer id and epoch from InitProducerId, and whether batches are transactional. See also NO_PRODUCER."""

    producer_id: int
    epoch: int
    transactional: bool = False


NO_PRODUCER = ProducerIdAndEpoch(-1, -1)


class NumberedBatch(ABC):
    """The part of a SealedBatch that numbering uses.

    first_record: records sent to the partition under its producer id and epoch before this batch. ordinal: batches numbered
    before it. known_not_stored: the broker said that it did not store the last attempt. sent_to: that attempt's node.
    """

    __slots__ = ("created_ms", "first_record", "known_not_stored", "on_wire", "ordinal", "record_count", "sent_to")

    created_ms: int
    first_record: int
    on_wire: bool
    ordinal: int
    record_count: int
    known_not_stored: bool
    sent_to: int | None

    @abstractmethod
    def number(self, producer: ProducerIdAndEpoch, first_record: int) -> None:
        """Assigns its numbers."""


@dataclass(slots=True, eq=False, repr=False)
class PartitionSequences:
    """The numbering of one partition. Owned by the sender thread.

    Records are counted without bound here. The wire's 31-bit sequence is the count modulo 2**31 (SealedBatch.number), so this
    class ignores the wrap.
    """

    producer: ProducerIdAndEpoch
    next_record: int = 0
    acked_through: int = 0
    assigned: int = 0  # batches numbered under this producer id and epoch
    known: bool = False  # the broker has stored a batch of this producer, so it rejects numbers other than the next
    last_created_ms: int = 0  # of the last batch that was numbered
    in_flight: list[NumberedBatch] = field(default_factory=list)  # sent at least once and not finished, in order of numbers
    gap: bool = False  # a sent batch is gone: the broker may wait for numbers that will never come
    lost_count: bool = False  # the broker rejected the very batch it should expect: only a new epoch helps
    of_other_cluster: bool = False  # the numbers mean nothing, or another producer's batches, to the brokers of now
    gap_from: int = _NO_NUMBER  # the first number that nothing has, because records were rejected
    # Behind the last number of an attempt whose outcome was not known: a copy of it may still arrive, or be stored.
    unsure_through: int = 0

    def may_send_new(self) -> bool:
        """Returns whether a new batch may be sent: not behind a gap or, as the queue ensures, ahead of a retry.

        At most five may be sent counting from the oldest unfinished one, including acknowledged batches in between. After five
        more, a broker would have forgotten that one and store it again on a retry.

        If the broker does not know the producer the batch goes alone: the broker then accepts any number
        (ProducerAppendInfo.checkSequence), so a second batch would be stored where the first was rejected and sent again.
        """
        if self.gap:
            return False
        return not self.in_flight or (self.known and self.assigned - self.in_flight[0].ordinal < MAX_IN_FLIGHT)

    def may_resend(self, batch: NumberedBatch) -> bool:
        """Returns whether a batch may be sent again: lowest number first, and behind a gap only those whose outcome is
        unknown.

        Those go one at a time if the broker may not know the producer, for the reason in `may_send_new`.
        """
        if not self.gap:
            return self.in_flight[0] is batch
        if batch.known_not_stored:
            return False
        return self.known or batch is next(unknown for unknown in self.in_flight if not unknown.known_not_stored)

    def is_first(self, batch: NumberedBatch) -> bool:
        """Returns whether all earlier batches are finished, so that the broker should expect its numbers next."""
        return bool(self.in_flight) and self.in_flight[0] is batch

    def assign(self, batch: NumberedBatch) -> None:
        if not self.in_flight and batch.created_ms - self.last_created_ms >= FORGOTTEN_MS:
            self.known = False
        self.last_created_ms = batch.created_ms
        self._number(batch)
        self.in_flight.append(batch)

    def acked(self, batch: NumberedBatch) -> None:
        self.acked_through = max(self.acked_through, batch.first_record + batch.record_count)
        self.known = True
        self._forget(batch)

    def out_of_order(self, batch: NumberedBatch) -> None:
        """Handles OUT_OF_ORDER_SEQUENCE: not stored. If no earlier batch is open, its turn will never come, so there is a gap."""
        batch.known_not_stored = True
        if batch is self.in_flight[0]:
            self.gap = True
            self.lost_count = self.lost_count or batch.first_record == self.acked_through

    def unsure(self, batch: NumberedBatch) -> None:
        """Handles an attempt without an answer, or with one that does not say whether the batch was stored."""
        self.unsure_through = max(self.unsure_through, batch.first_record + batch.record_count)

    def topic_unknown(self) -> None:
        """Handles UNKNOWN_TOPIC_OR_PARTITION and the like: the topic may be recreated, without memory of producers."""
        self.known = False

    def lost(self, batch: NumberedBatch) -> None:
        """Handles UNKNOWN_PRODUCER_ID: not stored, and the broker has forgotten this producer."""
        batch.known_not_stored = True
        self.gap = self.lost_count = True

    def cluster_changed(self) -> None:
        """Handles another cluster at the brokers' addresses: only a producer id of that cluster helps."""
        self.gap = self.lost_count = self.of_other_cluster = True

    def dropped(self, batch: NumberedBatch) -> None:
        """Handles a sent batch that failed for good or expired: its numbers are never reused under this producer id and epoch."""
        self._forget(batch)
        self.gap = True

    def replaced(self, batch: NumberedBatch, parts: Sequence[NumberedBatch]) -> None:
        """Gives the numbers of a batch that was not stored to the batches that replace it.

        If they have fewer records, later batches are renumbered, or the next batch continues where they end.
        """
        place = self.in_flight.index(batch)
        self.in_flight[place : place + 1] = parts
        first_record, end = batch.first_record, batch.first_record + batch.record_count
        for further, part in enumerate(parts):
            part.number(self.producer, first_record)
            part.ordinal = batch.ordinal + further
            first_record += part.record_count
        for later in self.in_flight[place + len(parts) :]:
            later.ordinal += len(parts) - 1
        self.assigned += len(parts) - 1
        if end == self.next_record:
            self.next_record = first_record
        elif end != first_record:
            self.gap = self.lost_count = True
            self.gap_from = min(self.gap_from, first_record)

    # Rejected records of a transaction, which has one epoch: the numbers of records that were not stored are used again

    def may_leave_out(self, batch: NumberedBatch) -> bool:
        """Returns whether numbers from this batch on may be used again. The broker has just said that it did not store it.

        A copy of an attempt that was not answered may arrive later. The broker would store it in the place of others that have
        its numbers now, which would then count as stored.
        """
        return self.unsure_through <= batch.first_record

    def left_out(self, batch: NumberedBatch) -> None:
        """Handles a batch whose records were all rejected: the next one takes its numbers, or later ones do in `close_up`."""
        if batch.first_record + batch.record_count == self.next_record:
            self.next_record = batch.first_record
            self.assigned -= 1
        else:
            self.gap = True
            self.gap_from = min(self.gap_from, batch.first_record)
        self._forget(batch)

    @property
    def waits_for_answers(self) -> bool:
        return any(batch.on_wire or not batch.known_not_stored for batch in self.in_flight)

    def close_up(self) -> bool:
        """Closes the gap within the epoch: batches in flight, none of which is stored, get the numbers that the broker expects.

        Call it once nothing `waits_for_answers`. Returns False if a number from there on may be in use.
        """
        if self.unsure_through > self.acked_through:
            return False
        self.next_record = self.acked_through
        if self.in_flight:
            self.assigned = self.in_flight[0].ordinal
        for batch in self.in_flight:
            self._number(batch)
        self.gap, self.gap_from, self.lost_count = False, _NO_NUMBER, False
        return True

    # Gaps of an idempotent producer, which begins a new epoch

    def resolve(self, current: ProducerIdAndEpoch) -> bool:
        """Closes the gap once every batch in flight is known not to be stored. `current` is the producer's own id and epoch.

        Returns True if there is no gap any more. Returns False if it must wait for a response, or for a new producer id because
        the epochs are used up (`needs_producer_id`).
        """
        if not self.gap:
            return True
        if self.waits_for_answers:
            return False
        expected = self.in_flight[0].first_record if self.in_flight else self.next_record
        if self.lost_count or expected != self.acked_through:
            if self.needs_producer_id(current):
                return False
            self._start_again(current)
        self.gap, self.gap_from, self.lost_count = False, _NO_NUMBER, False
        return True

    def needs_producer_id(self, current: ProducerIdAndEpoch) -> bool:
        return self.gap and self.producer.epoch == MAX_EPOCH and current.producer_id == self.producer.producer_id

    def _start_again(self, current: ProducerIdAndEpoch) -> None:
        if current.producer_id != self.producer.producer_id:
            self.producer = current
        else:
            self.producer = ProducerIdAndEpoch(self.producer.producer_id, self.producer.epoch + 1)
        self.next_record = self.acked_through = self.assigned = self.unsure_through = 0
        self.known = self.of_other_cluster = False
        for batch in self.in_flight:
            self._number(batch)

    def _number(self, batch: NumberedBatch) -> None:
        batch.number(self.producer, self.next_record)
        batch.ordinal = self.assigned
        self.next_record += batch.record_count
        self.assigned += 1

    def _forget(self, batch: NumberedBatch) -> None:
        if batch.first_record != NO_SEQUENCE and batch in self.in_flight:
            self.in_flight.remove(batch)
