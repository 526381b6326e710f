"""Encodes rows for several batches at once: a piece is a run of rows that one batch receives.

The common case has a fast path, a `Layout`. Its conditions are in `_layout`. All other rows take `encode_records`, which writes
the same bytes. Most of an append's fixed cost is code that runs once, after other code has filled the processor's caches.
Arrow's cast of a column takes 7 us in a loop and 30 us within an append. So the fast path has few calls. An append to 8
partitions has a fixed cost of 175 us instead of 335, which includes what sizes, lengths and hashes save when all rows have one
length. With values of varying lengths the fixed cost is 315 us.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.records.arrow_arrays import cast_to, has_offsets_of_32_bits, offsets_of
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.concat import INLINE, Order, first_structs, keep_freed_memory
from spark_kafka_sink.records.encoder import body_sizes, encode_records, record_offsets
from spark_kafka_sink.records.varints import ZERO_BYTE, varint, varint_sizes, varints

# Rows below which a layout saves too little.
MIN_ROWS = 64
# Offset deltas that a layout knows, each for 24 bytes and 30 ns. A batch of 1 MB has 8,700 records of 120 bytes, or 32,000 of 32.
# There are two sizes only: a topic uses them in turn as its batches fill, for timestamp deltas of one and of two bytes.
USUAL_REACH, MOST_REACH = 4 * 1024, 32 * 1024
# At most 25 MB; most jobs have one to four, of 0.1 or 0.8 MB. A layout is made when its rows come a second time, and only if that
# is among the last 32 kinds: 60 lengths in turn would otherwise make one for each append, which took 0.9 instead of 0.15 ms.
LAYOUTS = 32
_STRUCT = 16
_UNSIGNED = {width: np.dtype(f"<u{width}") for width in (1, 2)}
_ZERO_AT_END = np.frombuffer((1).to_bytes(_STRUCT, "little"), np.complex128)


class Pieces(NamedTuple):
    """The rows of each piece, and where they go.

    One entry for each piece. starts: position of the first row. counts: number of rows. offset_deltas: offset delta of the first
    row; the others follow. timestamp_deltas: one for all rows of a piece; None: all are 0.
    """

    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    offset_deltas: NDArray[np.int64]
    timestamp_deltas: list[int] | None = None

    def rows_offset_deltas(self, rows: int) -> NDArray[np.int64]:
        """Returns the offset delta of each row."""
        if len(self.counts) == 1:
            first = int(self.offset_deltas[0])
            return np.arange(first, first + rows)
        deltas: NDArray[np.int64] = (self.offset_deltas - self.starts).repeat(self.counts)
        deltas += np.arange(rows)
        return deltas


class EncodedPieces(NamedTuple):
    """The bytes of each piece, and the size of its largest record."""

    pieces: list[memoryview]
    largest: list[int]


def encode_pieces(
    columns: RecordColumns, order: Order, pieces: Pieces, timestamp_deltas: NDArray[np.int64] | None = None
) -> EncodedPieces:
    """Encodes rows in output order, piece after piece.

    Any thread may call it, because calls share only what is never changed.

    Args:
        columns: input rows.
        order: output row j is input row `order[j]` (None: j).
        pieces: pieces of the output rows.
        timestamp_deltas: one for each output row, instead of those in `pieces`.
    """
    rows = columns.num_records if order is None else len(order)
    layout = _layout(columns, rows, pieces) if timestamp_deltas is None else None
    if layout is not None:
        return layout.encode(columns, order, rows, pieces)
    if timestamp_deltas is None and pieces.timestamp_deltas is not None:
        timestamp_deltas = np.array(pieces.timestamp_deltas, np.int64).repeat(pieces.counts)
    encoded = encode_records(columns, order, pieces.rows_offset_deltas(rows), timestamp_deltas)
    offsets = encoded.offsets
    largest = np.maximum.reduceat(offsets[1:] - offsets[:-1], pieces.starts).tolist()
    bounds = pairwise([*offsets[pieces.starts].tolist(), int(offsets[-1])])
    return EncodedPieces([encoded.data[start:end] for start, end in bounds], largest)


def _layout(columns: RecordColumns, rows: int, pieces: Pieces) -> Layout | None:
    """Returns the layout for these rows, or None if they are not the common case."""
    if rows < MIN_ROWS or columns.headers is not None or columns.fixed_headers:
        return None
    lengths = []
    for column, known in ((columns.key, columns.lengths("key")), (columns.value, columns.lengths("value"))):
        if column is None or known is None:
            lengths.append(-1)
        elif known.is_constant and has_offsets_of_32_bits(column):
            lengths.append(known.longest)
        else:
            return None
    reach = int((pieces.offset_deltas + pieces.counts).max())
    if reach > MOST_REACH or rows * (sum(lengths) + 64) > INT32_MAX:
        return None
    width = 1
    if pieces.timestamp_deltas is not None:
        least, greatest = min(pieces.timestamp_deltas), max(pieces.timestamp_deltas)
        width = varint_sizes(greatest)
        if least < 0 or varint_sizes(least) != width or width > 2:
            return None
    kind = lengths[0], lengths[1], width, USUAL_REACH if reach <= USUAL_REACH else MOST_REACH
    seen = _seen(*kind)
    if not seen:
        seen.append(True)
        return None
    return _layout_of(*kind)


class _Place(NamedTuple):
    """The place of a column in a row of structs: of its bytes if at most 12 are inline, else of their offset in its memory."""

    name: str
    at: int
    inline: int
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """View structs (concat.py) of rows without headers whose keys have one length, and whose values have one.

    Everything but the bytes of key and value then depends on the offset delta only.

    heads: the first struct of the record with each offset delta, with a timestamp delta of `timestamp_width` bytes, of which only
    the 0 is correct. ends: total size of the records with a smaller offset delta. row: all structs of a row, without what differs
    from row to row. timestamp_at: the place of the timestamp delta in a row.
    """

    heads: NDArray[np.complex128]
    ends: NDArray[np.int64]
    row: NDArray[np.complex128]
    places: tuple[_Place, ...]
    timestamp_at: int
    timestamp_width: int

    def encode(self, columns: RecordColumns, order: Order, rows: int, pieces: Pieces) -> EncodedPieces:
        keep_freed_memory()
        structs = len(self.row)
        memory = np.empty(rows * structs + 1, np.complex128)
        table = memory[:-1].reshape(rows, structs)
        table[:] = self.row
        table[:, 0] = self.heads[pieces.rows_offset_deltas(rows)]
        if pieces.timestamp_deltas is not None:
            codes = np.array(pieces.timestamp_deltas) << 1
            if self.timestamp_width > 1:
                codes = codes & 0x7F | 0x80 | (codes >> 7) << 8
            self._items(memory, rows, _UNSIGNED[self.timestamp_width], self.timestamp_at)[:] = codes.repeat(pieces.counts)
        buffers: list[Any] = [None, None]
        for place in self.places:
            column = columns.key if place.name == "key" else columns.value
            assert column is not None
            data = column.buffers()[2]
            values: NDArray[Any] = offsets_of(column)[:-1]
            if place.inline:
                values = np.ndarray((len(column),), place.dtype, data, int(values[0]), (place.inline,))
            else:
                buffers.append(data)
            self._items(memory, rows, place.dtype, place.at)[:] = values if order is None else values[order]
        memory[-1:] = _ZERO_AT_END
        buffers[1] = pa.py_buffer(memory)
        views = pa.Array.from_buffers(pa.binary_view(), len(memory), buffers, null_count=0)
        data = memoryview(cast_to(pa.binary())([views]).buffers()[2]).cast("B")
        firsts = pieces.offset_deltas
        lasts = firsts + pieces.counts
        ends = self.ends[lasts]
        sizes = (ends - self.ends[firsts]).tolist()
        # The first byte ends a record before the first one.
        bounds = pairwise(accumulate(sizes, initial=1))
        return EncodedPieces([data[start:end] for start, end in bounds], (ends - self.ends[lasts - 1]).tolist())

    def _items(self, memory: NDArray[np.complex128], rows: int, dtype: np.dtype[Any], at: int) -> NDArray[Any]:
        return np.ndarray((rows,), dtype, memory, at, (len(self.row) * _STRUCT,))


@lru_cache(LAYOUTS)
def _seen(*_kind: int) -> list[bool]:
    """Returns whether rows of this kind came before, as a list that is empty or not. It forgets as many kinds as `_layout_of`."""
    return []


@lru_cache(LAYOUTS)
def _layout_of(key: int, value: int, timestamp_width: int, reach: int) -> Layout | None:
    """Returns the layout of keys and values with these lengths (-1: null), or None if a record has too many small numbers.

    reach: the number of offset deltas.
    """
    before_key = [
        ZERO_BYTE,  # attributes
        *varints(0 if timestamp_width == 1 else 64),
        *varints(np.arange(reach)),
        *varints(key),
    ]
    before_value, after_value = varint(value), varints(0)
    numbers = [*before_key, *varints(value), *after_value]
    body = np.asarray(body_sizes(numbers, [])) + max(key, 0) + max(value, 0)
    length = varints(body)
    width, widest = varint_sizes(int(body.min())), varint_sizes(int(body.max()))
    if width != widest:
        return None
    head = [ZERO_BYTE, *length, *before_key]
    structs: list[bytes] = [b""]
    places: list[_Place] = []
    if key > 0:
        places.append(_add(structs, "key", key, places))
        if key + len(before_value) <= INLINE:
            structs[-1] = _struct(key + len(before_value), bytes(key) + before_value)
        else:
            structs.append(_struct(len(before_value), before_value))
    else:
        head += varints(value)
    if value > 0:
        places.append(_add(structs, "value", value, places))
    heads = first_structs(reach, head)
    if heads is None:
        return None
    row = np.frombuffer(b"".join([bytes(_STRUCT), *structs[1:]]), np.complex128)
    return Layout(heads, record_offsets(body, width, reach), row, tuple(places), 4 + 1 + width + 1, timestamp_width)


def _add(structs: list[bytes], name: str, length: int, before: list[_Place]) -> _Place:
    """Adds the struct of a column. Returns the place of what differs from row to row."""
    start = len(structs) * _STRUCT
    buffer = sum(not place.inline for place in before)
    if length <= INLINE:
        structs.append(_struct(length, b""))
        return _Place(name, start + 4, length, np.dtype(f"V{length}"))
    structs.append(_struct(length, bytes(4) + buffer.to_bytes(4, "little")))
    return _Place(name, start + 12, 0, np.dtype("<i4"))


def _struct(length: int, data: bytes) -> bytes:
    return length.to_bytes(4, "little") + data.ljust(INLINE, b"\0")
