"""Some of a segment's offsets with the bytes where their batches lie: Kafka's OffsetIndex, held in memory and written whole."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

import numpy as np

ENTRY_SIZE = 8
_INT32_MAX = 2**31 - 1


class OffsetPosition(NamedTuple):
    """A batch's last offset and the byte where the batch begins."""

    offset: int
    position: int


class OffsetIndex:
    """Entry: int32 offset from the segment's first, int32 position. Kafka maps the file; here it is written when the segment is
    closed or flushed, and made again from the log after a crash, as Kafka does too."""

    def __init__(self, base_offset: int, max_bytes: int) -> None:
        self.base_offset = base_offset
        self._max_entries = max_bytes // ENTRY_SIZE
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._max_entries

    def can_hold(self, offset: int) -> bool:
        """Whether the offset is near enough to the segment's first."""
        return 0 <= offset - self.base_offset <= _INT32_MAX

    def append(self, offset: int, position: int) -> None:
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry that is not behind `offset`; the segment's beginning where there is none."""
        slot = bisect_right(self._offsets, min(offset - self.base_offset, _INT32_MAX)) - 1
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + self._offsets[slot], self._positions[slot])

    def position_before(self, position: int) -> int:
        """Where a batch begins that is not behind this byte, as near as the index knows one."""
        slot = bisect_right(self._positions, position) - 1
        return self._positions[slot] if slot >= 0 else 0

    def first_at_or_behind(self, position: int) -> int | None:
        """The offset of the first entry at or behind a byte: Kafka's fetchUpperBoundOffset."""
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
        """Takes over a file's content; False when it cannot be this segment's index."""
        if len(data) % ENTRY_SIZE:
            return False
        pairs = np.frombuffer(data, ">i4").reshape(-1, 2)
        if len(pairs) and (pairs.min() < 0 or (np.diff(pairs, axis=0) <= 0).any() or pairs[-1, 1] >= log_size):
            return False
        self._offsets = array("i", pairs[:, 0].astype("i4").tobytes())
        self._positions = array("i", pairs[:, 1].astype("i4").tobytes())
        return True
