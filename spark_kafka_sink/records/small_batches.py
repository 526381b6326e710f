"""Encodes and decodes batches one record at a time, for the commit log, the broker, small reads and tests.

Producers use encoder.py. Any input bytes are safe.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from crc32c import crc32c

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.records.batch_header import (
    CHECKED,
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC,
    SIZE_BEFORE_LENGTH,
    UNCHECKED,
    AttributeBits,
    batch_header,
)
from spark_kafka_sink.records.compression import Buffer, Codec, decompress
from spark_kafka_sink.records.record_reader import Headers, Record, read_record
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


# Some codecs need twice this at times. Batches are far smaller: a producer's default is 16 KiB, the largest here 1 MiB.
MAX_DECOMPRESSED = 24 * 1024 * 1024
_LEAST_RECORD = 7  # seven one-byte numbers: an empty record without a key and headers

_LAST_CODEC = max(Codec)  # checking each one took a quarter of the time of a small batch


@dataclass(frozen=True, slots=True)
class FetchedBatch(AttributeBits):
    """A batch of a log: the fields of its header, and its records as stored (`payload`, possibly compressed)."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    payload: memoryview

    @property
    def codec(self) -> Codec:
        return Codec(self.codec_id)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def size(self) -> int:
        """The size in the log in bytes, including the header."""
        return HEADER_SIZE + len(self.payload)

    def records(self) -> list[Record]:
        """Returns all records, for batches that are known to be small. Raises ProtocolError, as `each_record` does."""
        return list(self.each_record())

    def each_record(self, limit: int = MAX_DECOMPRESSED) -> Iterator[Record]:
        """Yields the records. Raises ProtocolError if they contradict the header or exceed `limit` bytes in total.

        All at once would take 30 times their bytes if they are empty, so a few kilobytes that decompress well could fill memory.
        """
        data = decompress(self.codec, self.payload, limit)
        if not 0 <= self.record_count <= len(data) // _LEAST_RECORD:
            raise ProtocolError(f"a batch of {counted(len(data), 'byte')} claims to have {counted(self.record_count, 'record')}")
        stamp = self.max_timestamp if self.is_log_append_time else None
        position = 0
        for _ in range(self.record_count):
            record, position = read_record(data, position, self.base_offset, self.first_timestamp, stamp)
            yield record
        if position != len(data):
            left = counted(len(data) - position, "byte")
            raise ProtocolError(f"a batch has {left} after its {counted(self.record_count, 'record')}")


def decode_batches(data: Buffer, *, cut_off: bool = False) -> Iterator[FetchedBatch]:
    """Yields the consecutive batches in `data` and checks their CRC-32C. Raises ProtocolError for other than magic-2 batches.

    `cut_off`: the last batch may be incomplete, as in a Fetch response, and is then skipped.
    """
    view = memoryview(data).cast("B")
    position = 0
    while position < len(view):
        size = _whole_size(view[position:])
        if size > len(view) - position:
            if cut_off:
                return
            left = counted(len(view) - position, "is", "are")
            raise ProtocolError(f"a batch at byte {position} is {counted(size, 'byte')} long, but only {left} left")
        yield _decode(view[position : position + size], position)
        position += size


# The key of a marker: version 0, then the type (ControlRecordType).
ABORT: Final = b"\x00\x00\x00\x00"
COMMIT: Final = b"\x00\x00\x00\x01"


class Aborted(Protocol):
    """An aborted transaction in one partition."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


def committed(
    data: Buffer, aborted: Iterable[Aborted] | None, position: int, limit: int = MAX_DECOMPRESSED
) -> Iterator[tuple[Record | None, int]]:
    """Yields each record at or after `position` with the next offset, and None with the next offset at the end of each batch.

    aborted: None as empty. limit: of a batch, in bytes. Raises ProtocolError if the data is invalid.
    """
    begun = sorted(aborted or (), key=lambda each: each.first_offset)
    producers = set[int]()  # whose records are being dropped
    for batch in decode_batches(data, cut_off=True):
        while begun and begun[0].first_offset <= batch.last_offset:
            producers.add(begun.pop(0).producer_id)
        if batch.is_control:
            marker = next(batch.each_record(), None)  # None where compaction has removed it
            if marker is not None and marker.key == ABORT:
                producers.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in producers):
            for record in batch.each_record(limit):
                if record.offset >= position:
                    yield record, record.offset + 1
        # Compaction removes records, even the last one, but a batch's end stays.
        yield None, max(position, batch.last_offset + 1)


def _whole_size(rest: memoryview) -> int:
    """Returns the size of the batch that begins here; at least that of a header, which suffices to see that it is cut off."""
    if len(rest) < HEADER_SIZE:
        return HEADER_SIZE
    length: int = struct.unpack_from(">i", rest, 8)[0]
    if length < HEADER_SIZE - SIZE_BEFORE_LENGTH:
        follow = counted(length, "byte follows", "bytes follow")
        raise ProtocolError(f"a batch claims that {follow} its length, which is fewer than its header needs")
    return length + SIZE_BEFORE_LENGTH


def _decode(batch: memoryview, position: int) -> FetchedBatch:
    base_offset, _, leader_epoch, magic, crc = UNCHECKED.unpack_from(batch)
    if magic != MAGIC:
        raise ProtocolError(f"a batch at byte {position} has magic {magic}, but only {MAGIC} is supported (Kafka 0.11 and later)")
    actual = crc32c(batch[UNCHECKED.size :])
    if actual != crc:
        raise ProtocolError(
            f"a batch at byte {position} is corrupt: its CRC-32C is {actual:#010x}, but its header has {crc:#010x}"
        )
    attributes, last, first_ms, max_ms, producer_id, epoch, sequence, count = CHECKED.unpack_from(batch, UNCHECKED.size)
    if attributes & CODEC_MASK > _LAST_CODEC:
        raise ProtocolError(f"a batch at byte {position} has the unknown compression codec {attributes & CODEC_MASK}")
    return FetchedBatch(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=last,
        first_timestamp=first_ms,
        max_timestamp=max_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
        payload=batch[HEADER_SIZE:],
    )
