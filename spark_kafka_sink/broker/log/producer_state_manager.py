"""All producers of a log, their open transactions, and their snapshots as files (Kafka's ProducerStateManager)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from crc32c import crc32c

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.log_files import SNAPSHOT_SUFFIX, file_name, offset_of, write_whole
from spark_kafka_sink.broker.log.log_segment import AbortedTxn, TransactionIndex
from spark_kafka_sink.broker.log.log_types import ActiveProducer, AppendOrigin
from spark_kafka_sink.broker.log.producer_state import (
    BatchMetadata,
    CompletedTxn,
    ProducerAppendInfo,
    ProducerStateEntry,
    VerificationGuard,
    VerificationStateEntry,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode


class ProducerStateManager:
    """The producers of a log (Kafka's ProducerStateManager, without its files; see ProducerSnapshots). Guarded by its log's lock.

    map_end_offset: the state covers the records before this offset. first_unstable_offset: the start of the oldest open
    transaction. There is one replica, so a transaction is stable as soon as its marker is written, and Kafka's "unreplicated"
    ones do not exist.
    """

    def __init__(self, topic_partition: str, expiration_ms: int, *, verify_transactions: bool = False) -> None:
        self.map_end_offset = 0
        self.first_unstable_offset: int | None = None
        self._topic_partition = topic_partition
        self._expiration_ms = expiration_ms
        self._verify_transactions = verify_transactions
        self._producers: dict[int, ProducerStateEntry] = {}
        # first offset -> producer id; offsets only grow, so insertion order is offset order
        self._ongoing: dict[int, int] = {}
        self._verifications: dict[int, VerificationStateEntry] = {}

    def load(self, entries: Iterable[ProducerStateEntry], end_offset: int, now_ms: int) -> None:
        """Replaces the state with a snapshot taken at `end_offset`, without producers that were idle for too long."""
        live = [entry for entry in entries if not self._is_expired(entry, now_ms)]
        self._producers = {entry.producer_id: entry for entry in live}
        begun = [(entry.current_txn_first_offset, entry.producer_id) for entry in live]
        self._ongoing = dict(sorted((first, producer_id) for first, producer_id in begun if first is not None))
        self.map_end_offset = end_offset
        self._see_unstable()

    def entries(self) -> list[ProducerStateEntry]:
        return list(self._producers.values())

    def find_duplicate(self, batch: BatchHeader) -> BatchMetadata | None:
        entry = self._producers.get(batch.producer_id)
        return None if entry is None else entry.find_duplicate(batch)

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        current = self._producers.get(producer_id) or ProducerStateEntry(producer_id)
        return ProducerAppendInfo(self._topic_partition, current, origin, self._verifications.get(producer_id))

    def check_verified(self, batch: BatchHeader, guard: VerificationGuard | None) -> None:
        """Checks that a transaction's first record has a guard, if guards are required. Raises ApiException."""
        if not self._verify_transactions or not batch.is_transactional or batch.is_control:
            return
        state = self._verifications.get(batch.producer_id)
        verified = state is not None and state.guard is guard
        if not verified and not self._has_ongoing_transaction(batch.producer_id, batch.producer_epoch):
            raise ApiException(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def complete(self, appended: ProducerAppendInfo, completed: CompletedTxn | None, index: TransactionIndex | None) -> None:
        """Applies a batch that is in the log.

        completed: the transaction that it ended. An abort is added to the index of its segment.
        """
        producer_id = appended.producer_id
        if producer_id in self._producers:
            self._producers[producer_id].take_over(appended.updated)
        else:
            self._producers[producer_id] = appended.updated
        if appended.started_txn is not None:
            self._ongoing[appended.started_txn] = producer_id
        if completed is not None:
            if completed.is_aborted and index is not None:
                others = (first for first, owner in self._ongoing.items() if owner != completed.producer_id)
                stable = next(others, completed.last_offset + 1)
                aborted = AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)
                index.aborted.append(aborted)
            self._ongoing.pop(completed.first_offset, None)
        self._see_unstable()

    def _see_unstable(self) -> None:
        self.first_unstable_offset = next(iter(self._ongoing), None)

    def _has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self._producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == producer_epoch

    def maybe_start_verification(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Returns a guard; None if the transaction is already open here, or if guards are not required.

        It implements UnifiedLog.maybeStartTransactionVerification.
        """
        if not self._verify_transactions:
            return None
        entry = self._producers.get(producer_id)
        if entry is not None and epoch < entry.producer_epoch:
            raise ApiException(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {entry.producer_epoch}",
            )
        if self._has_ongoing_transaction(producer_id, epoch):
            return None
        fresh = VerificationStateEntry(now_ms, sequence, epoch, supports_epoch_bump)
        state = self._verifications.setdefault(producer_id, fresh)
        state.see(sequence, epoch)
        return state.guard

    def clear_verification(self, producer_id: int) -> None:
        """Drops a producer's guard, because its transaction has its first record here or has ended."""
        self._verifications.pop(producer_id, None)

    def remove_expired(self, now_ms: int) -> None:
        """Drops producers whose last batch is too old, and guards that were never used."""
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


# Kafka's ProducerSnapshot.json: version, CRC-32C of all that follows, count; then for each producer its id, epoch, last sequence,
# last offset, offset delta, timestamp, coordinator epoch and the first offset of its transaction
_VERSION = 1
_HEAD = struct.Struct(">hIi")
_AFTER_CRC = 6
_ENTRY = struct.Struct(">qhiqiqiq")


def snapshot_bytes(entries: Sequence[ProducerStateEntry]) -> bytes:
    """Returns a snapshot. The format has only the last batch of each producer."""
    packed = [
        _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_seq,
            entry.last_data_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
        )
        for entry in entries
    ]
    data = b"".join([_HEAD.pack(_VERSION, 0, len(packed)), *packed])
    return _HEAD.pack(_VERSION, crc32c(data[_AFTER_CRC:]), len(packed)) + data[_HEAD.size :]


def parse_snapshot(data: bytes) -> list[ProducerStateEntry] | None:
    """Parses a snapshot. Returns None if it is not valid, so that producers have to be read from the log."""
    if len(data) < _HEAD.size:
        return None
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION or crc != crc32c(data[_AFTER_CRC:]) or len(data) - _HEAD.size != count * _ENTRY.size:
        return None
    entries = []
    for producer_id, epoch, sequence, offset, delta, time_ms, coordinator_epoch, first in _ENTRY.iter_unpack(data[_HEAD.size :]):
        entry = ProducerStateEntry(producer_id, epoch, coordinator_epoch, time_ms, first if first >= 0 else None)
        if offset >= 0:
            entry.batches.append(BatchMetadata(sequence, offset, delta, time_ms))
        entries.append(entry)
    return entries


class ProducerSnapshots:
    """The snapshot files, named after their offsets. `folder`: None writes nothing. Guarded by its log's lock."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        found = [] if folder is None else [offset_of(path, SNAPSHOT_SUFFIX) for path in folder.glob(f"*{SNAPSHOT_SUFFIX}")]
        self.offsets = sorted(offset for offset in found if offset is not None)

    def take(self, state: ProducerStateManager) -> None:
        """Writes a snapshot at the end of `state`, unless there is one. After an OSError nothing has changed."""
        offset = state.map_end_offset
        if self._folder is None or (self.offsets and offset <= self.offsets[-1]):
            return
        write_whole(self._path(offset), snapshot_bytes(state.entries()))
        self.offsets.append(offset)

    def load_latest(self, state: ProducerStateManager, log_start: int, end_offset: int, now_ms: int) -> None:
        """Loads the last snapshot up to `end_offset` into the state; without one, the state is empty from `log_start` on."""
        self.delete_if(lambda offset: offset > end_offset)
        while self.offsets:
            offset = self.offsets[-1]
            try:
                entries = parse_snapshot(self._path(offset).read_bytes())
            except OSError:  # an unreadable snapshot is dropped like a damaged one, and the one before it serves
                entries = None
            if entries is not None:
                state.load(entries, offset, now_ms)
                return
            self._delete(offset)
        state.load([], log_start, now_ms)

    def delete_if(self, unwanted: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self.offsets if unwanted(offset)]:
            self._delete(offset)

    def _delete(self, offset: int) -> None:
        self._path(offset).unlink(missing_ok=True)
        self.offsets.remove(offset)

    def _path(self, offset: int) -> Path:
        assert self._folder is not None
        return self._folder / file_name(offset, SNAPSHOT_SUFFIX)
