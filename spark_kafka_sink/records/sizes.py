"""Upper bounds on the size of a record in a batch, before the batch is known."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.records.arrow_arrays import ByteLengths, repeated
from spark_kafka_sink.records.columns import FixedHeaders, RecordColumns
from spark_kafka_sink.records.concat import Lengths
from spark_kafka_sink.records.encoder import fixed_header_views, header_counts, header_sizes
from spark_kafka_sink.records.varints import varint_sizes

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
