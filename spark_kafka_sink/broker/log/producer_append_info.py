"""Whether a producer may append this batch now, and what is known of it afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.batch import INT32_MAX, BatchHeader
from spark_kafka_sink.broker.log.control_record import EndTransactionMarker
from spark_kafka_sink.broker.log.log_types import NO_PRODUCER_EPOCH, NO_SEQUENCE, AppendOrigin
from spark_kafka_sink.broker.log.producer_state_entry import BatchMetadata, ProducerStateEntry
from spark_kafka_sink.broker.log.verification_state import VerificationStateEntry
from spark_kafka_sink.protocol.error_codes import ErrorCode


class CompletedTxn(NamedTuple):
    """`last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(slots=True)
class ProducerAppendInfo:
    """Kafka's class of that name: `append` raises ApiException, or notes what changes in `updated`, which nobody sees before the
    records are in the log. started_txn: the first offset of a transaction that this append begins."""

    topic_partition: str
    current: ProducerStateEntry
    origin: AppendOrigin
    verification: VerificationStateEntry | None = None
    started_txn: int | None = None
    updated: ProducerStateEntry = field(init=False)

    def __post_init__(self) -> None:
        self.updated = self.current.without_batches()

    @property
    def producer_id(self) -> int:
        return self.current.producer_id

    def append(self, batch: BatchHeader, marker: EndTransactionMarker | None) -> CompletedTxn | None:
        """`marker`: what a control batch holds."""
        if marker is not None:
            return self.append_marker(marker, batch.base_offset, batch.max_timestamp)
        self.append_data(batch)
        return None

    def append_data(self, batch: BatchHeader) -> None:
        offset = batch.base_offset
        self._check_epoch(batch.producer_epoch, offset)
        if self.origin is AppendOrigin.CLIENT:
            self._check_sequence(batch.producer_epoch, batch.base_sequence, offset)
        metadata = BatchMetadata(batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp)
        self.updated.add_batch(batch.producer_epoch, metadata)
        open_txn = self.updated.current_txn_first_offset
        if open_txn is not None and not batch.is_transactional:
            raise ApiException(
                ErrorCode.INVALID_TXN_STATE, f"Expected transactional write from producer {self.producer_id}{self._place(offset)}"
            )
        if open_txn is None and batch.is_transactional:
            self.updated.current_txn_first_offset = self.started_txn = offset

    def append_marker(self, marker: EndTransactionMarker, offset: int, timestamp: int) -> CompletedTxn | None:
        """None when the producer has no transaction open here: such a marker changes no reader's view."""
        self._check_epoch(marker.producer_epoch, offset)
        self._check_coordinator_epoch(marker.coordinator_epoch, offset)
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

    def _check_coordinator_epoch(self, epoch: int, offset: int) -> None:
        if self.updated.coordinator_epoch > epoch and self.origin is not AppendOrigin.REPLICATION:
            raise ApiException(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {self.producer_id}{self._place(offset)}: {epoch} (zombie), "
                f"{self.updated.coordinator_epoch} (current)",
            )

    def _check_sequence(self, epoch: int, first: int, offset: int) -> None:
        """As 4.1: a producer that this log does not know may begin with any number, unless the transaction protocol lets it
        start each transaction at 0 (version 2); a new epoch begins at 0."""
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
        last = self._last_sequence(epoch)
        if not _in_sequence(last, first):
            raise self._out_of_order(f"Out of order sequence number {first}, {last} (current end sequence number)", offset)

    def _last_sequence(self, epoch: int) -> int:
        if self.updated.batches:
            return self.updated.last_seq
        return self.current.last_seq if epoch == self.current.producer_epoch else NO_SEQUENCE

    def _out_of_order(self, what: str, offset: int) -> ApiException:
        return ApiException(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{what}, of producer {self.producer_id}{self._place(offset)}"
        )

    def _place(self, offset: int) -> str:
        return f" at offset {offset} in partition {self.topic_partition}"


def _in_sequence(last: int, following: int) -> bool:
    return following == last + 1 or (following == 0 and last == INT32_MAX)
