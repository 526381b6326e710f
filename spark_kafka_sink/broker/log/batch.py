"""The header of a stored batch, read without its records, and the transaction markers of control batches."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from spark_kafka_sink.options.option import INT32_MAX
from spark_kafka_sink.records.batch_header import CHECKED, HEADER_SIZE, MAGIC, SIZE_BEFORE_LENGTH, UNCHECKED, AttributeBits
from spark_kafka_sink.records.compression import Buffer


class _Fields(NamedTuple):
    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class BatchHeader(_Fields, AttributeBits):
    """Kafka's RecordBatch, magic 2. `size` counts the whole batch, header included."""

    __slots__ = ()

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The last sequence number; -1 if the batch has none. The numbers wrap to 0 after 2^31 - 1 (incrementSequence)."""
        return -1 if self.base_sequence < 0 else (self.base_sequence + self.last_offset_delta) % (INT32_MAX + 1)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    def unchecked_bytes(self) -> bytes:
        """Returns the bytes before the checksummed part, checksum included."""
        return UNCHECKED.pack(self.base_offset, self.size - SIZE_BEFORE_LENGTH, self.leader_epoch, self.magic, self.crc)

    def checked_bytes(self) -> bytes:
        """Returns the rest of the header, which the checksum covers."""
        return CHECKED.pack(*self[5:])


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header at `position`. At least 61 bytes must be there; the caller checks whether it makes sense."""
    base_offset, length, leader_epoch, magic, crc = UNCHECKED.unpack_from(data, position)
    checked = CHECKED.unpack_from(data, position + UNCHECKED.size)
    return BatchHeader(base_offset, length + SIZE_BEFORE_LENGTH, leader_epoch, magic, crc, *checked)


def is_whole(header: BatchHeader, available: int) -> bool:
    """Returns whether a batch can start with this header if `available` bytes are left."""
    return header.magic == MAGIC and HEADER_SIZE <= header.size <= available


def is_valid(header: BatchHeader, batch: Buffer) -> bool:
    """Returns whether the checksum of the whole `batch` is right."""
    return crc32c(memoryview(batch)[UNCHECKED.size : header.size]) == header.crc


_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_ABORT, _COMMIT = 0, 1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of a producer's transaction, to be written to each partition of the transaction."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int

    def key(self) -> bytes:
        return _KEY.pack(0, _COMMIT if self.committed else _ABORT)

    def value(self) -> bytes:
        return _VALUE.pack(0, self.coordinator_epoch)


def parse_marker(producer_id: int, producer_epoch: int, key: bytes | None, value: bytes | None) -> EndTransactionMarker | None:
    """Parses a control record. Returns None for another kind or an unknown version."""
    if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    version, kind = _KEY.unpack_from(key)
    value_version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0 or value_version < 0 or kind not in (_ABORT, _COMMIT):
        return None
    return EndTransactionMarker(producer_id, producer_epoch, kind == _COMMIT, coordinator_epoch)
