"""Reads a log's file with kafka-python."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kafka.dumped import DumpedBatch, DumpedRecord

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas with importlib.resources.read_text
    from kafka.record.memory_records import MemoryRecords

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def read_log(segment: Path) -> Iterator[DumpedBatch]:
    """ValueError where the file does not end with a whole batch."""
    records = MemoryRecords(segment.read_bytes())
    while (batch := records.next_batch()) is not None:
        yield _batch(batch)
    if records.valid_bytes() != records.size_in_bytes():
        raise ValueError(f"{segment} has {records.size_in_bytes()} bytes, of which {records.valid_bytes()} are whole batches")


def _batch(batch: Any) -> DumpedBatch:
    valid = batch.validate_crc()
    return DumpedBatch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        count=batch.records_count,
        base_sequence=batch.base_sequence,
        last_sequence=batch.last_sequence,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        leader_epoch=batch.leader_epoch,
        transactional=batch.is_transactional,
        control=batch.is_control_batch,
        timestamp=batch.max_timestamp,
        size=batch.size_in_bytes,
        magic=batch.magic,
        codec=CODECS[batch.compression_type],
        valid=valid,
        records=[_record(batch, record) for record in batch],
    )


def _record(batch: Any, record: Any) -> DumpedRecord:
    sequence = batch.base_sequence if batch.base_sequence < 0 else batch.base_sequence + record.offset - batch.base_offset
    header_keys = ",".join(key for key, _ in record.headers)
    control = batch.is_control_batch  # whose key and value are the marker's type and version
    return DumpedRecord(
        record.offset,
        record.timestamp,
        sequence,
        header_keys,
        None if control else record.key,
        None if control else record.value,
    )
