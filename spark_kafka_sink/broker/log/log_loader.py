"""Loads a log from a partition's folder (Kafka's LogLoader) and repairs it after a crash (LogSegment.recover)."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.broker.log import log_files
from spark_kafka_sink.broker.log.batch import BatchHeader, is_valid
from spark_kafka_sink.broker.log.local_log import LocalLog, LogSegments
from spark_kafka_sink.broker.log.log_segment import LogSegment
from spark_kafka_sink.broker.log.log_types import AppendOrigin, LogConfig
from spark_kafka_sink.broker.log.producer_state import NUM_BATCHES_TO_RETAIN, BatchMetadata, metadata_of
from spark_kafka_sink.broker.log.producer_state_manager import ProducerSnapshots, ProducerStateManager
from spark_kafka_sink.broker.log.segment_records import FileRecords, marker_at

logger = logging.getLogger(__name__)

# Enough for five batches of half a megabyte from each of three producers. With the smallest batches it is 100,000 headers, 0.3 s.
_TAIL = 8 * 1024 * 1024


class LoadedLog(NamedTuple):
    """The state from which UnifiedLog continues."""

    local: LocalLog
    epochs: log_files.LeaderEpochCache
    snapshots: ProducerSnapshots
    log_start_offset: int
    recovery_point: int


def load_log(folder: Path | None, topic_id: uuid.UUID, state: ProducerStateManager, config: LogConfig, now_ms: int) -> LoadedLog:
    """Loads a log from a folder, which may be empty or absent. None: an empty log in memory. Raises OSError."""
    if folder is None:
        segments = LogSegments([LogSegment.create(None, 0, config, now_ms)])
        return LoadedLog(LocalLog(None, segments, 0), log_files.LeaderEpochCache(None), ProducerSnapshots(None), 0, 0)
    if folder.exists() and log_files.read_topic_id(folder) not in (None, topic_id):
        # The log of an older topic with this name is kept, but moved aside like Kafka's stray logs.
        log_files.renamed_away(folder, log_files.STRAY_FOLDER_SUFFIX)
    folder.mkdir(0o700, parents=True, exist_ok=True)
    log_files.write_partition_metadata(folder, topic_id)
    return _LogLoader(folder, state, config, now_ms).load()


class _LogLoader:
    def __init__(self, folder: Path, state: ProducerStateManager, config: LogConfig, now_ms: int) -> None:
        self._folder = folder
        self._state = state
        self._config = config
        self._now_ms = now_ms
        self._epochs = log_files.LeaderEpochCache(folder / log_files.LEADER_EPOCH_CHECKPOINT)
        self._snapshots = ProducerSnapshots(folder)
        self._log_start = log_files.read_offset_checkpoint(folder / log_files.LOG_START_OFFSET_CHECKPOINT)
        self._recovery_point = log_files.read_offset_checkpoint(folder / log_files.RECOVERY_POINT_CHECKPOINT)
        # Deleted before anything else changes: a crash from here on is not a clean shutdown.
        self._clean = (folder / log_files.CLEAN_SHUTDOWN).exists()
        (folder / log_files.CLEAN_SHUTDOWN).unlink(missing_ok=True)

    def load(self) -> LoadedLog:
        for path in self._folder.iterdir():
            if path.name.endswith((log_files.TEMPORARY_SUFFIX, log_files.CLEANED_SUFFIX)):
                path.unlink()
        _finish_swaps(self._folder)
        offsets = [log_files.offset_of(path, log_files.LOG_SUFFIX) for path in self._folder.glob(f"*{log_files.LOG_SUFFIX}")]
        segments = []
        for base_offset in sorted(offset for offset in offsets if offset is not None):
            files = log_files.SegmentFiles(self._folder, base_offset)
            segments.append(LogSegment(base_offset, FileRecords(files.log), self._config, self._now_ms, files))
        log_end = self._recover(segments)
        if log_end < self._log_start:
            logger.warning(
                "%s ends at %d, before its log start offset %d: the whole log is lost", self._folder, log_end, self._log_start
            )
            self._drop(segments)
        if not segments:
            log_end = self._log_start
            segments = [LogSegment.create(self._folder, log_end, self._config, self._now_ms)]
            self._state.load([], log_end, self._now_ms)
        log_start = max(self._log_start, segments[0].base_offset)
        self._epochs.truncate_from_end(log_end)
        self._epochs.truncate_from_start(log_start)
        self._state.map_end_offset = log_end
        self._remember_batches(segments)
        local = LocalLog(self._folder, LogSegments(segments), log_end)
        recovery_point = log_end if self._clean else min(self._recovery_point, log_end)
        return LoadedLog(local, self._epochs, self._snapshots, log_start, recovery_point)

    def _recover(self, segments: list[LogSegment]) -> int:
        """Loads or rebuilds all indexes and producers, and truncates invalid bytes. Returns the log's end."""
        suspect = self._first_suspect(segments)
        following = 0
        if segments:
            following = segments[suspect].base_offset if suspect < len(segments) else segments[-1].next_offset()
        self._snapshots.load_latest(self._state, self._log_start, following, self._now_ms)
        for at, segment in enumerate(segments):
            if at >= suspect:
                lost = self._rebuild(segment)
                if lost:
                    self._drop(segments[at + 1 :])
                    del segments[at + 1 :]
            elif segment.next_offset() > self._state.map_end_offset:
                # Its indexes are right, but its producers are unknown.
                start = segment.offset_index.lookup(self._state.map_end_offset)
                for position, header in segment.records.headers(start):
                    self._replay(segment, position, header, into_index=False)
        return segments[-1].next_offset() if segments else 0

    def _first_suspect(self, segments: list[LogSegment]) -> int:
        """Returns the first segment to recover.

        Without a clean shutdown, these are the segments that were not flushed. A segment whose indexes do not fit is always one.
        """
        for at, segment in enumerate(segments):
            is_last = at == len(segments) - 1
            flushed = not is_last and segments[at + 1].base_offset <= self._recovery_point
            if not (self._clean or flushed) or not segment.load_indexes():
                return at
        return len(segments)

    def _rebuild(self, segment: LogSegment) -> int:
        """Rebuilds a segment (LogSegment.recover) and returns the number of truncated bytes."""
        segment.clear_indexes()
        end, following = 0, segment.base_offset
        for position, header in segment.records.headers():
            if header.base_offset < following or header.last_offset_delta < 0:
                break
            if not segment.offset_index.can_hold(header.last_offset):
                break
            if not is_valid(header, b"".join(segment.records.read(position, header.size))):
                break
            segment.index(position, header)
            if header.leader_epoch > self._epochs.latest_epoch:
                self._epochs.assign(header.leader_epoch, header.base_offset)
            self._replay(segment, position, header, into_index=True)
            end, following = position + header.size, header.next_offset
        lost = segment.size - end
        if lost:
            logger.warning(
                "%s: truncated %d bytes after byte %d of segment %d, which are not a valid batch",
                self._folder,
                lost,
                end,
                segment.base_offset,
            )
            segment.records.truncate_to(end)
        segment.become_inactive()
        return lost

    def _replay(self, segment: LogSegment, position: int, header: BatchHeader, *, into_index: bool) -> None:
        """Updates the producers to after this batch, unless they are. `into_index`: adds an abort to the transaction index."""
        state = self._state
        if header.last_offset < state.map_end_offset:
            return
        if header.has_producer_id:
            appended = state.prepare_update(header.producer_id, AppendOrigin.REPLICATION)
            marker = marker_at(segment.records, position, header) if header.is_control else None
            completed = None if header.is_control and marker is None else appended.append(header, marker)
            state.complete(appended, completed, segment.txn_index if into_index else None)
        state.map_end_offset = header.next_offset

    def _remember_batches(self, segments: Sequence[LogSegment]) -> None:
        """Loads the last five batches of each producer, as far as they are in the log's last few megabytes.

        A snapshot has only the last batch, which is all that Kafka loads. Then a producer with more batches in flight at a
        broker's stop gets out-of-order errors for its retries.
        """
        known = {entry.producer_id: entry for entry in self._state.entries() if entry.batches}
        earlier: dict[int, list[BatchMetadata]] = {producer_id: [] for producer_id in known}
        for segment in segments[-2:] if known else ():
            start = segment.offset_index.position_before(segment.size - _TAIL)
            for _, header in segment.records.headers(start):
                entry = known.get(header.producer_id)
                if entry is None or header.is_control or header.producer_epoch != entry.producer_epoch:
                    continue
                if header.last_offset < entry.batches[0].first_offset:
                    earlier[header.producer_id].append(metadata_of(header))
        for producer_id, entry in known.items():
            missing = NUM_BATCHES_TO_RETAIN - len(entry.batches)
            entry.batches.extendleft(reversed(earlier[producer_id][-missing:] if missing else []))

    def _drop(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            segment.delete()
        gone = {segment.base_offset for segment in segments}
        self._snapshots.delete_if(lambda offset: offset in gone)


def _finish_swaps(folder: Path) -> None:
    """Finishes a compaction that crashed (LocalLog.replace_segments), before the segments are loaded."""
    for swapped in folder.glob(f"*{log_files.LOG_SUFFIX}{log_files.SWAP_SUFFIX}"):
        target = swapped.with_name(swapped.name.removesuffix(log_files.SWAP_SUFFIX))
        first = log_files.offset_of(target, log_files.LOG_SUFFIX)
        if first is not None:
            end = max((header.next_offset for _, header in FileRecords(swapped).headers()), default=first)
            for other in folder.glob(f"*{log_files.LOG_SUFFIX}"):
                offset = log_files.offset_of(other, log_files.LOG_SUFFIX)
                if offset is not None and first <= offset < max(end, first + 1):
                    log_files.SegmentFiles(folder, offset).delete()
            os.replace(swapped, target)
