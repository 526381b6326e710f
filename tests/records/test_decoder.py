"""Batches from anyone: what is whole is read, all else is a protocol error that says where."""

from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.records.small_batches import decode_batches
from tests.every import every
from tests.examples import examples
from tests.records.making import batch_of, encode_all

RECORDS = [
    Record(0, 5000, b"key", b"value", (("h", b"1"), ("n", None))),
    Record(1, 4990, None, b"v" * 100),
    Record(2, 5010, b"", None),
]
# Offsets of fields in a batch.
LENGTH, EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, MAX_TIMESTAMP, COUNT, FIRST_RECORD = 8, 12, 16, 17, 21, 23, 35, 57, 61


def whole(codec: Codec = Codec.NONE) -> bytearray:
    return bytearray(batch_of(encode_all(RECORDS), np.array([record.timestamp for record in RECORDS]), codec))


def changed(place: int, layout: str, value: int, batch: bytearray | None = None) -> bytes:
    """A batch with one field changed and the checksum of that."""
    batch = whole() if batch is None else batch
    struct.pack_into(layout, batch, place, value)
    return signed(batch)


def signed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, CRC, crc32c(bytes(batch[ATTRIBUTES:])))
    return bytes(batch)


def payload_of(records: bytes) -> bytes:
    """A batch of these bytes as its records."""
    batch = whole()[:FIRST_RECORD] + records
    struct.pack_into(">i", batch, LENGTH, len(batch) - 12)
    struct.pack_into(">i", batch, COUNT, 1)
    return signed(batch)


@every("codec", Codec)
def test_batches_one_after_the_other_are_read_one_by_one(codec: Codec) -> None:
    batches = list(decode_batches(whole(codec) + whole(codec)))
    assert [batch.records() for batch in batches] == [RECORDS, RECORDS]
    assert sum(batch.size for batch in batches) == 2 * len(whole(codec))


def test_offsets_count_from_the_base_that_the_broker_set() -> None:
    batch = whole()
    struct.pack_into(">q", batch, 0, 1_000)  # outside the checksum, as the leader epoch
    struct.pack_into(">i", batch, EPOCH, 8)
    (read,) = decode_batches(batch)
    assert [record.offset for record in read.records()] == [1000, 1001, 1002]
    assert (read.base_offset, read.last_offset, read.leader_epoch) == (1000, 1002, 8)


def test_a_batch_the_broker_stamped_has_its_timestamp_everywhere() -> None:
    batch = whole()
    struct.pack_into(">q", batch, MAX_TIMESTAMP, 777)
    (read,) = decode_batches(changed(ATTRIBUTES, ">h", 1 << 3, batch))
    assert read.is_log_append_time
    assert [record.timestamp for record in read.records()] == [777] * 3


def test_a_marker_of_a_transaction_is_told_from_data() -> None:
    (read,) = decode_batches(changed(ATTRIBUTES, ">h", 1 << 5 | 1 << 4))
    assert (read.is_control, read.is_transactional) == (True, True)


def test_no_bytes_are_no_batches() -> None:
    assert list(decode_batches(b"")) == []


@pytest.mark.parametrize("missing", [1, 60, 100, len(whole()) - 30])  # the last one leaves half a header
def test_a_batch_cut_off_by_the_end_is_left_out_where_that_may_be(missing: int) -> None:
    data = bytes(whole() + whole()[:-missing])
    assert [batch.records() for batch in decode_batches(data, cut_off=True)] == [RECORDS]
    with pytest.raises(ProtocolError, match=f"a batch at byte {len(whole())} is .* bytes long, but only"):
        list(decode_batches(data))


@pytest.mark.fault("hostile bytes", "wrong CRC")
def test_a_changed_byte_is_a_wrong_checksum() -> None:
    batch = whole()
    batch[-1] ^= 1
    with pytest.raises(ProtocolError, match="batch at byte 0 is corrupt: its CRC-32C is"):
        list(decode_batches(batch))


@every(
    "place, layout, value, message",
    [
        (MAGIC, ">b", 1, "has magic 1, but only 2 is supported"),
        (LENGTH, ">i", 48, "48 bytes follow its length"),
        (LENGTH, ">i", -1, "-1 bytes follow its length"),
        (LENGTH, ">i", 2**31 - 1, "is 2,147,483,659 bytes long"),
        (ATTRIBUTES, ">h", 5, "unknown compression codec 5"),
    ],
)
def test_a_header_that_no_broker_sends_is_refused(place: int, layout: str, value: int, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        list(decode_batches(changed(place, layout, value)))


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (-1, "claims to have -1 records"),
        (2**31 - 1, "claims to have 2,147,483,647 records"),
        (2, "bytes after its 2 records"),
        (4, "ends in the middle of a number"),
    ],
)
def test_a_count_that_the_records_do_not_bear_out_is_refused(count: int, message: str) -> None:
    (batch,) = decode_batches(changed(COUNT, ">i", count))
    with pytest.raises(ProtocolError, match=message):
        batch.records()


# Length, attributes, timestamp delta, offset delta, key length, value length, header count: 6 bytes behind the length.
@every(
    "records, message",
    [
        (b"\x0e\x00\x00\x00\x01\x01\x00", "a record claims to be 7 bytes long, but only 6 are left"),
        (b"\x0a\x00\x00\x00\x01\x01\x00", "a record claims to be 5 bytes long, but its fields have 6"),
        (b"\x01\x00\x00\x00\x01\x01\x00", "a record claims to be -1 bytes long"),
        (b"\x00\x00\x00\x00\x01\x01\x00", "a record claims to be 0 bytes long"),
        (b"\x0c\x00\x00\x00\x7e\x01\x00", "a field claims to be 63 bytes long, but only 2 are left"),
        (b"\x0c\x00\x00\x00\x01\x7e\x00", "a field claims to be 63 bytes long, but only 1 is left"),
        (b"\x0c\x00\x00\x00\x01\x01\x01", "a record claims to have -1 headers"),
        (b"\x0c\x00\x00\x00\x01\x01\x02", "a record claims to have 1 header, but only 0 bytes are left"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", "a header has a null key"),
        (b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x00", "a header's key is not valid UTF-8"),
        (b"\x0c\x00\x00\x00\x01\x01\x80", "ends in the middle of a number"),
        (b"\x18\x00\x00\xff\xff\xff\xff\x7f\x01\x01\x00\x00\x00", "more than 32 bits"),
        (b"\x18\x00\x00\x80\x80\x80\x80\x80\x00\x01\x01\x00\x00", "more than 32 bits"),
        (b"\x22\x00" + b"\xff" * 10 + b"\x00\x00\x01\x01\x00\x00", "more than 64 bits"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(records: bytes, message: str) -> None:
    (batch,) = decode_batches(payload_of(records))
    with pytest.raises(ProtocolError, match=message):
        batch.records()


def test_a_null_is_any_negative_length_as_java_reads_it() -> None:
    (batch,) = decode_batches(payload_of(b"\x0c\x00\x00\x00\x03\x05\x00"))
    assert batch.records() == [Record(0, 5000, None, None)]


def test_records_over_the_limit_are_not_decompressed() -> None:
    (batch,) = decode_batches(whole(Codec.ZSTD))
    with pytest.raises(ProtocolError, match="more than the 50 bytes allowed"):
        list(batch.each_record(limit=50))


@settings(max_examples=examples(300), deadline=None)
@given(
    codec=st.sampled_from(Codec),
    edits=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4),
    tail=st.binary(max_size=80),
    sign=st.booleans(),
)
def test_any_bytes_are_records_or_a_protocol_error(codec: Codec, edits: list[tuple[int, int]], tail: bytes, sign: bool) -> None:
    batch = whole(codec)
    for place, byte in edits:
        batch[place % len(batch)] = byte
    if sign:
        signed(batch)
    with suppress(ProtocolError):
        for read in decode_batches(bytes(batch) + tail):
            assert len(list(read.each_record(limit=10_000))) == read.record_count
