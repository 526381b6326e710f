"""Tagged fields (KIP-482): the known ones take their place, the unknown ones are passed over, the malformed ones refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.apis.fetch import FETCH, FetchRequest
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS, ApiVersionsResponse
from spark_kafka_sink.protocol.messages import decode_request, decode_response, encode_request, encode_response
from spark_kafka_sink.protocol.values import write_unsigned_varint
from tests.every import every
from tests.limits import costs_at_most

PREFIX = bytes.fromhex("0000000100000100000000")
"""Correlation id, error code, no API keys, throttle time: what stands before the tagged fields."""


def read(tagged_fields: str) -> ApiVersionsResponse:
    return decode_response(API_VERSIONS, 3, PREFIX + bytes.fromhex(tagged_fields))[1]


def test_defaults_are_not_sent() -> None:
    assert b"".join(encode_response(API_VERSIONS, 3, 1, ApiVersionsResponse(0))) == PREFIX + b"\0"


def test_the_order_does_not_matter_to_the_reader() -> None:
    response = read("030902abcd03010101080000000000000007")

    assert (response.zk_migration_ready, response.finalized_features_epoch) == (True, 7)


@given(st.lists(st.tuples(st.integers(4, 2**32 - 1), st.binary(max_size=200)), max_size=5), st.integers(0, 5))
def test_unknown_ones_are_passed_over_wherever_they_stand(unknown: list[tuple[int, bytes]], at: int) -> None:
    known = (1, (7).to_bytes(8, "big"))
    fields = [*unknown[:at], known, *unknown[at:]]

    response = read(b"".join([varint(len(fields)), *(varint(tag) + varint(len(data)) + data for tag, data in fields)]).hex())

    assert response == ApiVersionsResponse(0, finalized_features_epoch=7)


def varint(value: int) -> bytes:
    out = bytearray()
    write_unsigned_varint(out, value)
    return bytes(out)


def test_many_unknown_ones_take_no_memory_and_little_time() -> None:
    """An object of each would take 18 MB."""
    data = PREFIX + varint(100_000) + b"\x09\0" * 100_000

    costs_at_most(lambda: decode_response(API_VERSIONS, 3, data), megabytes=0.1, seconds=0.1)


@every(
    "tagged_fields, complaint",
    [
        ("0203010103" + "0101", "tag 3 twice"),
        ("0109ffffffff0f61", r"4,294,967,295 bytes for a tagged field \(tag 9\), but only 1 is left"),
        ("ffffffff0f0901", "8,589,934,590 bytes for tagged fields, but only 2 are left"),
        ("0103020101", "zk_migration_ready: 1 unexpected bytes"),
        ("01010700000000000007", "tagged_fields.finalized_features_epoch: unexpected end of data"),
        ("01090261", r"2 bytes for a tagged field \(tag 9\), but only 1 is left"),
        ("01ffffffffff0f00", "a varint of more than 32 bits"),
        ("01ffffffff1f00", "a varint of more than 32 bits"),
        ("0180808080800000", "a varint of more than 32 bits"),
        ("01", "2 bytes for tagged fields, but only 0 are left"),
        ("", "unexpected end of data"),
    ],
)
def test_a_malformed_one_is_refused(tagged_fields: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        read(tagged_fields)


def test_a_nullable_one_may_say_null_and_is_not_sent_as_such() -> None:
    """Java reads it so; cluster_id of Fetch is the one that can."""
    data = b"".join(encode_request(FETCH, 18, 1, "c", FetchRequest()))
    assert data.endswith(b"\1\0")

    _, request = decode_request(data[:-1] + b"\1\0\1\0", ALL_APIS)

    assert request == FetchRequest()
    assert b"".join(encode_request(FETCH, 18, 1, "c", FetchRequest())) == data
