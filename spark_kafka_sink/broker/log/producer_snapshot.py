"""Producers as a file, in the format of Kafka's ProducerSnapshot.json, version 1."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from crc32c import crc32c

from spark_kafka_sink.broker.log.producer_state_entry import BatchMetadata, ProducerStateEntry

_VERSION = 1
_HEAD = struct.Struct(">hI")  # version, CRC-32C of all that follows
_COUNT = struct.Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of the transaction
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshotError(ValueError):
    """The file is not what it should be; the state has to be read from the log."""


def snapshot_bytes(entries: Iterable[ProducerStateEntry]) -> bytes:
    """Of each producer the last batch only: that is all the format has."""
    packed = [_packed(entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def parse_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """The inverse. Raises CorruptSnapshotError."""
    try:
        version, crc = _HEAD.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
    except struct.error:
        raise CorruptSnapshotError(f"a snapshot of {len(data)} bytes has no header") from None
    if version != _VERSION:
        raise CorruptSnapshotError(f"a snapshot has the unknown version {version}")
    if crc32c(data[_HEAD.size :]) != crc:
        raise CorruptSnapshotError("a snapshot's CRC-32C is wrong")
    start = _HEAD.size + _COUNT.size
    if len(data) - start != count * _ENTRY.size:
        raise CorruptSnapshotError(f"a snapshot of {count} producers has {len(data) - start} bytes for them")
    return [_parsed(*fields) for fields in _ENTRY.iter_unpack(data[start:])]


def _packed(entry: ProducerStateEntry) -> bytes:
    first = entry.current_txn_first_offset
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_seq,
        entry.last_data_offset,
        entry.last_offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        -1 if first is None else first,
    )


def _parsed(
    producer_id: int, epoch: int, sequence: int, offset: int, delta: int, timestamp: int, coordinator_epoch: int, first: int
) -> ProducerStateEntry:
    entry = ProducerStateEntry(producer_id, epoch, coordinator_epoch, timestamp, first if first >= 0 else None)
    if offset >= 0:
        entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
    return entry
