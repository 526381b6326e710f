"""Encodes columns to magic-2 records: all rows of an Arrow batch at once, ordered by partition, without Python per row.

A call has a fixed cost of about 100 us, so encode all partitions in one call. Far above 10,000 rows, page faults cost more than
that, so slice larger Arrow batches first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import RecordTooLargeError, UsageError
from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, bitmap, byte_lengths, offsets_of, valid_mask
from spark_kafka_sink.records.columns import FixedHeaders, RecordColumns
from spark_kafka_sink.records.concat import Lengths, Order, Views, column_views, concat_rows, keep_freed_memory
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


def header_counts(headers: pa.Array) -> NDArray[np.int64]:
    """Returns the number of headers per row; a null list has none."""
    offsets = offsets_of(headers)
    counts: NDArray[np.int64] = (offsets[1:] - offsets[:-1]).astype(np.int64, copy=False)
    valid = valid_mask(headers)
    return counts if valid is None else counts * valid


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
