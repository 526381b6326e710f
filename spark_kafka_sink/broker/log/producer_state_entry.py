"""What a log remembers of one producer."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_kafka_sink.broker.log.batch import BatchHeader, decrement_sequence
from spark_kafka_sink.broker.log.log_types import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

NUM_BATCHES_TO_RETAIN = 5


class BatchMetadata(NamedTuple):
    """Of a batch that was stored; a producer may send it again."""

    last_seq: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_seq(self) -> int:
        return decrement_sequence(self.last_seq, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerStateEntry:
    """Kafka's class of that name. `current_txn_first_offset`: of the open transaction, None without one."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    current_txn_first_offset: int | None = None
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=NUM_BATCHES_TO_RETAIN))

    @property
    def last_seq(self) -> int:
        return self.batches[-1].last_seq if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0

    def without_batches(self) -> ProducerStateEntry:
        return ProducerStateEntry(
            self.producer_id, self.producer_epoch, self.coordinator_epoch, self.last_timestamp, self.current_txn_first_offset
        )

    def add_batch(self, epoch: int, batch: BatchMetadata) -> None:
        self.move_to_epoch(epoch)
        self.batches.append(batch)
        self.last_timestamp = batch.timestamp

    def move_to_epoch(self, epoch: int) -> None:
        """What was sent under another epoch cannot be sent again."""
        if self.producer_epoch != epoch:
            self.batches.clear()
            self.producer_epoch = epoch

    def take_over(self, newer: ProducerStateEntry) -> None:
        """The state after an append: `newer` has only the batches that came with it."""
        self.move_to_epoch(newer.producer_epoch)
        self.batches.extend(newer.batches)
        self.coordinator_epoch = newer.coordinator_epoch
        self.current_txn_first_offset = newer.current_txn_first_offset
        self.last_timestamp = newer.last_timestamp

    def find_duplicate(self, batch: BatchHeader) -> BatchMetadata | None:
        """One of the last five with the very same sequence numbers."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        return next((known for known in self.batches if (known.first_seq, known.last_seq) == wanted), None)
