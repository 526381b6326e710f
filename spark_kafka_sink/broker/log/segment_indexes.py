"""The indexes of a segment (Kafka's OffsetIndex, TimeIndex and TransactionIndex), held in memory and written as a whole.

Indexes and snapshots of producers are kept as files because a scan of the log at each start takes too long. A scan of 1 GB takes
0.2 s with batches of 256 KB, but 1.2 to 1.8 s with 16 KB, 4 s with 8 KB and 12 to 24 s with 1 KB. Reading the files takes 1 to 70
ms.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np

from spark_kafka_sink.broker.log.log_types import AbortedTransaction
from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP

_OFFSET_ENTRY_SIZE = 8
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_TXN_ENTRY = struct.Struct(">hqqqq")  # version, then AbortedTxn's fields
_TXN_VERSION = 0


class OffsetPosition(NamedTuple):
    """A batch's last offset and the position of its first byte."""

    offset: int
    position: int


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

    def lookup(self, offset: int) -> OffsetPosition:
        """Returns the last entry up to `offset`, or the start of the segment."""
        slot = bisect_right(self._offsets, min(offset - self.base_offset, INT32_MAX)) - 1
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + self._offsets[slot], self._positions[slot])

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
        self._aborted: list[AbortedTxn] = []

    def __len__(self) -> int:
        return len(self._aborted)

    def append(self, aborted: AbortedTxn) -> None:
        self._aborted.append(aborted)

    def all(self) -> list[AbortedTxn]:
        return list(self._aborted)

    def collect(self, fetch_offset: int, upper_bound: int, found: list[AbortedTransaction]) -> bool:
        """Adds those with records between the two offsets. Returns whether no later segment can have more of them."""
        for aborted in self._aborted:
            if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound:
                found.append(AbortedTransaction(aborted.producer_id, aborted.first_offset))
            if aborted.last_stable_offset >= upper_bound:
                return True
        return False

    def clear(self) -> None:
        self._aborted.clear()

    def to_bytes(self) -> bytes:
        return b"".join(_TXN_ENTRY.pack(_TXN_VERSION, *aborted) for aborted in self._aborted)

    def load(self, data: bytes) -> bool:
        """Loads a file's content. Returns False if it cannot be this segment's index."""
        if len(data) % _TXN_ENTRY.size:
            return False
        entries = list(_TXN_ENTRY.iter_unpack(data))
        aborted = [AbortedTxn(*fields) for _, *fields in entries]
        if any(version != _TXN_VERSION for version, *_ in entries) or any(txn.last_offset < self.base_offset for txn in aborted):
            return False
        self._aborted = aborted
        return True
