"""A header says what the batch is, and its checksum holds for the payload in however many buffers it comes."""

from __future__ import annotations

import struct

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.records.batch_header import HEADER_SIZE, batch_header
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.decoder import decode_batches
from tests.every import every


def test_every_field_is_where_kafka_reads_it() -> None:
    header = batch_header(
        record_count=7,
        first_timestamp=1000,
        max_timestamp=2000,
        codec=Codec.LZ4,
        payload=[b"payload"],
        producer_id=42,
        producer_epoch=3,
        base_sequence=99,
        transactional=True,
    )
    fields = struct.unpack(">qiibIhiqqqhii", header)
    assert len(header) == HEADER_SIZE == 61
    assert fields == (0, 49 + 7, -1, 2, crc32c(header[21:] + b"payload"), 0b10011, 6, 1000, 2000, 42, 3, 99, 7)


def test_without_a_producer_state_the_batch_has_none() -> None:
    header = batch_header(record_count=1, first_timestamp=0, max_timestamp=0, codec=Codec.NONE, payload=[])
    assert struct.unpack(">qhi", header[43:57]) == (-1, -1, -1)
    assert header[21:23] == b"\x00\x00"


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_buffers_count_as_the_bytes_they_make_together(pieces: list[bytes]) -> None:
    def header(payload: list[bytes | memoryview]) -> bytes:
        return batch_header(record_count=1, first_timestamp=5, max_timestamp=5, codec=Codec.NONE, payload=payload)

    whole = b"".join(pieces)
    assert header([memoryview(piece) for piece in pieces]) == header([whole])
    (batch,) = decode_batches(header([whole]) + whole)
    assert bytes(batch.payload) == whole


@every("codec", Codec)
def test_the_codec_is_the_lowest_bits_of_the_attributes(codec: Codec) -> None:
    header = batch_header(record_count=1, first_timestamp=0, max_timestamp=0, codec=codec, payload=[])
    assert header[21:23] == bytes([0, codec])
