"""The 61 bytes before a batch's records, magic 2."""

from __future__ import annotations

import struct

from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.crc import Payload, crc_with

HEADER_SIZE = 61
# base offset, length, leader epoch, magic, CRC: the checksum is over all that follows it.
UNCHECKED = struct.Struct(">qiibI")
# attributes, last offset delta, first and max timestamp, producer id and epoch, base sequence, records.
CHECKED = struct.Struct(">hiqqqhii")
SIZE_BEFORE_LENGTH = 12  # what the length field does not count: base offset and itself
MAGIC = 2
_TRANSACTIONAL = 1 << 4


def batch_header(
    *,
    record_count: int,
    first_timestamp: int,
    max_timestamp: int,
    codec: Codec,
    payload: Payload,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """The header for `payload` (the records as they will be sent: compressed already), its length and CRC-32C filled in.

    Base offset 0 and leader epoch -1, which the broker sets; CreateTime. Timestamps in ms, deltas counted from `first_timestamp`.
    """
    attributes = codec | (_TRANSACTIONAL if transactional else 0)
    checked = CHECKED.pack(
        attributes, record_count - 1, first_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count
    )
    size = HEADER_SIZE + payload.size - SIZE_BEFORE_LENGTH
    return UNCHECKED.pack(0, size, -1, MAGIC, crc_with(checked, payload)) + checked
