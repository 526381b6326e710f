"""Many small columns joined row by row: one array of view structs, and one pass of Arrow's C++ over it.

Arrow's cast from binary_view to binary copies what each struct names to the end of one buffer. So a record is a few structs in a
row, and its small numbers live inside them, written for all rows at once. It is the fastest way found: 3 to 5 times faster
than Arrow's take and binary_join_element_wise for records of 100 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.records.varints import Packed, Words
from spark_kafka_sink.records.views import INLINE, INT32_MAX, Views, shift_buffers

_STRUCT = 16
_WORD = 8


@dataclass(slots=True)
class _Numbers:
    """One struct a row that holds `zeros` 0 bytes, then `head`, then `tail`."""

    zeros: int = 0
    head: Packed = field(default_factory=lambda: Packed(0, 0, 0))
    tail: Packed = field(default_factory=lambda: Packed(0, 0, 0))

    def take(self, part: Packed) -> bool:
        """Puts `part` behind what is there, if it fits."""
        if self.head.max_bytes == 0 and isinstance(part.word, int) and part.word == 0 and isinstance(part.bits, int):
            if self.zeros + part.max_bytes <= INLINE - _WORD:
                self.zeros += part.max_bytes
                return True
        elif self.tail.max_bytes == 0 and self.head.max_bytes + part.max_bytes <= _WORD:
            self.head = self.head.then(part)
            return True
        beyond = self.head.max_bytes + self.tail.max_bytes + part.max_bytes - _WORD
        if self.tail.max_bytes + part.max_bytes <= _WORD and self.zeros + _WORD + _store_bytes(beyond) <= INLINE:
            self.tail = self.tail.then(part)
            return True
        return False


@dataclass(slots=True)
class _Column:
    """One struct a row that names a column's value; where all are inline and of one length, `tail` stands behind it."""

    views: Views
    tail: Packed = field(default_factory=lambda: Packed(0, 0, 0))

    def take(self, part: Packed) -> bool:
        length = self.views.lengths
        if not isinstance(length, int) or length + _store_bytes(self.tail.max_bytes + part.max_bytes) > INLINE:
            return False
        self.tail = self.tail.then(part)
        return True


def joined(rows: int, parts: Sequence[Packed | Views], size: int, ending: bytes = b"") -> pa.Buffer:
    """Every row's parts end to end, row after row, then `ending` (at most 12 bytes). `size`: bytes of the result."""
    elements = _elements(parts)
    count = rows * len(elements)
    memory = np.empty((count + 1) * _STRUCT, np.uint8)
    buffers: list[Any] = []
    for i, element in enumerate(elements):
        place = _Place(memory, rows, i * _STRUCT, len(elements) * _STRUCT)
        if isinstance(element, _Numbers):
            _store_numbers(place, element)
        else:
            _store_column(place, element, len(buffers))
            buffers += element.views.buffers if element.views.longest > INLINE else ()
    memory[count * _STRUCT :] = np.frombuffer(len(ending).to_bytes(4, "little") + ending.ljust(INLINE, b"\0"), np.uint8)
    views = pa.Array.from_buffers(pa.binary_view(), count + 1, [None, pa.py_buffer(memory), *buffers], null_count=0)
    # Past 2 GiB Arrow's cast to binary wraps around silently.
    return views.cast(pa.binary() if size <= INT32_MAX else pa.large_binary()).buffers()[2]


def _elements(parts: Sequence[Packed | Views]) -> list[_Numbers | _Column]:
    """As few structs as possible: each costs as much as some 50 bytes of data."""
    elements: list[_Numbers | _Column] = []
    for part in parts:
        if isinstance(part, Views):
            if part.longest > 0:
                elements.append(_Column(part))
        elif not (elements and elements[-1].take(part)):
            elements.append(_Numbers())
            elements[-1].take(part)
    return elements


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one element's structs lie in the memory: every `stride` bytes from `start` on."""

    memory: NDArray[np.uint8]
    rows: int
    start: int
    stride: int

    def items(self, dtype: str, offset: int) -> NDArray[Any]:
        return np.ndarray((self.rows,), dtype, self.memory.data, self.start + offset, (self.stride,))


def _store_numbers(place: _Place, element: _Numbers) -> None:
    """Two overlapping stores: the length with 4 zero bytes behind it, then the first 8 bytes of data, unaligned."""
    head, tail = element.head, element.tail
    bits: Words | int = head.bits + tail.bits if tail.max_bytes else head.bits
    place.items("<u8", 0)[:] = (bits >> 3) + element.zeros
    data = 4 + element.zeros
    if tail.max_bytes == 0:
        place.items("<u8", data)[:] = head.word
        return
    spilled = tail.word >> (64 - head.bits)
    place.items(f"<u{_store_bytes(head.max_bytes + tail.max_bytes - _WORD)}", data + _WORD)[:] = spilled
    kept = tail.word << head.bits
    place.items("<u8", data)[:] = head.word | (kept & (2**64 - 1) if isinstance(kept, int) else kept)


def _store_column(place: _Place, element: _Column, buffers_before: int) -> None:
    views = element.views
    structs = place.items("c16", 0)
    structs[:] = views.structs if views.order is None else views.structs[views.order]
    if views.has_nulls:
        place.items("<i4", 0)[:] = views.sizes()
    if buffers_before and views.longest > INLINE:
        shift_buffers(place.items("<i4", 0), place.items("<i4", 8), buffers_before)
    if element.tail.max_bytes:
        assert isinstance(views.lengths, int)
        place.items("<i4", 0)[:] = (element.tail.bits >> 3) + views.lengths
        place.items(f"<u{_store_bytes(element.tail.max_bytes)}", 4 + views.lengths)[:] = element.tail.word


def _store_bytes(needed: int) -> int:
    """The narrowest number that can be stored in one go and is no narrower than this."""
    return next((size for size in (1, 2, 4, 8) if size >= needed), 2 * INLINE)
