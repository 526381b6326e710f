"""Adds headers to some rows of a column of headers, and removes some. Headers of all rows are `RecordColumns.fixed_headers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.records.arrow_arrays import array_of_bytes, array_of_numbers, validity
from spark_kafka_sink.records.columns import FixedHeaders
from spark_kafka_sink.records.encoder import header_counts

LIST_OF_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def with_headers(headers: pa.Array | None, added: FixedHeaders, rows: NDArray[np.bool_]) -> pa.Array:
    """Returns the headers of each row, with more of them at the end in some rows.

    Args:
        headers: as in RecordColumns; None: no row has any.
        added: the headers to add.
        rows: shape (num_records,); True where they are added.
    """
    if headers is None:
        headers = pa.nulls(len(rows), LIST_OF_HEADERS)
    kind, own = headers.type, headers.flatten()
    pair = kind.value_type
    new = pa.StructArray.from_arrays(
        [
            array_of_bytes([key.encode() for key, _ in added], pair.field("key").type),
            array_of_bytes([value for _, value in added], pair.field("value").type),
        ],
        fields=list(pair),
    )
    counts = header_counts(headers) + len(added) * rows
    offsets = np.zeros(len(rows) + 1, np.int64 if pa.types.is_large_list(kind) else np.int32)
    np.cumsum(counts, out=offsets[1:])
    # The place of each header among `own`, and after these `new`.
    places = np.full(int(offsets[-1]), -1, np.int64)
    last = offsets[1:][rows]
    for number in range(len(added)):
        places[last - len(added) + number] = len(own) + number
    return _merged(kind, own, new, offsets, places)


def with_header_column(headers: pa.Array | None, name: str, values: pa.Array) -> pa.Array:
    """Returns the headers of each row, with one more at the end in rows that have a value for it.

    Args:
        headers: as in RecordColumns; None: no row has any.
        name: the header's name.
        values: string or binary; null in rows without the header.
    """
    if headers is None:
        headers = pa.nulls(len(values), LIST_OF_HEADERS)
    kind, own = headers.type, headers.flatten()
    pair = kind.value_type
    rows, given = validity(values), values.drop_null()
    key = array_of_bytes([name.encode()], pair.field("key").type)[0]
    new = pa.StructArray.from_arrays([pa.repeat(key, len(given)), given.cast(pair.field("value").type)], fields=list(pair))
    offsets = np.zeros(len(rows) + 1, np.int64 if pa.types.is_large_list(kind) else np.int32)
    np.cumsum(header_counts(headers) + rows, out=offsets[1:])
    places = np.full(int(offsets[-1]), -1, np.int64)
    places[offsets[1:][rows] - 1] = len(own) + np.arange(len(given))
    return _merged(kind, own, new, offsets, places)


def _merged(kind: pa.DataType, own: pa.Array, new: pa.Array, offsets: NDArray[Any], places: NDArray[np.int64]) -> pa.Array:
    """Returns lists of headers. places: that of each header among `own` and then `new`; -1: the next one of `own`."""
    places[places < 0] = np.arange(len(own))
    items = pa.concat_arrays([own, new]).take(array_of_numbers(places))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets)], children=[items])


def without_headers(headers: pa.Array, names: Sequence[str]) -> pa.Array:
    """Returns the headers of each row without those of some names.

    Args:
        headers: as in RecordColumns.
        names: the names to remove.
    """
    kind, own = headers.type, headers.flatten()
    removed = pc.is_in(own.field("key"), array_of_bytes([name.encode() for name in names], kind.value_type.field("key").type))
    if not pc.any(removed).as_py():
        return headers
    kept = ~removed.to_numpy(zero_copy_only=False)
    ends = np.cumsum(header_counts(headers), dtype=np.int64)
    offsets = np.zeros(len(headers) + 1, np.int64 if pa.types.is_large_list(kind) else np.int32)
    offsets[1:] = np.concatenate(([0], np.cumsum(kept)))[ends]
    items = own.filter(pc.invert(removed))
    return pa.Array.from_buffers(kind, len(headers), [None, pa.py_buffer(offsets)], children=[items])
