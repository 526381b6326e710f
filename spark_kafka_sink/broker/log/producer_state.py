"""The state of one producer in a log, and the check whether it may append a batch."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.batch import BatchHeader, EndTransactionMarker
from spark_kafka_sink.broker.log.log_types import NO_PRODUCER_EPOCH, NO_SEQUENCE, AppendOrigin
from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP

NUM_BATCHES_TO_RETAIN = 5


class VerificationGuard:
    """A unique guard for one transaction in one partition.

    Records of an unknown transaction are refused without one, because the coordinator's answer may be about a transaction that
    has ended in the meantime.
    """


@dataclass(slots=True)
class VerificationStateEntry:
    """The guard of a producer before its first record, and the lowest sequence it tried (Kafka's VerificationStateEntry).

    Higher sequences must wait for that one.
    """

    timestamp_ms: int
    lowest_sequence: int
    epoch: int
    supports_epoch_bump: bool
    guard: VerificationGuard = field(default_factory=VerificationGuard)

    def see(self, sequence: int, epoch: int) -> None:
        """Takes note of a lower sequence of this epoch, or of a higher epoch."""
        if epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence


class BatchMetadata(NamedTuple):
    """Metadata of a stored batch, which a producer may send again."""

    last_seq: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_seq(self) -> int:
        """The first sequence number (Kafka's DefaultRecordBatch.decrementSequence)."""
        return (self.last_seq - self.offset_delta) % (INT32_MAX + 1)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


def metadata_of(header: BatchHeader) -> BatchMetadata:
    return BatchMetadata(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)


@dataclass(slots=True)
class ProducerStateEntry:
    """The state of a producer (Kafka's ProducerStateEntry). `current_txn_first_offset`: of the open transaction; None without
    one.
    """

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

    def move_to_epoch(self, epoch: int) -> None:
        """Forgets the batches of another epoch, which cannot be sent again."""
        if self.producer_epoch != epoch:
            self.batches.clear()
            self.producer_epoch = epoch

    def take_over(self, newer: ProducerStateEntry) -> None:
        """Applies an append. `newer` has only the batches that came with it."""
        self.move_to_epoch(newer.producer_epoch)
        self.batches.extend(newer.batches)
        self.coordinator_epoch = newer.coordinator_epoch
        self.current_txn_first_offset = newer.current_txn_first_offset
        self.last_timestamp = newer.last_timestamp

    def find_duplicate(self, batch: BatchHeader) -> BatchMetadata | None:
        """Returns the one of the last five batches that has the same sequence numbers, if any."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        expected = (batch.base_sequence, batch.last_sequence)
        return next((known for known in self.batches if (known.first_seq, known.last_seq) == expected), None)


class CompletedTxn(NamedTuple):
    """A transaction that ended. `last_offset` is the marker's offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(slots=True)
class ProducerAppendInfo:
    """The changes by an append (Kafka's ProducerAppendInfo).

    `append` raises ApiException or stores the changes in `updated`, which stays private until the records are in the log.
    started_txn: the first offset of a transaction that this append begins.
    """

    topic_partition: str
    current: ProducerStateEntry
    origin: AppendOrigin
    verification: VerificationStateEntry | None = None
    started_txn: int | None = None
    updated: ProducerStateEntry = field(init=False)

    def __post_init__(self) -> None:
        known = self.current
        self.updated = ProducerStateEntry(
            known.producer_id, known.producer_epoch, known.coordinator_epoch, known.last_timestamp, known.current_txn_first_offset
        )

    @property
    def producer_id(self) -> int:
        return self.current.producer_id

    def append(self, batch: BatchHeader, marker: EndTransactionMarker | None) -> CompletedTxn | None:
        """Adds a batch. `marker`: the content of a control batch. Returns None unless a transaction of the producer ends here."""
        if marker is not None:
            return self._append_marker(marker, batch.base_offset, batch.max_timestamp)
        offset = batch.base_offset
        self._check_epoch(batch.producer_epoch, offset)
        if self.origin is AppendOrigin.CLIENT:
            self._check_sequence(batch.producer_epoch, batch.base_sequence, offset)
        self.updated.move_to_epoch(batch.producer_epoch)
        self.updated.batches.append(metadata_of(batch))
        self.updated.last_timestamp = batch.max_timestamp
        open_txn = self.updated.current_txn_first_offset
        if open_txn is not None and not batch.is_transactional:
            raise ApiException(
                ErrorCode.INVALID_TXN_STATE, f"Expected transactional write from producer {self.producer_id}{self._place(offset)}"
            )
        if open_txn is None and batch.is_transactional:
            self.updated.current_txn_first_offset = self.started_txn = offset
        return None

    def _append_marker(self, marker: EndTransactionMarker, offset: int, timestamp: int) -> CompletedTxn | None:
        """Adds a marker. Without an open transaction of its producer, it changes nothing for readers."""
        self._check_epoch(marker.producer_epoch, offset)
        if self.updated.coordinator_epoch > marker.coordinator_epoch and self.origin is not AppendOrigin.REPLICATION:
            raise ApiException(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {self.producer_id}{self._place(offset)}: "
                f"{marker.coordinator_epoch} (zombie), {self.updated.coordinator_epoch} (current)",
            )
        first = self.updated.current_txn_first_offset
        self.updated.move_to_epoch(marker.producer_epoch)
        self.updated.coordinator_epoch = marker.coordinator_epoch
        self.updated.current_txn_first_offset = None
        self.updated.last_timestamp = timestamp
        return None if first is None else CompletedTxn(self.producer_id, first, offset, not marker.committed)

    def _check_epoch(self, epoch: int, offset: int) -> None:
        if epoch < self.updated.producer_epoch and self.origin is not AppendOrigin.REPLICATION:
            raise ApiException(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {self.producer_id}{self._place(offset)} is {epoch}, which is smaller than the last seen "
                f"epoch {self.updated.producer_epoch}",
            )

    def _check_sequence(self, epoch: int, first: int, offset: int) -> None:
        """Checks sequence numbers as Kafka 4.1 does.

        A producer unknown to this log may begin with any number. It must begin at 0 if the transaction protocol starts each
        transaction at 0 (version 2). A new epoch begins at 0.
        """
        verification = self.verification
        if verification is not None and verification.supports_epoch_bump and first != 0 and not self.current.batches:
            raise self._out_of_order(f"Invalid sequence number {first} for a new producer", offset)
        if verification is not None and first > verification.lowest_sequence:
            raise self._out_of_order(
                f"Out of order sequence number {first}, {verification.lowest_sequence} (earliest seen sequence)", offset
            )
        known = self.updated.producer_epoch
        if known == NO_PRODUCER_EPOCH:
            return
        if epoch != known:
            if first != 0:
                raise self._out_of_order(f"Invalid sequence number {first} for new epoch {epoch} after {known}", offset)
            return
        if self.updated.batches:
            last = self.updated.last_seq
        else:
            last = self.current.last_seq if epoch == self.current.producer_epoch else NO_SEQUENCE
        if first != last + 1 and (first != 0 or last != INT32_MAX):
            raise self._out_of_order(f"Out of order sequence number {first}, {last} (current end sequence number)", offset)

    def _out_of_order(self, what: str, offset: int) -> ApiException:
        return ApiException(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{what}, of producer {self.producer_id}{self._place(offset)}"
        )

    def _place(self, offset: int) -> str:
        return f" at offset {offset} in partition {self.topic_partition}"
