"""A sequence of segments: appends at the end, reads anywhere, finds a time, drops the oldest (Kafka's LocalLog)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.log_files import SWAP_SUFFIX, LeaderEpochCache
from spark_kafka_sink.broker.log.log_segment import AbortedTxn, BatchPosition, LogSegment
from spark_kafka_sink.broker.log.log_types import AbortedTransaction, LogConfig, TimestampAndOffset
from spark_kafka_sink.broker.log.segment_records import records_at
from spark_kafka_sink.protocol.apis.partition_offsets import ListOffsetsTimestamp
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP
from spark_kafka_sink.records.compression import Buffer

_base_offset = attrgetter("base_offset")


class LogSegments(list[LogSegment]):
    """The segments of a log, in the order of their offsets. Guarded by the log's lock."""

    @property
    def active(self) -> LogSegment:
        """The last segment, which is written to."""
        return self[-1]

    @property
    def closed(self) -> list[LogSegment]:
        """All segments but the active one."""
        return self[:-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self)

    def add(self, segment: LogSegment) -> None:
        self.insert(bisect_left(self, segment.base_offset, key=_base_offset), segment)

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Returns the segment that would hold `offset`, and all after it."""
        return self[max(bisect_right(self, offset, key=_base_offset) - 1, 0) :]

    def is_behind(self, offset: int, end: int) -> bool:
        """Returns whether `offset` is in an older segment than `end` (LogOffsetMetadata.onOlderSegment)."""
        place, end_place = (bisect_right(self, at, key=_base_offset) for at in (offset, end))
        return place < end_place

    def end_of(self, segment: LogSegment, log_end_offset: int) -> int:
        """Returns the offset at which the next segment starts."""
        after = bisect_right(self, segment.base_offset, key=_base_offset)
        return self[after].base_offset if after < len(self) else log_end_offset


def deletable_segments(segments: LogSegments, config: LogConfig, log_start_offset: int, now_ms: int) -> list[LogSegment]:
    """Returns the segments that retention deletes (UnifiedLog.deleteOldSegments).

    Segments before the log start always go; if the topic deletes, size and time count too. The active segment can go unless it is
    empty. The oldest segments go first, and one that must stay keeps all after it.
    """
    doomed = segments_before(segments, log_start_offset)
    left = segments[len(doomed) :]
    size = sum(segment.size for segment in left)
    while config.delete and left and (len(left) > 1 or left[0].size > 0):
        size -= left[0].size
        too_large = 0 <= config.retention_bytes <= size
        too_old = 0 <= config.retention_ms < now_ms - left[0].largest_timestamp
        if not (too_large or too_old):
            break
        doomed.append(left.pop(0))
    return doomed


def segments_before(segments: LogSegments, log_start_offset: int) -> list[LogSegment]:
    """Returns the segments whose records may no longer be read."""
    return [segment for segment in segments.closed if segments.end_of(segment, -1) <= log_start_offset]


def old_segments(segments: LogSegments, end_offset: int, lag_ms: int, now_ms: int) -> list[LogSegment]:
    """Returns the closed segments that end before `end_offset`, up to the first record younger than the lag.

    Without a lag, records may even be in the future.
    """
    left = [segment for segment in segments.closed if segments.end_of(segment, end_offset) <= end_offset]
    return left if lag_ms <= 0 else list(takewhile(lambda segment: now_ms - segment.largest_timestamp >= lag_ms, left))


class CleanableLog(NamedTuple):
    """The input of LogCleaner: segments up to `end_offset`. `last_batches`: the last offset of each producer's last data batch,
    or -1.
    """

    folder: Path | None
    segments: list[LogSegment]
    end_offset: int
    aborted: list[AbortedTxn]
    last_batches: dict[int, int]


class LocalLog:
    """A log without knowledge of producers. Guarded by the lock of the log that owns it."""

    def __init__(self, folder: Path | None, segments: LogSegments, log_end_offset: int) -> None:
        self.folder = folder
        self.segments = segments
        self.log_end_offset = log_end_offset

    def append(self, batch: BatchHeader, buffers: Sequence[Buffer]) -> None:
        """Appends to the active segment. After an OSError nothing has changed."""
        self.segments.active.append(batch, buffers)
        self.log_end_offset = batch.next_offset

    def roll(self, config: LogConfig, now_ms: int) -> LogSegment:
        """Creates an active segment at the log's end, unless the active one is empty. After an OSError nothing has changed."""
        if self.segments.active.base_offset == self.log_end_offset:
            return self.segments.active
        fresh = LogSegment.create(self.folder, self.log_end_offset, config, now_ms)
        self.segments.active.become_inactive()
        self.segments.add(fresh)
        return fresh

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool) -> tuple[list[Buffer], int]:
        """Reads from the batch with `offset`, within one segment and up to `end_offset`.

        Also returns an offset after all records that were read.
        `min_one_batch`: returns the first batch even if it is larger than `max_bytes`. Otherwise returns nothing then; batches
        are never cut.
        """
        for segment in self.segments.from_offset(offset) if offset < end_offset else ():
            place = segment.find_batch(offset)
            if place is None:
                continue
            segment_end = self.segments.end_of(segment, self.log_end_offset)
            beyond = segment.find_batch(end_offset) if end_offset < segment_end else None
            limit = max(max_bytes, place.header.size) if min_one_batch else max_bytes
            size = min(limit, (segment.size if beyond is None else beyond.position) - place.position)
            if size < place.header.size:
                break
            following = segment.offset_index.first_at_or_behind(place.position + size)
            return segment.records.read(place.position, size), segment_end if following is None else following
        return [], 0

    def collect_aborted(self, offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Returns all aborted transactions with records between the two offsets."""
        found: list[AbortedTransaction] = []
        for segment in self.segments.from_offset(offset):
            if segment.txn_index.collect(offset, upper_bound, found):
                break
        return found

    def replace_segments(self, old: list[LogSegment], cleaned: LogSegment) -> bool:
        """Renames the files of `cleaned` to the names of the first segment in `old`.

        The loader finishes after a crash: it deletes `.cleaned` files, and a `.swap` file replaces the offsets it covers
        (LogLoader's first passes).
        """
        if not all(segment in self.segments for segment in old):
            return False
        cleaned.rename(SWAP_SUFFIX)
        for segment in old:
            self.segments.remove(segment)
            segment.delete()
        cleaned.rename("")
        self.segments.add(cleaned)
        cleaned.become_inactive()
        return True


def find_offset(local: LocalLog, epochs: LeaderEpochCache, log_start_offset: int, timestamp: int) -> TimestampAndOffset | None:
    """Returns the first record at or after `timestamp`, or what a ListOffsetsTimestamp selects
    (UnifiedLog.fetchOffsetByTimestamp).
    """
    if timestamp in (ListOffsetsTimestamp.EARLIEST, ListOffsetsTimestamp.EARLIEST_LOCAL):
        earliest = epochs.earliest_entry
        epoch = earliest.epoch if earliest is not None and earliest.start_offset <= log_start_offset else -1
        return TimestampAndOffset(NO_TIMESTAMP, log_start_offset, epoch)
    if timestamp == ListOffsetsTimestamp.LATEST:
        return TimestampAndOffset(NO_TIMESTAMP, local.log_end_offset, epochs.latest_epoch)
    if timestamp == ListOffsetsTimestamp.LATEST_TIERED:
        return TimestampAndOffset(NO_TIMESTAMP, -1, -1)
    if timestamp == ListOffsetsTimestamp.MAX_TIMESTAMP:
        # The first record with the log's largest timestamp; None in a log without records.
        latest = max(local.segments, key=lambda segment: segment.max_timestamp.timestamp)
        place = latest.find_batch(latest.max_timestamp.offset) if latest.max_timestamp.timestamp >= 0 else None
        return None if place is None else _in_batch(latest, place, latest.max_timestamp.timestamp, latest.base_offset)
    # UnifiedLog.searchOffsetInLocalLog gives up if the first matching segment has the record before the log start.
    for segment in local.segments:
        if segment.largest_timestamp >= timestamp:
            # FileRecords.searchForTimestamp, from the earliest possible position in the time index.
            start = max(segment.time_index.lookup(timestamp).offset, log_start_offset)
            for position, header in segment.records.headers(segment.offset_index.lookup(start)):
                if header.max_timestamp >= timestamp and header.last_offset >= log_start_offset:
                    found = _in_batch(segment, BatchPosition(position, header), timestamp, log_start_offset)
                    if found is not None:
                        return found
    return None


def _in_batch(segment: LogSegment, place: BatchPosition, timestamp: int, from_offset: int) -> TimestampAndOffset | None:
    for record in records_at(segment.records, place.position, place.header):
        if record.timestamp >= timestamp and record.offset >= from_offset:
            return TimestampAndOffset(record.timestamp, record.offset, place.header.leader_epoch)
    return None
