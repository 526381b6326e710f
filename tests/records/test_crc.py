"""A checksum of header and records, put together from those of each."""

from __future__ import annotations

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.records.crc import Payload, crc_with


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.lists(st.binary(max_size=300), max_size=5))
def test_both_together_have_the_checksum_of_their_bytes_in_a_row(first: bytes, buffers: list[bytes]) -> None:
    whole = b"".join(buffers)
    assert Payload.of(buffers) == Payload(len(whole), crc32c(whole))
    assert crc_with(first, Payload.of(buffers)) == crc32c(first + whole)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 3_000_000))
def test_whatever_the_size(first: bytes, size: int) -> None:
    second = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert crc_with(first, Payload.of([second])) == crc32c(first + second)
