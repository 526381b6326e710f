"""All producers that a log knows, and their open transactions."""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.log_types import ActiveProducer, AppendOrigin
from spark_kafka_sink.broker.log.producer_append_info import CompletedTxn, ProducerAppendInfo
from spark_kafka_sink.broker.log.producer_state_entry import BatchMetadata, ProducerStateEntry
from spark_kafka_sink.broker.log.verification_state import VerificationGuard, VerificationStateEntry
from spark_kafka_sink.protocol.error_codes import ErrorCode


class ProducerStateManager:
    """Kafka's class of that name, without its files (producer_snapshots.py). Guarded by its log's lock.

    map_end_offset: the state is that after the records before this offset. first_unstable_offset: where the oldest open
    transaction begins. There is one replica, so what is written is
    replicated: a transaction is stable with its marker, and Kafka's "unreplicated" ones do not exist.
    """

    def __init__(self, topic_partition: str, expiration_ms: int, *, verify_transactions: bool = False) -> None:
        self.map_end_offset = 0
        self.first_unstable_offset: int | None = None
        self._topic_partition = topic_partition
        self._expiration_ms = expiration_ms
        self._verify_transactions = verify_transactions
        self._producers: dict[int, ProducerStateEntry] = {}
        # first offset -> producer id; offsets only grow, so the order of insertion is that of the offsets
        self._ongoing: dict[int, int] = {}
        self._verifications: dict[int, VerificationStateEntry] = {}

    def load(self, entries: Iterable[ProducerStateEntry], end_offset: int, now_ms: int) -> None:
        """Starts anew from a snapshot taken at `end_offset`; who was idle for too long is forgotten."""
        live = [entry for entry in entries if not self._is_expired(entry, now_ms)]
        self._producers = {entry.producer_id: entry for entry in live}
        begun = [(entry.current_txn_first_offset, entry.producer_id) for entry in live]
        self._ongoing = dict(sorted((first, producer_id) for first, producer_id in begun if first is not None))
        self.map_end_offset = end_offset
        self._see_unstable()

    def entries(self) -> list[ProducerStateEntry]:
        return list(self._producers.values())

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def find_duplicate(self, batch: BatchHeader) -> BatchMetadata | None:
        entry = self._producers.get(batch.producer_id)
        return None if entry is None else entry.find_duplicate(batch)

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        current = self._producers.get(producer_id) or ProducerStateEntry(producer_id)
        return ProducerAppendInfo(self._topic_partition, current, origin, self._verifications.get(producer_id))

    def check_verified(self, batch: BatchHeader, guard: VerificationGuard | None) -> None:
        """The first record of a transaction needs a guard, where they are asked for. Raises ApiException."""
        if not self._verify_transactions or not batch.is_transactional or batch.is_control:
            return
        state = self._verifications.get(batch.producer_id)
        verified = state is not None and state.guard is guard
        if not verified and not self.has_ongoing_transaction(batch.producer_id, batch.producer_epoch):
            raise ApiException(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def update(self, appended: ProducerAppendInfo) -> None:
        """The records are in the log."""
        producer_id = appended.producer_id
        if producer_id in self._producers:
            self._producers[producer_id].take_over(appended.updated)
        else:
            self._producers[producer_id] = appended.updated
        if appended.started_txn is not None:
            self._ongoing[appended.started_txn] = producer_id
            self._see_unstable()

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """Once this transaction is complete."""
        others = (first for first, producer_id in self._ongoing.items() if producer_id != completed.producer_id)
        return next(others, completed.last_offset + 1)

    def complete_txn(self, completed: CompletedTxn) -> None:
        self._ongoing.pop(completed.first_offset, None)
        self._see_unstable()

    def _see_unstable(self) -> None:
        self.first_unstable_offset = next(iter(self._ongoing), None)

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        entry = self._producers.get(producer_id)
        if entry is None or entry.current_txn_first_offset is None:
            return False
        return producer_epoch is None or entry.producer_epoch == producer_epoch

    def maybe_start_verification(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """UnifiedLog.maybeStartTransactionVerification; None where the transaction is open here already, and where no guards are
        asked for."""
        if not self._verify_transactions:
            return None
        entry = self._producers.get(producer_id)
        if entry is not None and epoch < entry.producer_epoch:
            raise ApiException(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {entry.producer_epoch}",
            )
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        fresh = VerificationStateEntry(now_ms, sequence, epoch, supports_epoch_bump)
        state = self._verifications.setdefault(producer_id, fresh)
        state.see(sequence, epoch)
        return state.guard

    def clear_verification(self, producer_id: int) -> None:
        """Its transaction has its first record here, or has ended."""
        self._verifications.pop(producer_id, None)

    def remove_expired(self, now_ms: int) -> None:
        """Forgets who has been idle for too long, by the time of the last batch, and guards that were never used."""
        self._producers = {
            producer_id: entry for producer_id, entry in self._producers.items() if not self._is_expired(entry, now_ms)
        }
        self._verifications = {
            producer_id: state
            for producer_id, state in self._verifications.items()
            if now_ms - state.timestamp_ms < self._expiration_ms
        }

    def active_producers(self) -> list[ActiveProducer]:
        return [
            ActiveProducer(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_seq,
                entry.last_timestamp,
                entry.coordinator_epoch,
                -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
            )
            for entry in self._producers.values()
        ]

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return entry.current_txn_first_offset is None and now_ms - entry.last_timestamp >= self._expiration_ms
