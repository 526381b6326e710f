"""Encodes a batch of a few records in plain Python, for records that a broker writes. Producers use encoder.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_kafka_sink.records.batch_header import batch_header
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_reader import Headers
from spark_kafka_sink.records.varints import varint


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to encode. `timestamp` is in ms."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


def small_batch(
    records: Sequence[NewRecord],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Returns an uncompressed batch at base offset 0 with at least one record. `control`: they are markers (KIP-98)."""
    first = records[0].timestamp
    payload = b"".join(_record(record, index, record.timestamp - first) for index, record in enumerate(records))
    header = batch_header(
        record_count=len(records),
        first_timestamp=first,
        max_timestamp=max(record.timestamp for record in records),
        codec=Codec.NONE,
        payload=[payload],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
    )
    return header + payload


def _record(record: NewRecord, offset_delta: int, timestamp_delta: int) -> bytes:
    body = b"".join(
        (
            b"\0",  # attributes
            varint(timestamp_delta),
            varint(offset_delta),
            _bytes(record.key),
            _bytes(record.value),
            varint(len(record.headers)),
            *(_bytes(key.encode()) + _bytes(value) for key, value in record.headers),
        )
    )
    return varint(len(body)) + body


def _bytes(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data
