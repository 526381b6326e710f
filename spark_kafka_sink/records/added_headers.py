"""Adds headers to some rows of a column of headers. Headers of all rows are `RecordColumns.fixed_headers`."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.records.arrow_arrays import array_of_bytes, array_of_numbers
from spark_kafka_sink.records.columns import FixedHeaders
from spark_kafka_sink.records.encoder import header_counts

_LIST_OF_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def with_headers(headers: pa.Array | None, added: FixedHeaders, rows: NDArray[np.bool_]) -> pa.Array:
    """Returns the headers of each row, with more of them at the end in some rows.

    Args:
        headers: as in RecordColumns; None: no row has any.
        added: the headers to add.
        rows: shape (num_records,); True where they are added.
    """
    if headers is None:
        headers = pa.nulls(len(rows), _LIST_OF_HEADERS)
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
    places[places < 0] = np.arange(len(own))
    items = pa.concat_arrays([own, new]).take(array_of_numbers(places))
    return pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(offsets)], children=[items])
