"""A header says what the batch is, and its checksum holds for the payload in however many buffers it comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.records.batch_header import batch_header
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.small_batches import decode_batches


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_buffers_count_as_the_bytes_they_make_together(pieces: list[bytes]) -> None:
    def header(payload: list[bytes | memoryview]) -> bytes:
        return batch_header(record_count=1, first_timestamp=5, max_timestamp=5, codec=Codec.NONE, payload=payload)

    whole = b"".join(pieces)
    assert header([memoryview(piece) for piece in pieces]) == header([whole])
    (batch,) = decode_batches(header([whole]) + whole)
    assert bytes(batch.payload) == whole
