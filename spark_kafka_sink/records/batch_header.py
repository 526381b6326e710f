"""The 61 bytes before a batch's records, magic 2."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from spark_kafka_sink.records.compression import Buffer, Codec

HEADER_SIZE = 61
# base offset, length, leader epoch, magic, CRC: the checksum is over all that follows it.
UNCHECKED = struct.Struct(">qiibI")
# attributes, last offset delta, first and max timestamp, producer id and epoch, base sequence, records.
CHECKED = struct.Struct(">hiqqqhii")
SIZE_BEFORE_LENGTH = 12  # what the length field does not count: base offset and itself
MAGIC = 2
NO_TIMESTAMP = -1  # Kafka's RecordBatch.NO_TIMESTAMP: the time of append is used, or was not told
_TRANSACTIONAL = 1 << 4
_CONTROL = 1 << 5


def batch_header(
    *,
    record_count: int,
    first_timestamp: int,
    max_timestamp: int,
    codec: Codec,
    payload: Sequence[Buffer],
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """The header for `payload` (the records as they will be sent: compressed already), its length and CRC-32C filled in.

    The checksum reads every byte, just before they are sent. To take it while they are hot from encoding, and move it behind
    the header's by arithmetic, cost as much: 44 us of cold Python a batch.

    Base offset 0 and leader epoch -1, which the broker sets; CreateTime. Timestamps in ms, deltas counted from `first_timestamp`.
    """
    attributes = codec | (_TRANSACTIONAL if transactional else 0) | (_CONTROL if control else 0)
    checked = CHECKED.pack(
        attributes, record_count - 1, first_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count
    )
    size = HEADER_SIZE - SIZE_BEFORE_LENGTH
    crc = crc32c(checked)
    for buffer in payload:
        size += len(buffer)
        crc = crc32c(buffer, crc)
    return UNCHECKED.pack(0, size, -1, MAGIC, crc) + checked
