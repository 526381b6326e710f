"""Encodes columns to magic-2 records: all rows of an Arrow batch at once, ordered by partition, without Python per row.

A call has a fixed cost of about 100 us, so encode all partitions in one call. Far above 10,000 rows, page faults cost more than
that, so slice larger Arrow batches first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import RecordTooLargeError, UsageError
from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.records.arrow_arrays import (
    ByteLengths,
    array_of_bytes,
    bitmap,
    byte_lengths,
    offsets_of,
    repeated,
    valid_mask,
)
from spark_kafka_sink.records.columns import FixedHeaders, RecordColumns, header_counts
from spark_kafka_sink.records.concat import Lengths, Order, Views, column_views, concat_rows, keep_freed_memory
from spark_kafka_sink.records.record_reader import ATTRIBUTES_SIZE, INT_BITS, LONG_BITS, read_varint
from spark_kafka_sink.records.varints import ZERO_BYTE, Packed, Words, packed_sizes, varint, varint_sizes, varints


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """Encoded records: record j is `data[offsets[j]:offsets[j + 1]]`, including its length varint."""

    data: memoryview
    offsets: NDArray[np.int64]


def encode_records(
    columns: RecordColumns,
    order: NDArray[np.intp] | None,
    offset_deltas: NDArray[np.signedinteger[Any]],
    timestamp_deltas: NDArray[np.int64] | None,
) -> EncodedRecords:
    """Encodes the rows of columns.

    Output row j is input row `order[j]` (None: j). `order` may omit rows. The deltas are in output order; without timestamp
    deltas, all are 0. Any thread may call it, because calls share nothing.
    """
    keep_freed_memory()
    rows = _check_rows(columns, order, offset_deltas, timestamp_deltas)
    if rows == 0:
        return EncodedRecords(memoryview(b""), np.zeros(1, np.int64))
    key, value = _views(columns, "key", order), _views(columns, "value", order)
    counts, headers = _headers(columns.headers, order)
    fixed = fixed_header_views(columns.fixed_headers, counted=headers is None)
    before_key = [
        ZERO_BYTE,  # attributes
        *varints(0 if timestamp_deltas is None else timestamp_deltas),
        *varints(offset_deltas.astype(np.int64, copy=False)),
        *_length(key),
    ]
    before_value = _length(value)
    after_value = varints(counts + len(columns.fixed_headers)) if headers is not None or fixed is None else []
    body = body_sizes([*before_key, *before_value, *after_value], [key, value, headers, fixed])
    length = varints(body)
    offsets = record_offsets(body, packed_sizes(length), rows)
    # Without headers, each record ends in a 0. It goes into the struct that starts the next record, and the first 0 is cut off.
    closed_by_next = headers is None and fixed is None
    parts = [*length, *before_key, *_some(key), *before_value, *_some(value)]
    parts = [ZERO_BYTE, *parts] if closed_by_next else [*parts, *after_value, *_some(headers), *_some(fixed)]
    size = int(offsets[-1])
    data = concat_rows(rows, parts, size + 1, ending=b"\0" if closed_by_next else b"")
    return EncodedRecords(memoryview(data).cast("B")[closed_by_next : size + closed_by_next], offsets)


def _check_rows(
    columns: RecordColumns,
    order: Order,
    offset_deltas: NDArray[np.signedinteger[Any]],
    timestamp_deltas: NDArray[np.int64] | None,
) -> int:
    for name, column in (("key", columns.key), ("value", columns.value), ("headers", columns.headers)):
        if column is not None and len(column) != columns.num_records:
            raise UsageError(f"{name} has {counted(len(column), 'row')}, but num_records is {columns.num_records:,}")
    rows = columns.num_records if order is None else len(order)
    for name, deltas in (("offset_deltas", offset_deltas), ("timestamp_deltas", timestamp_deltas)):
        if deltas is not None and len(deltas) != rows:
            raise UsageError(f"{name} has {counted(len(deltas), 'number')} for {counted(rows, 'record')}")
    return rows


def _views(columns: RecordColumns, name: str, order: Order) -> Views | None:
    lengths = columns.lengths(name)
    return None if lengths is None else column_views(getattr(columns, name), lengths, order)


def _headers(headers: pa.Array | None, order: Order) -> tuple[Lengths, Views | None]:
    """Returns the number of headers per row, in output order, and the encoded headers; None if no row has any."""
    if headers is None:
        return 0, None
    counts = header_counts(headers)
    if not counts.any():
        return 0, None
    return (counts if order is None else counts[order]), header_views(headers, order)


def _length(views: Views | None) -> Sequence[Packed]:
    """Returns the length varint of each row of a column; -1 is null, or no column."""
    if views is None:
        return varints(-1)
    return varints(views.lengths, (views.shortest, views.longest))


def _some(views: Views | None) -> list[Packed | Views]:
    return [] if views is None else [views]


def body_sizes(numbers: list[Packed], columns: list[Views | None]) -> Lengths:
    """Returns the value of the length varint at the start of each record."""
    bits: Words | int = 0
    for number in numbers:
        bits = number.bits + bits
    size: Lengths = (bits >> 3) if isinstance(bits, int) else (bits >> 3).view(np.int64)
    for views in columns:
        if views is not None:
            size = size + views.sizes()
    largest = size if isinstance(size, int) else int(size.max())
    if largest > INT32_MAX:
        raise RecordTooLargeError(f"a record of {largest} bytes is too large: Kafka's limit is {INT32_MAX} bytes", size=largest)
    return size


def record_offsets(body: Lengths, length: Lengths, rows: int) -> NDArray[np.int64]:
    """Returns the start of each of `rows` records, and the end of the last one. length: the bytes of each length varint."""
    size = body + length
    if isinstance(size, int):
        return np.arange(rows + 1, dtype=np.int64) * size
    offsets = np.zeros(rows + 1, np.int64)
    size.cumsum(out=offsets[1:])
    return offsets


# Headers: each row's headers become one run of bytes, without a loop over rows


def header_sizes(headers: pa.Array) -> NDArray[np.int64]:
    """Returns the size of each row's encoded headers in bytes, without their count."""
    starts = _starts(headers, *_keys_and_values(headers))
    sizes = starts[1:] - starts[:-1]
    valid = valid_mask(headers)
    return sizes if valid is None else sizes * valid


def header_views(headers: pa.Array, order: Order) -> Views:
    """Returns each row's encoded headers without their count. A null list has the length -1.

    The rows' lists are consecutive in Arrow's memory. So all headers are encoded in input order, and each row's run of bytes is
    then a value like any other.
    """
    keys, values = _keys_and_values(headers)
    starts = _starts(headers, keys, values)
    data = None
    if len(keys):
        key, value = column_views(keys, byte_lengths(keys), None), column_views(values, byte_lengths(values), None)
        data = concat_rows(len(keys), [*varints(key.lengths), key, *varints(value.lengths), value], int(starts[-1]))
    # In Arrow, a null list may own elements. They are encoded too, but nothing refers to them.
    valid = valid_mask(headers)
    present = None if valid is None else bitmap(valid)
    encoded = pa.Array.from_buffers(pa.large_binary(), len(headers), [present, pa.py_buffer(starts), data])
    return column_views(encoded, byte_lengths(encoded), order)


@lru_cache(64)
def fixed_header_views(headers: FixedHeaders, *, counted: bool) -> Views | None:
    """Returns headers that all records share, encoded, as one view for every row; None if there are none.

    counted: their count stands before them, which then needs no separate struct.
    """
    if not headers:
        return None
    parts = (part for key, value in headers for part in (key.encode(), value))
    encoded = b"".join(varint(-1) if part is None else varint(len(part)) + part for part in parts)
    column = array_of_bytes([varint(len(headers)) + encoded if counted else encoded])
    return column_views(column, byte_lengths(column), None)


def _keys_and_values(headers: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns the keys and values of all headers in this slice's rows."""
    offsets = offsets_of(headers)
    first, end = int(offsets[0]), int(offsets[-1])
    pairs = headers.values.slice(first, end - first)
    return pairs.field("key"), pairs.field("value")


def _starts(headers: pa.Array, keys: pa.Array, values: pa.Array) -> NDArray[np.int64]:
    """Returns the start of each row's headers among all encoded ones (n+1 numbers)."""
    key_lengths, value_lengths = byte_lengths(keys).rows, byte_lengths(values).rows
    ends: NDArray[np.int64] = np.zeros(len(keys) + 1, np.int64)
    sizes = varint_sizes(key_lengths) + varint_sizes(value_lengths) + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    np.cumsum(sizes, out=ends[1:])
    offsets = offsets_of(headers)
    starts: NDArray[np.int64] = ends[offsets - offsets[0]]
    return starts


# Records that were encoded for one batch, for others: the deltas change, the other bytes stay the same


@dataclass(frozen=True, slots=True)
class WrittenRecords:
    """The encoded records of a batch, split but not decoded: keys, values and headers stay unchanged bytes.

    sizes: bytes of each record, including its length varint. timestamp_deltas: ms from the batch's first timestamp. Both are
    int64 with one number per record. fields: two rows per record, the bytes before its key's length and the rest.
    """

    sizes: NDArray[np.int64]
    timestamp_deltas: NDArray[np.int64]
    fields: pa.Array


def written_records(data: bytes, count: int) -> WrittenRecords:
    """Splits `data` (uncompressed) into its `count` records. It takes 1 us per record, because only a record has its own size."""
    starts, timestamp_deltas, position = [0], [], 0
    for _ in range(count):
        size, position = read_varint(data, position, INT_BITS)
        end = position + size
        timestamp_delta, position = read_varint(data, position + ATTRIBUTES_SIZE, LONG_BITS)
        _, position = read_varint(data, position, INT_BITS)
        timestamp_deltas.append(timestamp_delta)
        starts += (position, end)
        position = end
    assert position == len(data), f"{count} records end at byte {position} of {len(data)}"
    bounds = np.array(starts, np.int32)
    fields = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(data)], null_count=0)
    return WrittenRecords(np.diff(bounds[::2]).astype(np.int64), np.array(timestamp_deltas, np.int64), fields)


def encode_again(
    records: WrittenRecords, rows: NDArray[np.intp], offset_deltas: NDArray[np.int32], timestamp_deltas: NDArray[np.int64]
) -> EncodedRecords:
    """Returns records in the format of `encoder.encode_records`: record j is `rows[j]` with the j-th deltas. Needs a row."""
    rest = column_views(records.fields, byte_lengths(records.fields), 2 * rows + 1)
    deltas = [ZERO_BYTE, *varints(timestamp_deltas), *varints(offset_deltas.astype(np.int64))]
    body = body_sizes(deltas, [rest])
    length = varints(body)
    offsets = record_offsets(body, packed_sizes(length), len(rows))
    data = concat_rows(len(rows), [*length, *deltas, rest], int(offsets[-1]))
    return EncodedRecords(memoryview(data).cast("B")[: int(offsets[-1])], offsets)


# Upper bounds on the size of a record in a batch, before the batch is known

# DefaultRecord.MAX_RECORD_OVERHEAD: length 5, attributes 1, timestamp delta 10, offset delta 5.
_MAX_LENGTH, _ATTRIBUTES, _MAX_TIMESTAMP_DELTA, _MAX_OFFSET_DELTA = 5, 1, 10, 5


# Everything except the key, the value and the headers.
MAX_RECORD_OVERHEAD = _MAX_LENGTH + _ATTRIBUTES + _MAX_TIMESTAMP_DELTA + _MAX_OFFSET_DELTA


def record_size_upper_bound(key_size: int, value_size: int, headers: Iterable[tuple[str, bytes | None]] = ()) -> int:
    """Returns the maximum size of one record in a batch. Sizes are -1 for null. It is at least the bound of the same row."""
    pairs = [(len(key.encode()), -1 if value is None else len(value)) for key, value in headers]
    size = MAX_RECORD_OVERHEAD + _sized(key_size) + _sized(value_size) + varint_sizes(len(pairs))
    return size + sum(_sized(key) + _sized(value) for key, value in pairs)


def _sized(length: int) -> int:
    return varint_sizes(length) + max(length, 0)


def size_upper_bounds(
    columns: RecordColumns, *, timestamp_range: int | None = None, max_offset_delta: int | None = None
) -> NDArray[np.int64]:
    """Returns the maximum size of each row's record in a batch, as Java's DefaultRecord.recordSizeUpperBound does per record.

    The bound is tighter if no timestamp is more than `timestamp_range` ms away from its batch's first one, or if no offset delta
    exceeds `max_offset_delta`.
    """
    key, value = columns.lengths("key"), columns.lengths("value")
    if columns.headers is None and (key is None or key.is_constant) and (value is None or value.is_constant):
        lengths = -1 if key is None else key.longest, -1 if value is None else value.longest
        bound = _bound_of_all(*lengths, columns.fixed_headers, timestamp_range, max_offset_delta)
        return repeated(bound, columns.num_records)
    bounds = _bounds(key, value, columns.headers, columns.fixed_headers, timestamp_range, max_offset_delta)
    return np.full(columns.num_records, bounds, np.int64) if isinstance(bounds, int) else bounds


@lru_cache(64)
def _bound_of_all(
    key: int, value: int, fixed_headers: FixedHeaders, timestamp_range: int | None, max_offset_delta: int | None
) -> int:
    """Returns the bound for rows whose keys have the length `key`, and whose values the length `value`; -1: null."""
    keys, values = (ByteLengths(repeated(length, 1), length, length) for length in (key, value))
    bound = _bounds(keys, values, None, fixed_headers, timestamp_range, max_offset_delta)
    assert isinstance(bound, int)
    return bound


def _bounds(
    key: ByteLengths | None,
    value: ByteLengths | None,
    headers: pa.Array | None,
    fixed_headers: FixedHeaders,
    timestamp_range: int | None,
    max_offset_delta: int | None,
) -> Lengths:
    timestamp = _MAX_TIMESTAMP_DELTA if timestamp_range is None else varint_sizes(-timestamp_range - 1)
    offset = _MAX_OFFSET_DELTA if max_offset_delta is None else varint_sizes(max_offset_delta)
    size = _Sizes(_ATTRIBUTES + timestamp + offset)
    size.add_column(key)
    size.add_column(value)
    fixed = fixed_header_views(fixed_headers, counted=False)
    if fixed is not None:
        size.add(fixed.longest)
    if headers is None:
        size.add(varint_sizes(len(fixed_headers)))
    else:
        size.add(varint_sizes(header_counts(headers) + len(fixed_headers)))
        size.add(header_sizes(headers))
    if timestamp_range is None and max_offset_delta is None:
        size.add(_MAX_LENGTH)
    else:
        size.add_varint(size.rows, size.least, size.greatest)
    return size.rows


class _Sizes:
    """A size for each row, or one for all, with bounds. Within the bounds most varints have one width, which needs no look at the
    rows: an append of 10,000 rows looked three times at each.
    """

    def __init__(self, constant: int) -> None:
        self.rows: Lengths = constant
        self.least = self.greatest = constant

    def add(self, sizes: Lengths) -> None:
        self.rows = self.rows + sizes
        if isinstance(sizes, int):
            self.least += sizes
            self.greatest += sizes
        elif len(sizes):
            self.least += int(sizes.min())
            self.greatest += int(sizes.max())

    def add_column(self, lengths: ByteLengths | None) -> None:
        """Adds a column's values, each with its varint."""
        if lengths is None:
            self.add(1)
            return
        shortest, longest = max(lengths.shortest, 0), max(lengths.longest, 0)
        if lengths.is_constant:
            self.rows = self.rows + longest
        else:
            self.rows = self.rows + (lengths.rows if lengths.shortest >= 0 else np.maximum(lengths.rows, 0))
        self.least += shortest
        self.greatest += longest
        self.add_varint(lengths.longest if lengths.is_constant else lengths.rows, lengths.shortest, lengths.longest)

    def add_varint(self, numbers: Lengths, least: int, greatest: int) -> None:
        """Adds the varints of numbers between `least`, at least -1, and `greatest`."""
        narrowest, widest = varint_sizes(least), varint_sizes(greatest)
        self.rows = self.rows + (widest if narrowest == widest or isinstance(numbers, int) else varint_sizes(numbers))
        self.least += narrowest
        self.greatest += widest
