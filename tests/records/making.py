"""Columns out of Python rows, and whole batches out of columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.records.batch_header import batch_header
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.compression import Codec, compress
from spark_kafka_sink.records.encoder import EncodedRecords, encode_records
from spark_kafka_sink.records.record_reader import Headers, Record

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def header_rows(headers: Sequence[Headers | None]) -> list[list[dict[str, object]] | None]:
    return [None if row is None else [{"key": key, "value": value} for key, value in row] for row in headers]


def columns_of(records: Sequence[Record]) -> RecordColumns:
    headers = [record.headers for record in records]
    return RecordColumns(
        num_records=len(records),
        key=pa.array([record.key for record in records], pa.binary()),
        value=pa.array([record.value for record in records], pa.binary()),
        headers=pa.array(header_rows(headers), HEADERS) if any(headers) else None,
    )


def encode_all(records: Sequence[Record]) -> EncodedRecords:
    """As one batch that begins at offset 0 with the first record's timestamp."""
    offsets = np.array([record.offset for record in records], np.int32)
    deltas = np.array([record.timestamp - records[0].timestamp for record in records], np.int64)
    return encode_records(columns_of(records), None, offsets, deltas)


def batch_of(
    encoded: EncodedRecords, timestamps: NDArray[np.int64], codec: Codec = Codec.NONE, level: int = 0, **producer: int
) -> bytes:
    payload = compress(codec, level, [encoded.data])
    header = batch_header(
        record_count=len(timestamps),
        first_timestamp=int(timestamps[0]),
        max_timestamp=int(timestamps.max()),
        codec=codec,
        payload=[payload],
        **producer,  # type: ignore[arg-type]
    )
    return header + payload
