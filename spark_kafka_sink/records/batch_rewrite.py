"""Rewrites records that were encoded for one batch for others: the deltas change, the other bytes stay the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.records.arrow_arrays import byte_lengths
from spark_kafka_sink.records.concat import column_views, concat_rows
from spark_kafka_sink.records.encoder import EncodedRecords, body_sizes, record_offsets
from spark_kafka_sink.records.record_reader import ATTRIBUTES_SIZE, INT_BITS, LONG_BITS, read_varint
from spark_kafka_sink.records.varints import ZERO_BYTE, packed_sizes, varints


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
