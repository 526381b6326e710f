"""Some of a segment's timestamps with the last offset of their batches: Kafka's TimeIndex, held in memory and written whole."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np

from spark_kafka_sink.broker.log.log_types import NO_TIMESTAMP

ENTRY_SIZE = 12
_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])


class TimestampOffset(NamedTuple):
    """No record up to `offset` has a later timestamp (ms); -1 where there is none."""

    timestamp: int
    offset: int


class TimeIndex:
    """Entry: int64 timestamp, int32 offset from the segment's first; both grow."""

    def __init__(self, base_offset: int, max_bytes: int) -> None:
        self.base_offset = base_offset
        self._max_entries = max_bytes // ENTRY_SIZE
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def is_full(self) -> bool:
        """One entry is kept for when the segment is closed."""
        return len(self) >= self._max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        return self._entry(len(self) - 1) if self._timestamps else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def maybe_append(self, entry: TimestampOffset) -> None:
        """Only what is later than all before."""
        if entry.timestamp > self.last_entry.timestamp:
            self._timestamps.append(entry.timestamp)
            self._offsets.append(entry.offset - self.base_offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry that is not later; -1 and the segment's first offset where there is none."""
        slot = bisect_right(self._timestamps, timestamp) - 1
        return self._entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def clear(self) -> None:
        del self._timestamps[:]
        del self._offsets[:]

    def to_bytes(self) -> bytes:
        entries = np.empty(len(self), _ENTRY)
        entries["timestamp"], entries["offset"] = self._timestamps, self._offsets
        return entries.tobytes()

    def load(self, data: bytes) -> bool:
        """Takes over a file's content; False when it cannot be this segment's index."""
        if len(data) % ENTRY_SIZE:
            return False
        entries: Any = np.frombuffer(data, _ENTRY)
        if len(entries) and ((np.diff(entries["timestamp"]) <= 0).any() or entries["offset"].min() < 0):
            return False
        self._timestamps = array("q", entries["timestamp"].astype("i8").tobytes())
        self._offsets = array("i", entries["offset"].astype("i4").tobytes())
        return True

    def _entry(self, slot: int) -> TimestampOffset:
        return TimestampOffset(self._timestamps[slot], self.base_offset + self._offsets[slot])
