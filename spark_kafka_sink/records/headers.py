"""Header columns: the headers of each row as one run of bytes, without a look at any single row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.records.joining import joined
from spark_kafka_sink.records.varints import varint_sizes, varints
from spark_kafka_sink.records.views import Order, Views, byte_lengths, column_views, offsets_of, valid_mask


def header_counts(headers: pa.Array) -> NDArray[np.int64]:
    """How many headers each row has; a null list has none."""
    offsets = offsets_of(headers)
    counts: NDArray[np.int64] = (offsets[1:] - offsets[:-1]).astype(np.int64, copy=False)
    valid = valid_mask(headers)
    return counts if valid is None else counts * valid


def header_sizes(headers: pa.Array) -> NDArray[np.int64]:
    """Bytes of each row's headers as they are in a record, without their count."""
    starts = _starts(headers, *_keys_and_values(headers))
    sizes = starts[1:] - starts[:-1]
    valid = valid_mask(headers)
    return sizes if valid is None else sizes * valid


def header_views(headers: pa.Array, order: Order) -> Views:
    """Each row's headers encoded, without their count; of a null list the length is -1.

    The rows' lists lie one after the other in Arrow's memory, so all headers are encoded in input order, and then each row's
    run of bytes is a value like any other.
    """
    keys, values = _keys_and_values(headers)
    starts = _starts(headers, keys, values)
    data = None
    if len(keys):
        key, value = column_views(keys, byte_lengths(keys), None), column_views(values, byte_lengths(values), None)
        data = joined(len(keys), [*varints(key.lengths), key, *varints(value.lengths), value], int(starts[-1]))
    # Arrow lets a null list own elements: they are encoded too, and nothing names them.
    valid = valid_mask(headers)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    encoded = pa.Array.from_buffers(pa.large_binary(), len(headers), [bitmap, pa.py_buffer(starts), data])
    return column_views(encoded, byte_lengths(encoded), order)


def _keys_and_values(headers: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Of all headers that this slice's rows lie over."""
    offsets = offsets_of(headers)
    first, end = int(offsets[0]), int(offsets[-1])
    pairs = headers.values.slice(first, end - first)
    return pairs.field("key"), pairs.field("value")


def _starts(headers: pa.Array, keys: pa.Array, values: pa.Array) -> NDArray[np.int64]:
    """Where each row's headers begin among all encoded ones (n+1 numbers)."""
    key_lengths, value_lengths = byte_lengths(keys).rows, byte_lengths(values).rows
    ends: NDArray[np.int64] = np.zeros(len(keys) + 1, np.int64)
    sizes = varint_sizes(key_lengths) + varint_sizes(value_lengths) + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    np.cumsum(sizes, out=ends[1:])
    offsets = offsets_of(headers)
    starts: NDArray[np.int64] = ends[offsets - offsets[0]]
    return starts
