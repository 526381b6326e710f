"""What a broker keeps of one partition: the records it stored, and the state by which it judges sequence numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.decoder import FetchedBatch

BATCHES_KEPT = 5  # ProducerStateEntry.NUM_BATCHES_TO_RETAIN
NO_PRODUCER = -1


@dataclass(slots=True)
class ProducerState:
    """Kafka's ProducerStateEntry: the epoch, the sequence that comes next, and the last batches by their first sequence."""

    epoch: int
    next_sequence: int
    last: dict[int, tuple[int, int]] = field(default_factory=dict)  # first sequence -> (record count, base offset)


@dataclass(slots=True)
class StoredLog:
    """Kafka's ProducerAppendInfo.checkSequence over a list of values."""

    values: list[bytes | None] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)

    def append(self, batch: FetchedBatch) -> tuple[int, int]:
        """The error code and base offset that a broker would answer; stores the batch if the code is 0 and it is no duplicate."""
        state = self.producers.get(batch.producer_id)
        if batch.producer_id != NO_PRODUCER and state is not None:
            stored = state.last.get(batch.base_sequence) if batch.producer_epoch == state.epoch else None
            if stored is not None and stored[0] == batch.record_count:
                return ErrorCode.NONE, stored[1]
            refused = _refusal(state, batch)
            if refused:
                return refused, -1
        return ErrorCode.NONE, self._store(batch, state)

    def _store(self, batch: FetchedBatch, state: ProducerState | None) -> int:
        base_offset = len(self.values)
        self.values += [record.value for record in batch.records()]
        if state is None or state.epoch != batch.producer_epoch:
            state = self.producers[batch.producer_id] = ProducerState(batch.producer_epoch, 0)
        state.next_sequence = batch.base_sequence + batch.record_count
        state.last[batch.base_sequence] = (batch.record_count, base_offset)
        while len(state.last) > BATCHES_KEPT:
            del state.last[next(iter(state.last))]
        return base_offset


def _refusal(state: ProducerState, batch: FetchedBatch) -> int:
    if batch.producer_epoch < state.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    due = state.next_sequence if batch.producer_epoch == state.epoch else 0
    return ErrorCode.NONE if batch.base_sequence == due else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
