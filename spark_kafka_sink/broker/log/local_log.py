"""Segments as one run of offsets: append at the end, read anywhere. Kafka's LocalLog."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.log_config import LogConfig
from spark_kafka_sink.broker.log.log_segment import LogSegment
from spark_kafka_sink.broker.log.log_segments import LogSegments
from spark_kafka_sink.broker.log.log_types import AbortedTransaction
from spark_kafka_sink.broker.log.swapped_segments import begin_swap, end_swap
from spark_kafka_sink.broker.log.transaction_index import AbortedTxn
from spark_kafka_sink.records.compression import Buffer


class LocalRead(NamedTuple):
    """`upper_bound`: an offset behind all that was read."""

    records: list[Buffer]
    upper_bound: int


class CleanableLog(NamedTuple):
    """What LogCleaner works on: segments up to `end_offset`. last_batches: of each producer the last offset of its last data
    batch, -1 for none."""

    folder: Path | None
    segments: list[LogSegment]
    end_offset: int
    aborted: list[AbortedTxn]
    last_batches: dict[int, int]


class LocalLog:
    """Knows nothing of producers. Guarded by the lock of the log that owns it."""

    def __init__(self, folder: Path | None, segments: LogSegments, log_end_offset: int) -> None:
        self.folder = folder
        self.segments = segments
        self.log_end_offset = log_end_offset

    def append(self, batch: BatchHeader, buffers: Sequence[Buffer]) -> None:
        """At the end of the active segment. OSError with nothing changed."""
        self.segments.active.append(batch, buffers)
        self.log_end_offset = batch.next_offset

    def roll(self, config: LogConfig, now_ms: int) -> LogSegment:
        """A new active segment at the log's end; the active one where that is empty. OSError with nothing changed."""
        if self.segments.active.base_offset == self.log_end_offset:
            return self.segments.active
        fresh = LogSegment.create(self.folder, self.log_end_offset, config, now_ms)
        self.segments.active.become_inactive()
        self.segments.add(fresh)
        return fresh

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool) -> LocalRead:
        """From the batch with `offset` on, all of one segment, nothing from `end_offset` on. `min_one_batch`: the first batch
        even if it is larger than `max_bytes`; else nothing then, so that it is never cut."""
        if offset < end_offset:
            for segment in self.segments.from_offset(offset):
                place = segment.find_batch(offset)
                if place is not None:
                    limit = max(max_bytes, place.header.size) if min_one_batch else max_bytes
                    size = min(limit, self._end_position(segment, end_offset) - place.position)
                    return self._read_from(segment, place.position, size) if size >= place.header.size else _NOTHING
        return _NOTHING

    def _end_position(self, segment: LogSegment, end_offset: int) -> int:
        if end_offset >= self.segments.end_of(segment, self.log_end_offset):
            return segment.size
        place = segment.find_batch(end_offset)
        return segment.size if place is None else place.position

    def _read_from(self, segment: LogSegment, position: int, size: int) -> LocalRead:
        upper_bound = segment.upper_bound_offset(position + size)
        if upper_bound is None:
            upper_bound = self.segments.end_of(segment, self.log_end_offset)
        return LocalRead(segment.records.read(position, size), upper_bound)

    def collect_aborted(self, offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """All aborted transactions with records between the two offsets."""
        found: list[AbortedTransaction] = []
        for segment in self.segments.from_offset(offset):
            if segment.txn_index.collect(offset, upper_bound, found):
                break
        return found

    def all_aborted(self) -> list[AbortedTxn]:
        return [aborted for segment in self.segments for aborted in segment.txn_index.all()]

    def replace_segments(self, old: list[LogSegment], cleaned: LogSegment) -> bool:
        """The files of `cleaned` take the names of those that the first of `old` had. A crash in between is finished by the
        loader: see swapped_segments.py."""
        if not all(segment in self.segments for segment in old):
            return False
        begin_swap(cleaned)
        for segment in old:
            self.segments.remove(segment)
            segment.delete()
        end_swap(cleaned)
        self.segments.add(cleaned)
        cleaned.become_inactive()
        return True

    def delete_segments(self, unwanted: Iterable[LogSegment]) -> None:
        for segment in unwanted:
            self.segments.remove(segment)
            segment.delete()


_NOTHING = LocalRead([], 0)
