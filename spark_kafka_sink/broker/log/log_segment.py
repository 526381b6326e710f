"""One segment: its records and its three indexes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.log_config import LogConfig
from spark_kafka_sink.broker.log.log_files import SegmentFiles, write_whole
from spark_kafka_sink.broker.log.segment_indexes import OffsetIndex, TimeIndex, TimestampOffset, TransactionIndex
from spark_kafka_sink.broker.log.segment_records import FileRecords, MemoryRecords, SegmentRecords
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP
from spark_kafka_sink.records.compression import Buffer


class BatchPosition(NamedTuple):
    """The position of a batch in its segment."""

    position: int
    header: BatchHeader


class LogSegment:
    """A segment (Kafka's LogSegment). Guarded by its log's lock. `files`: None in memory."""

    def __init__(
        self, base_offset: int, records: SegmentRecords, config: LogConfig, created_ms: int, files: SegmentFiles | None = None
    ) -> None:
        self.base_offset = base_offset
        self.records = records
        self.files = files
        self.offset_index = OffsetIndex(base_offset, config.segment_index_bytes)
        self.time_index = TimeIndex(base_offset, config.segment_index_bytes)
        self.txn_index = TransactionIndex(base_offset)
        self.created_ms = created_ms
        self.max_timestamp = TimestampOffset(NO_TIMESTAMP, base_offset)
        self._index_interval = config.index_interval_bytes
        self._bytes_since_index_entry = 0
        self._first_batch_timestamp: int | None = None

    @classmethod
    def create(cls, folder: Path | None, base_offset: int, config: LogConfig, now_ms: int, suffix: str = "") -> LogSegment:
        """Creates an empty segment. An OSError leaves no files behind. `suffix`: for files that are not in use yet."""
        if folder is None:
            return cls(base_offset, MemoryRecords(), config, now_ms)
        files = SegmentFiles(folder, base_offset, suffix)
        return cls(base_offset, FileRecords.created(files.log), config, now_ms, files)

    @property
    def size(self) -> int:
        return self.records.size

    def should_roll(self, batch: BatchHeader, config: LogConfig, now_ms: int) -> bool:
        """Returns whether to roll before `batch`: because of its size, the time since the first record, or a full index."""
        first = self.first_batch_timestamp  # the records' own time if they have one
        waited = batch.max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return (
            self.size > config.segment_bytes - batch.size
            or (self.size > 0 and waited > config.segment_ms)
            or self.offset_index.is_full
            or self.time_index.is_full
            or not self.offset_index.can_hold(batch.last_offset)
        )

    @property
    def first_batch_timestamp(self) -> int:
        """The timestamp of the first batch; -1 if there is none."""
        if self._first_batch_timestamp is None and self.size:
            self._first_batch_timestamp = next((header.max_timestamp for _, header in self.records.headers()), NO_TIMESTAMP)
        return NO_TIMESTAMP if self._first_batch_timestamp is None else self._first_batch_timestamp

    def append(self, batch: BatchHeader, buffers: Sequence[Buffer]) -> None:
        position = self.size
        self.records.append(buffers)
        if position == 0:
            self._first_batch_timestamp = batch.max_timestamp
        self.index(position, batch)

    def index(self, position: int, batch: BatchHeader) -> None:
        """Adds a batch at `position` to the indexes."""
        if batch.max_timestamp > self.max_timestamp.timestamp:
            self.max_timestamp = TimestampOffset(batch.max_timestamp, batch.last_offset)
        if self._bytes_since_index_entry > self._index_interval:
            self.offset_index.append(batch.last_offset, position)
            self.time_index.maybe_append(self.max_timestamp)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += batch.size

    def find_batch(self, offset: int) -> BatchPosition | None:
        """Returns the first batch whose last offset is at or after `offset`."""
        for position, header in self.records.headers(self.offset_index.lookup(offset).position):
            if header.last_offset >= offset:
                return BatchPosition(position, header)
        return None

    def next_offset(self) -> int:
        """Returns the offset after the last record."""
        following = self.base_offset
        for _, header in self.records.headers(self.offset_index.lookup(2**62).position):
            following = header.next_offset
        return following

    @property
    def largest_timestamp(self) -> int:
        """Returns the time for retention: the records' largest timestamp, or the last write if they have none."""
        if self.max_timestamp.timestamp >= 0:
            return self.max_timestamp.timestamp
        try:
            return self.created_ms if self.files is None else self.files.log.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return self.created_ms

    def become_inactive(self) -> None:
        """Ends the writes to this segment. An index that cannot be written is rebuilt at the next start."""
        self.records.close()
        try:
            self.write_last_indexes()
        except OSError:
            if self.files is not None:
                self.files.delete_indexes()

    def write_last_indexes(self) -> None:
        """Writes the indexes, complete enough to load the segment without its records."""
        self.time_index.maybe_append(self.max_timestamp)
        self.write_indexes()

    def write_indexes(self) -> None:
        if self.files is None:
            return
        write_whole(self.files.offset_index, self.offset_index.to_bytes())
        write_whole(self.files.time_index, self.time_index.to_bytes())
        if len(self.txn_index):
            write_whole(self.files.txn_index, self.txn_index.to_bytes())

    def load_indexes(self) -> bool:
        """Loads the indexes from files. Returns False if one is missing or does not fit this segment."""
        files = self.files
        assert files is not None
        if not (files.offset_index.exists() and files.time_index.exists()):
            return False
        transactions = files.txn_index.read_bytes() if files.txn_index.exists() else b""
        loaded = (
            self.offset_index.load(files.offset_index.read_bytes(), self.size)
            and self.time_index.load(files.time_index.read_bytes())
            and self.txn_index.load(transactions)
        )
        self.max_timestamp = self.time_index.last_entry
        # Every closed segment with records has an entry, unless they have no timestamps, which is rare enough to scan it.
        return loaded and (len(self.time_index) > 0 or self.size == 0)

    def clear_indexes(self) -> None:
        """Clears the indexes before they are rebuilt."""
        self.offset_index.clear()
        self.time_index.clear()
        self.txn_index.clear()
        self.max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._bytes_since_index_entry = 0

    def rename(self, suffix: str) -> None:
        """Changes the suffix of the log file. Index files are not renamed; they are rebuilt."""
        if self.files is not None:
            self.files = SegmentFiles(self.files.folder, self.files.base_offset, suffix)
            self.records.rename(self.files.log)

    def flush(self) -> None:
        self.records.flush()
        self.write_indexes()

    def delete(self) -> None:
        self.records.delete()
        if self.files is not None:
            self.files.delete_indexes()
