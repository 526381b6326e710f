"""One partition's log: appends, reads and the state of its producers (Kafka's UnifiedLog)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.log.local_log import CleanableLog, deletable_segments, find_offset, old_segments, segments_before
from spark_kafka_sink.broker.log.log_files import Checkpoints, EpochEntry, delete_folder, storage_errors
from spark_kafka_sink.broker.log.log_loader import load_log
from spark_kafka_sink.broker.log.log_segment import LogSegment
from spark_kafka_sink.broker.log.log_types import (
    ActiveProducer,
    AppendOrigin,
    FetchDataInfo,
    IsolationLevel,
    LogAppendInfo,
    LogConfig,
    LogHooks,
    PartitionName,
    TimestampAndOffset,
    TimestampType,
)
from spark_kafka_sink.broker.log.log_validator import ValidBatch, validate
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.broker.log.producer_state_manager import ProducerStateManager
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP
from spark_kafka_sink.records.compression import Buffer
from spark_kafka_sink.records.small_batches import NewRecord, small_batch


class UnifiedLog:
    """A partition's log, safe to use from any thread.

    One lock guards all of its state and is held while its files are read or written. Work per record (checksum, decompression,
    checks) comes before the lock. Offsets are read without it. There is one replica, so the high watermark is the log's end.
    """

    def __init__(
        self,
        folder: Path | None,
        name: PartitionName,
        config: LogConfig,
        hooks: LogHooks,
        *,
        producer_expiration_ms: int = 86_400_000,
        verify_transactions: bool = False,
    ) -> None:
        """Opens the partition's folder and creates it if needed.

        Args:
            folder: the folder of the partition. None keeps the log in memory.
            name: the topic, its id and the partition's number.
            config: the configs of the log.
            hooks: the callbacks of the log.
            producer_expiration_ms: the time after which an idle producer is forgotten.
            verify_transactions: whether the first record of a transaction needs a guard.

        Raises:
            ApiException: KAFKA_STORAGE_ERROR.
        """
        self.folder = folder
        self.topic, self.partition, self.topic_id = name
        self.config = config
        self._hooks = hooks
        self._state = ProducerStateManager(self.name, producer_expiration_ms, verify_transactions=verify_transactions)
        with storage_errors(self.name):
            loaded = load_log(folder, self.topic_id, self._state, config, hooks.wall_ms())
        self._local, self._epochs, self._snapshots, self._log_start_offset, self._recovery_point = loaded
        self.first_dirty_offset = 0  # LogCleaner's: the part before it has been cleaned since the start
        self._checkpoints = Checkpoints(folder, self.topic, self.partition)
        self._lock = threading.Lock()
        self._closed_with: ErrorCode | None = None

    def __repr__(self) -> str:
        return f"UnifiedLog({self.name}, {self._log_start_offset} to {self.log_end_offset})"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def log_start_offset(self) -> int:
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._local.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._local.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset of the first record of the oldest open transaction, or the log's end."""
        unstable = self._state.first_unstable_offset
        return self.log_end_offset if unstable is None else max(unstable, self._log_start_offset)

    @property
    def size(self) -> int:
        """The size of all batches in bytes."""
        with self._lock:
            return self._local.segments.size

    # Writing

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> LogAppendInfo:
        """Appends one batch, as a Produce request carries it. The caller's memory is not used after the call.

        Raises:
            ApiException: the batch was refused; nothing was appended.
        """
        batch = validate(records, self.config, origin, self._hooks.wall_ms(), self.name)
        with self._locked():
            info = self._append(batch, leader_epoch, origin, None, guard)
        if not info.duplicate:
            self._hooks.on_advance()
        return info

    def append_control(self, marker: EndTransactionMarker, leader_epoch: int) -> LogAppendInfo:
        """Appends the end of a producer's transaction, which commits or aborts its records. Raises ApiException."""
        now = self._hooks.wall_ms()
        record = NewRecord(marker.key(), marker.value(), timestamp=now)
        written = small_batch(
            [record], producer_id=marker.producer_id, producer_epoch=marker.producer_epoch, transactional=True, control=True
        )
        batch = validate(written, self.config, AppendOrigin.COORDINATOR, now, self.name)
        with self._locked():
            info = self._append(batch, leader_epoch, AppendOrigin.COORDINATOR, marker, None)
        self._hooks.on_advance()
        return info

    def _append(
        self,
        valid: ValidBatch,
        leader_epoch: int,
        origin: AppendOrigin,
        marker: EndTransactionMarker | None,
        guard: VerificationGuard | None,
    ) -> LogAppendInfo:
        # The caller looked up the epoch without the lock, and the leader may have moved since. Epochs never go back in a log.
        leader_epoch = max(leader_epoch, self.latest_epoch)
        batch = valid.at(self.log_end_offset, leader_epoch)
        appended, completed = None, None
        if batch.has_producer_id:
            duplicate = self._state.find_duplicate(batch) if origin is AppendOrigin.CLIENT else None
            if duplicate is not None:
                # Kafka returns the time of the stored batch, whatever its timestamp type.
                return LogAppendInfo(duplicate.first_offset, duplicate.timestamp, self._log_start_offset, duplicate=True)
            self._state.check_verified(batch, guard)
            appended = self._state.prepare_update(batch.producer_id, origin)
            completed = appended.append(batch, marker)
        self._hooks.check_disk(batch.size)
        self._epochs.assign(leader_epoch, batch.base_offset)
        if self._local.segments.active.should_roll(batch, self.config, self._hooks.wall_ms()):
            self._roll()
        self._local.append(batch, [batch.unchecked_bytes(), *valid.rest])
        if appended is not None:
            self._state.complete(appended, completed, self._local.segments.active.txn_index)
            if batch.is_transactional:
                self._state.clear_verification(batch.producer_id)
        self._state.map_end_offset = batch.next_offset
        if self.log_end_offset - self._recovery_point >= self.config.flush_messages:
            self._flush()
        stamped = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        return LogAppendInfo(batch.base_offset, batch.max_timestamp if stamped else NO_TIMESTAMP, self._log_start_offset)

    def _roll(self) -> LogSegment:
        """Starts a segment. The producers' snapshot is written first, so a failure changes nothing."""
        self._snapshots.take(self._state)
        return self._local.roll(self.config, self._hooks.wall_ms())

    # Reading

    def read(self, offset: int, max_bytes: int, isolation: IsolationLevel, *, min_one_batch: bool = True) -> FetchDataInfo:
        """Reads from the batch that holds `offset`, which may start before it.

        Returns at most `max_bytes`, or the first batch if that is larger and `min_one_batch` is set. Raises ApiException
        OFFSET_OUT_OF_RANGE.
        """
        committed = isolation is IsolationLevel.READ_COMMITTED
        with self._locked():
            end = self.last_stable_offset if committed else self.high_watermark
            if not self._log_start_offset <= offset <= self.log_end_offset:
                there = f"{self._log_start_offset} to {self.log_end_offset}"
                raise ApiException(ErrorCode.OFFSET_OUT_OF_RANGE, f"Offset {offset} for partition {self.name}, which has {there}")
            records, upper_bound = self._local.read(offset, max_bytes, end, min_one_batch)
            aborted = self._local.collect_aborted(offset, upper_bound) if committed else None
            behind = offset < end and self._local.segments.is_behind(offset, end)
            stable = self.last_stable_offset
            return FetchDataInfo(records, self.high_watermark, stable, self._log_start_offset, aborted, behind)

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """Returns the first record at or after a time (ms), or what a ListOffsetsTimestamp selects; None if there is none.

        LATEST is the log's end; the caller decides how far a consumer may read.
        """
        with self._locked():
            return find_offset(self._local, self._epochs, self._log_start_offset, timestamp)

    def end_offset_for_epoch(self, epoch: int) -> EpochEntry | None:
        """Returns the last epoch up to `epoch` and its end offset; None if nothing is known of it."""
        with self._locked():
            return self._epochs.end_offset_for(epoch, self.log_end_offset)

    @property
    def latest_epoch(self) -> int:
        """Returns the epoch of the last record; -1 if there never was one."""
        return self._epochs.latest_epoch

    # Producers

    def active_producers(self) -> list[ActiveProducer]:
        with self._locked():
            return self._state.active_producers()

    def maybe_start_transaction_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Returns a guard to append with once the coordinator has confirmed the transaction.

        None: the transaction is already open here and needs no guard. Raises ApiException INVALID_PRODUCER_EPOCH.
        """
        with self._locked():
            return self._state.maybe_start_verification(producer_id, sequence, epoch, supports_epoch_bump, self._hooks.wall_ms())

    # Maintenance

    def update_config(self, config: LogConfig) -> None:
        """Replaces the configs, from the next append on."""
        with self._locked():
            self.config = config

    def roll(self) -> None:
        """Closes the active segment, so the next batch starts a new one."""
        with self._locked():
            self._roll()

    def delete_records_before(self, offset: int) -> int:
        """Deletes the records before `offset` and returns the new log start. -1 is the log's end.

        Whole segments before it are deleted at once. Raises ApiException OFFSET_OUT_OF_RANGE.
        """
        with self._locked():
            new_start = self.high_watermark if offset == -1 else offset
            if not 0 <= new_start <= self.high_watermark:
                text = f"Cannot move the log start of {self.name} to {offset}: the high watermark is {self.high_watermark}"
                raise ApiException(ErrorCode.OFFSET_OUT_OF_RANGE, text)
            self._move_start(new_start)
            self._drop(segments_before(self._local.segments, new_start))
            return self._log_start_offset

    def enforce_retention(self, now_ms: int) -> int:
        """Deletes segments by age and size, forgets idle producers, and flushes closed segments.

        Returns the number of deleted segments. Call it at intervals.
        """
        with self._locked():
            self._state.remove_expired(now_ms)
            doomed = deletable_segments(self._local.segments, self.config, self._log_start_offset, now_ms)
            self._drop(doomed)
            active = self._local.segments.active
            closed = [segment for segment in self._local.segments.from_offset(self._recovery_point) if segment is not active]
        # Outside the lock, because it takes time: closed segments do not change; they can only be deleted.
        for segment in closed:
            with storage_errors(self.name), suppress(FileNotFoundError):
                segment.records.flush()
        with self._locked():
            if closed and self._recovery_point < active.base_offset:
                self._recovery_point = active.base_offset
                self._checkpoints.write_recovery_point(active.base_offset)
        return len(doomed)

    def _drop(self, doomed: list[LogSegment]) -> None:
        segments = self._local.segments
        if doomed and len(doomed) == len(segments):
            self._roll()
        if doomed:
            self._move_start(segments.end_of(doomed[-1], self.log_end_offset))
            for segment in doomed:
                segments.remove(segment)
                segment.delete()
            self._snapshots.delete_if(lambda offset: offset < segments[0].base_offset)

    def _move_start(self, offset: int) -> None:
        if offset > self._log_start_offset:
            self._checkpoints.write_log_start(offset)
            self._log_start_offset = offset
            self._epochs.truncate_from_start(offset)

    def _flush(self) -> None:
        """Flushes to disk, so all appended records survive a power loss."""
        if self._recovery_point < self.log_end_offset:
            for segment in self._local.segments.from_offset(self._recovery_point):
                segment.flush()
            self._recovery_point = self.log_end_offset
            self._checkpoints.write_recovery_point(self._recovery_point)

    # For LogCleaner

    def cleanable(self, now_ms: int) -> CleanableLog:
        """Returns the closed segments that may be compacted, and the aborted transactions.

        They end before every open transaction and are as old as the topic's `min.compaction.lag.ms`.
        """
        with self._locked():
            end = min(self._local.segments.active.base_offset, self.last_stable_offset)
            segments = old_segments(self._local.segments, end, self.config.min_compaction_lag_ms, now_ms)
            end = self._local.segments.end_of(segments[-1], end) if segments else 0
            last_batches = {entry.producer_id: entry.last_data_offset for entry in self._state.entries()}
            aborted = [each for segment in self._local.segments for each in segment.txn_index.aborted]
            return CleanableLog(self.folder, segments, end, aborted, last_batches)

    def replace_segments(self, old: list[LogSegment], cleaned: LogSegment) -> bool:
        """Replaces `old` with `cleaned`. Returns False if one of them is already gone."""
        with self._locked():
            return self._local.replace_segments(old, cleaned)

    def close(self) -> None:
        """Writes everything that saves the next start from reading the records. Does nothing if it is closed."""
        with self._lock:
            if self._closed_with is not None:
                return
            self._closed_with = ErrorCode.KAFKA_STORAGE_ERROR
            with storage_errors(self.name):
                self._close()

    def _close(self) -> None:
        try:
            self._snapshots.take(self._state)
            self._flush()
            self._local.segments.active.write_last_indexes()
            self._checkpoints.mark_clean_shutdown()
        finally:
            self.release()

    def release(self) -> None:
        """Releases files without writing anything, as a crash would."""
        self._closed_with = self._closed_with or ErrorCode.KAFKA_STORAGE_ERROR
        for segment in self._local.segments:
            segment.records.close()

    def delete(self) -> None:
        """Deletes the log and its folder. Later calls raise that there is no such partition."""
        with self._lock:
            self._closed_with = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for segment in self._local.segments:
                segment.records.close()
            if self.folder is not None:
                with storage_errors(self.name):
                    delete_folder(self.folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock, storage_errors(self.name):
            if self._closed_with is not None:
                raise ApiException(self._closed_with, f"The log of {self.name} is closed")
            yield
