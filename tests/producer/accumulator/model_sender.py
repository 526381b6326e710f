"""The sender's side of an accumulator, for its model: takes what is ready, hears an answer, and checks each as it goes."""

from __future__ import annotations

from collections import defaultdict

from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, PartitionQueue, SealedBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import Batch
from spark_kafka_sink.producer.accumulator.rejected_batches import split
from spark_kafka_sink.producer.accumulator.sequences import NO_PRODUCER, PartitionSequences, ProducerIdAndEpoch
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.small_batches import decode_batches
from tests.producer.clusters import led_by
from tests.producer.parts import Parts
from tests.producer.simulation.clock import VirtualClock

NODES = (0, 1)
IDENTITY = ProducerIdAndEpoch(7, 0)


class ModelSender:
    """What Sender and Delivery do, without brokers: each batch on the wire gets the answer that the history has for it.

    order: kept by muting, or by sequence numbers; with "known" the broker knows the producer from the start. Records are
    numbers: `scope_of` has each one's scope, `fate` what was told of it.
    """

    def __init__(self, parts: Parts, clock: VirtualClock, leaders: list[int], *, order: str, codec: Codec) -> None:
        self.parts, self.clock = parts, clock
        self.accumulator, self.pool = parts.accumulator, parts.pool
        self.linger_ms, self.delivery_timeout_ms = parts.config.linger_ms, parts.config.delivery_timeout_ms
        self.muting, self.known, self.codec = order == "muted", order == "known", codec
        self.scope_of: dict[int, Tally] = {}
        self.fate: dict[int, str] = {}
        self.values: dict[Batch, list[int]] = {}
        self.first_sent: dict[tuple[int, Tally], int] = defaultdict(int)
        self.wire: list[SealedBatch] = []
        self.not_before_ms: dict[Batch, int] = {}  # while the leader is the one that refused it
        self.slack_ms = 0  # that passed while an append was under way: its batches are so much older than they were added
        self.leaders = leaders
        self.move(0, leaders[0])

    def move(self, partition: int, node: int) -> None:
        self.leaders[partition] = node
        self.not_before_ms = {batch: ms for batch, ms in self.not_before_ms.items() if batch.queue.partition != partition}
        self.parts.cluster = led_by({"t": self.leaders}, NODES)

    def incomplete(self) -> list[Batch]:
        return list(self.accumulator._incomplete.values())

    def queues(self) -> list[PartitionQueue]:
        return list(self.accumulator.queues("t").values())

    def age_ms(self, batch: Batch) -> int:
        return self.clock.ms - batch.created_ms

    # To the wire

    def drain(self, node: int, max_size: int) -> None:
        check = self.accumulator.ready(self.parts.cluster, self.clock.ms)
        self.next_check_is_not_too_late(check.next_check_ms)
        batches = self.accumulator.drain(node, max_size)
        queues = [batch.queue for batch in batches]
        assert len(set(queues)) == len(queues)
        assert {queue.leader for queue in queues} <= {node}
        assert len(batches) <= 1 or sum(batch.size for batch in batches) <= max_size
        for batch in batches:
            assert batch not in self.wire
            assert self.clock.ms >= self.not_before_ms.pop(batch, 0), "before its back-off was over"
            sealed = batch if isinstance(batch, SealedBatch) else self.seal(batch)
            sealed.on_wire, sealed.known_not_stored, sealed.sent_to = True, False, node
            if self.muting:
                self.accumulator.mute(sealed.queue)
            self.wire.append(sealed)

    def seal(self, batch: OpenBatch) -> SealedBatch:
        queue = batch.queue
        assert not batch.writing
        assert not queue.retries
        sealed = SealedBatch(batch, self.codec, 0)
        if self.muting:
            sealed.number(NO_PRODUCER, 0)
        else:
            if queue.sequences is None:
                queue.sequences = PartitionSequences(IDENTITY)
                queue.sequences.known = self.known
            queue.sequences.assign(sealed)
        self.accumulator.sealed([sealed])
        sealed.free_raw(self.pool)
        self.values[sealed] = numbers = read(sealed)
        for number in numbers:
            scope = self.scope_of[number]
            assert scope is batch.tally, "records of two scopes in a batch"
            assert number > self.first_sent[queue.partition, scope], "out of order"
            self.first_sent[queue.partition, scope] = number
        return sealed

    def next_check_is_not_too_late(self, next_check_ms: int) -> None:
        ready = self.accumulator._ready
        due = [batch.created_ms + self.linger_ms for batch in ready.lingering]
        due += [queue.back_off_until_ms for queue in self.queues() if queue.backing_off]
        due += [batch.created_ms + self.delivery_timeout_ms for batch in self.incomplete()]
        assert next_check_ms <= max(min(due, default=2**62) - self.clock.ms, 0) + self.slack_ms

    # From the wire

    def answer(self, what: str, which: int) -> None:
        """What Delivery and Sender do with the answer for one of the batches on the wire."""
        batch = self.wire.pop(which % len(self.wire))
        batch.on_wire = False
        queue, expired = batch.queue, batch.done
        assert read(batch) == self.values[batch], "its memory was used for something else"
        if what == "ack" and queue.sequences is not None:
            queue.sequences.acked(batch)
        if expired:
            self.let_go(batch)
        elif what == "ack":
            self.accumulator.acked([batch])
            self.end(batch, "acked")
        elif what == "fail":
            self.accumulator.remove(batch)
            self.end(batch, "failed")
        elif what == "too large" and batch.record_count > 1:
            self.split(batch)
        else:
            self.try_again(batch, what, long=which % 2 == 1)
        if what == "ack" and not expired:
            self.resolve(queue)
        else:
            self.settled(queue)
        if self.muting:
            self.accumulator.unmute(queue)

    def split(self, batch: SealedBatch) -> None:
        parts = split(batch, self.accumulator.too_large(batch), self.pool)
        assert len(parts) > 1
        if batch.queue.sequences is not None:
            batch.queue.sequences.replaced(batch, parts)
        else:
            for part in parts:
                part.number(NO_PRODUCER, 0)
        self.accumulator.replace(batch, parts)
        self.values.update({part: read(part) for part in parts})
        batch.free(self.pool)

    def try_again(self, batch: SealedBatch, what: str, *, long: bool) -> None:
        queue = batch.queue
        if what == "out of order" and queue.sequences is not None:
            queue.sequences.out_of_order(batch)
        back_off_ms = 1000 if long else 100
        self.accumulator.reenqueue(batch, self.clock.ms + back_off_ms)
        if batch.sent_to == queue.leader == self.leaders[queue.partition]:
            self.not_before_ms[batch] = self.clock.ms + back_off_ms
        if what == "moved":
            self.move(queue.partition, 1 - (batch.sent_to or 0))

    def settled(self, queue: PartitionQueue) -> None:
        """What Delivery does once something in flight is over."""
        self.resolve(queue)
        self.accumulator.answered(queue)

    def resolve(self, queue: PartitionQueue) -> None:
        if queue.sequences is not None and queue.sequences.gap and queue.sequences.resolve(IDENTITY):
            self.accumulator.answered(queue)

    def expire(self) -> None:
        old = {batch for batch in self.incomplete() if self.age_ms(batch) >= self.delivery_timeout_ms}
        expired = self.accumulator.expired(self.clock.ms)
        assert set(expired) <= old
        for batch in old - set(expired):
            assert is_being_written(batch) or self.age_ms(batch) <= self.delivery_timeout_ms + self.slack_ms
        for batch in expired:
            self.accumulator.remove(batch)
            if isinstance(batch, OpenBatch):
                self.values[batch] = read(unnumbered(batch))
            self.end(batch, "expired")
            if not (isinstance(batch, SealedBatch) and batch.on_wire):
                self.settled(batch.queue)

    def end(self, batch: Batch, fate: str) -> None:
        """Its scope would be told now. Memory on the wire stays where it is."""
        for number in self.values[batch]:
            assert self.fate.get(number) in (None, "discarded")
            self.fate[number] = fate
        if isinstance(batch, OpenBatch):
            batch.memory.give_back(self.pool)
            return
        assert not batch.done
        batch.done = True
        if not batch.on_wire:
            self.let_go(batch)

    def let_go(self, batch: SealedBatch) -> None:
        if batch.queue.sequences is not None and batch in batch.queue.sequences.in_flight:
            batch.queue.sequences.dropped(batch)
        batch.free(self.pool)


def is_being_written(batch: Batch) -> bool:
    return isinstance(batch, OpenBatch) and batch.writing


def read(batch: SealedBatch) -> list[int]:
    """The records as a broker would find them, CRC checked."""
    (received,) = decode_batches(b"".join(batch.buffers()))
    return [int(record.value or b"") for record in received.records()]


def unnumbered(batch: OpenBatch) -> SealedBatch:
    sealed = SealedBatch(batch, Codec.NONE, 0)
    sealed.number(NO_PRODUCER, 0)
    return sealed
