"""One segment: its records, and its indexes (Kafka's OffsetIndex, TimeIndex and TransactionIndex), written as a whole.

Indexes and snapshots of producers are kept as files because a scan of the log at each start takes too long. A scan of 1 GB takes
0.2 s with batches of 256 KB, but 1.2 to 1.8 s with 16 KB, 4 s with 8 KB and 12 to 24 s with 1 KB. Reading the files takes 1 to 70
ms.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.log_files import SegmentFiles, write_whole
from spark_kafka_sink.broker.log.log_types import AbortedTransaction, LogConfig
from spark_kafka_sink.broker.log.segment_records import FileRecords, MemoryRecords, SegmentRecords
from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP
from spark_kafka_sink.records.compression import Buffer

_OFFSET_ENTRY_SIZE = 8
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_TXN_ENTRY = struct.Struct(">hqqqq")  # version, then AbortedTxn's fields
_TXN_VERSION = 0


class OffsetIndex:
    """Positions by offset. Entry: int32 offset relative to the segment's first, int32 position.

    Kafka maps the file. Here it is written when the segment is closed or flushed, and rebuilt from the log after a crash, as in
    Kafka.
    """

    def __init__(self, base_offset: int, max_bytes: int) -> None:
        self.base_offset = base_offset
        self._max_entries = max_bytes // _OFFSET_ENTRY_SIZE
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._max_entries

    def can_hold(self, offset: int) -> bool:
        """Returns whether the offset is near enough to the segment's first to fit into an entry."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def append(self, offset: int, position: int) -> None:
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """Returns the position of the last entry up to `offset`, or the start of the segment."""
        slot = bisect_right(self._offsets, min(offset - self.base_offset, INT32_MAX)) - 1
        return self._positions[slot] if slot >= 0 else 0

    def position_before(self, position: int) -> int:
        """Returns the start of a batch at or before this byte, as near as the index knows one."""
        slot = bisect_right(self._positions, position) - 1
        return self._positions[slot] if slot >= 0 else 0

    def first_at_or_behind(self, position: int) -> int | None:
        """Returns the offset of the first entry at or after a byte (Kafka's fetchUpperBoundOffset)."""
        slot = bisect_right(self._positions, position - 1)
        return None if slot == len(self._positions) else self.base_offset + self._offsets[slot]

    def clear(self) -> None:
        del self._offsets[:]
        del self._positions[:]

    def to_bytes(self) -> bytes:
        pairs = np.empty((len(self), 2), ">i4")
        pairs[:, 0], pairs[:, 1] = self._offsets, self._positions
        return pairs.tobytes()

    def load(self, data: bytes, log_size: int) -> bool:
        """Loads a file's content. Returns False if it cannot be this segment's index."""
        if len(data) % _OFFSET_ENTRY_SIZE:
            return False
        pairs = np.frombuffer(data, ">i4").reshape(-1, 2)
        if len(pairs) and (pairs.min() < 0 or (np.diff(pairs, axis=0) <= 0).any() or pairs[-1, 1] >= log_size):
            return False
        self._offsets = array("i", pairs[:, 0].astype("i4").tobytes())
        self._positions = array("i", pairs[:, 1].astype("i4").tobytes())
        return True


class TimestampOffset(NamedTuple):
    """An offset up to which no record has a later timestamp (ms); -1 if there is none."""

    timestamp: int
    offset: int


class TimeIndex:
    """Offsets by time. Entry: int64 timestamp, int32 offset relative to the segment's first; both grow."""

    def __init__(self, base_offset: int, max_bytes: int) -> None:
        self.base_offset = base_offset
        self._max_entries = max_bytes // _TIME_ENTRY.itemsize
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def is_full(self) -> bool:
        """Whether the index is full. One entry is reserved for closing the segment."""
        return len(self) >= self._max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        return self._entry(len(self) - 1) if self._timestamps else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def maybe_append(self, entry: TimestampOffset) -> None:
        """Appends the entry only if it is later than all others."""
        if entry.timestamp > self.last_entry.timestamp:
            self._timestamps.append(entry.timestamp)
            self._offsets.append(entry.offset - self.base_offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Returns the last entry that is not later; without one, -1 and the segment's first offset."""
        slot = bisect_right(self._timestamps, timestamp) - 1
        return self._entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def clear(self) -> None:
        del self._timestamps[:]
        del self._offsets[:]

    def to_bytes(self) -> bytes:
        entries = np.empty(len(self), _TIME_ENTRY)
        entries["timestamp"], entries["offset"] = self._timestamps, self._offsets
        return entries.tobytes()

    def load(self, data: bytes) -> bool:
        """Loads a file's content. Returns False if it cannot be this segment's index."""
        if len(data) % _TIME_ENTRY.itemsize:
            return False
        entries: Any = np.frombuffer(data, _TIME_ENTRY)
        if len(entries) and ((np.diff(entries["timestamp"]) <= 0).any() or entries["offset"].min() < 0):
            return False
        self._timestamps = array("q", entries["timestamp"].astype("i8").tobytes())
        self._offsets = array("i", entries["offset"].astype("i4").tobytes())
        return True

    def _entry(self, slot: int) -> TimestampOffset:
        return TimestampOffset(self._timestamps[slot], self.base_offset + self._offsets[slot])


class AbortedTxn(NamedTuple):
    """An aborted transaction. `last_offset` is its marker's; `last_stable_offset` is the log's after the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """An index of all aborted transactions whose marker is in the segment."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.aborted: list[AbortedTxn] = []

    def collect(self, fetch_offset: int, upper_bound: int, found: list[AbortedTransaction]) -> bool:
        """Adds those with records between the two offsets. Returns whether no later segment can have more of them."""
        for aborted in self.aborted:
            if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound:
                found.append(AbortedTransaction(aborted.producer_id, aborted.first_offset))
            if aborted.last_stable_offset >= upper_bound:
                return True
        return False

    def to_bytes(self) -> bytes:
        return b"".join(_TXN_ENTRY.pack(_TXN_VERSION, *aborted) for aborted in self.aborted)

    def load(self, data: bytes) -> bool:
        """Loads a file's content. Returns False if it cannot be this segment's index."""
        if len(data) % _TXN_ENTRY.size:
            return False
        entries = list(_TXN_ENTRY.iter_unpack(data))
        aborted = [AbortedTxn(*fields) for _, *fields in entries]
        if any(version != _TXN_VERSION for version, *_ in entries) or any(txn.last_offset < self.base_offset for txn in aborted):
            return False
        self.aborted = aborted
        return True


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
        for position, header in self.records.headers(self.offset_index.lookup(offset)):
            if header.last_offset >= offset:
                return BatchPosition(position, header)
        return None

    def next_offset(self) -> int:
        """Returns the offset after the last record."""
        following = self.base_offset
        for _, header in self.records.headers(self.offset_index.lookup(2**62)):
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
        self._write_indexes()

    def _write_indexes(self) -> None:
        if self.files is None:
            return
        write_whole(self.files.offset_index, self.offset_index.to_bytes())
        write_whole(self.files.time_index, self.time_index.to_bytes())
        if self.txn_index.aborted:
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
        self.txn_index.aborted.clear()
        self.max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._bytes_since_index_entry = 0

    def rename(self, suffix: str) -> None:
        """Changes the suffix of the log file. Index files are not renamed; they are rebuilt."""
        if self.files is not None:
            self.files = SegmentFiles(self.files.folder, self.files.base_offset, suffix)
            self.records.rename(self.files.log)

    def flush(self) -> None:
        self.records.flush()
        self._write_indexes()

    def delete(self) -> None:
        self.records.delete()
        if self.files is not None:
            self.files.delete_indexes()
