"""No bytes make the decoder do more than raise a ProtocolError: no other exception, no large allocation, no invented message."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.apis.metadata import ApiVersionsResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import decode_request
from tests.every import every
from tests.protocol.golden_messages import Golden, boundary_messages
from tests.protocol.whole import decode, encode
from tests.tiers import whole_but

pytestmark = pytest.mark.slow

HOSTILE_LENGTHS = [
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", -(2**31)),
    struct.pack(">i", -2),
    struct.pack(">i", 100_000_000),
    struct.pack(">h", 2**15 - 1),
    struct.pack(">h", -(2**15)),
    struct.pack(">h", -1),
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x10",
    b"\xff\x7f",
    b"\0",
]
"""Lengths and counts in every notation: too large, negative, null; varints that do not end or do not fit 32 bits."""

LARGE = 1_000_000
"""The lengths above announce 100 MB and more. Other threads of this process allocate at the same time, and are counted too."""

MEASURED_VERSIONS = {"PRODUCE": (8, 13), "METADATA": (13,), "API_VERSIONS": (4,), "CREATE_TOPICS": (4,)}
MEASURED = [golden for golden in boundary_messages() if golden.version in MEASURED_VERSIONS.get(golden.api.name, ())]
"""Numbers, strings, arrays, records and tagged fields, in both notations: each position is tried with each length."""

SMALL_BYTES = [0, 1, 2, 0x7F, 0x80, 0xFF]
"""Bytes of which lengths, counts and tags are made that fit a short message: noise of these is read more often than any other."""


def read_any(golden: Golden, data: bytes) -> tuple[int, Message] | None:
    """Correlation id and body, if `data` was read as a message; what it may raise besides is only what says that it is none."""
    try:
        return decode(golden.api, golden.version, golden.kind, data)
    except ProtocolError:
        return None
    except UnsupportedVersionError:
        # The API key and version at the front of a request were overwritten.
        assert golden.kind == "request"
        return None


def written_again(golden: Golden, data: bytes) -> bytes | None:
    """`data` read as a message, and that message written; None where it is none."""
    read = read_any(golden, data)
    if read is None:
        return None
    if golden.kind == "request":
        header, body = decode_request(data, ALL_APIS)
        return encode(ALL_APIS[header.api_key], header.api_version, "request", header.correlation_id, header.client_id, body)
    correlation_id, body = read
    in_v0 = isinstance(body, ApiVersionsResponse) and body.error_code == ErrorCode.UNSUPPORTED_VERSION
    return encode(golden.api, 0 if in_v0 else golden.version, "response", correlation_id, None, body)


def assert_whole_or_refused(golden: Golden, data: bytes) -> None:
    """What is read is a message: it can be written, invents nothing, and means the same when it is read once more."""
    written = written_again(golden, data)
    if written is not None:
        # Shorter where a varint had more bytes than it needs or a tagged field its default; its tags may come in another order.
        assert len(written) <= len(data)
        assert written_again(golden, written) == written


@every("golden", boundary_messages())
def test_a_message_cut_anywhere_is_refused(golden: Golden) -> None:
    accepted = [size for size in range(len(golden.data)) if read_any(golden, golden.data[:size]) is not None]

    assert accepted == []


@every("golden", boundary_messages())
def test_bytes_behind_a_message_are_passed_over(golden: Golden) -> None:
    alone = decode(golden.api, golden.version, golden.kind, golden.data)
    assert decode(golden.api, golden.version, golden.kind, golden.data + b"\0") == alone


@pytest.mark.fault("hostile bytes", "negative or huge lengths of arrays and varints")
@pytest.mark.parametrize("golden", whole_but(boundary_messages(), MEASURED, "the same types of fields"), ids=str)
def test_a_hostile_length_anywhere_allocates_nothing_large(golden: Golden) -> None:
    read_any(golden, golden.data)
    tracemalloc.start()
    try:
        for at in range(len(golden.data)):
            for hostile in HOSTILE_LENGTHS:
                read_any(golden, golden.data[:at] + hostile + golden.data[at + len(hostile) :])
                read_any(golden, golden.data[:at] + hostile + golden.data[at + 1 :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < LARGE


@given(st.sampled_from(boundary_messages()), st.data())
def test_overwritten_bytes_are_a_whole_message_or_refused(golden: Golden, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(golden.data) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=8))

    assert_whole_or_refused(golden, golden.data[:at] + noise + golden.data[at + len(noise) :])


@given(st.sampled_from(boundary_messages()), st.data())
def test_noise_behind_any_beginning_is_a_whole_message_or_refused(golden: Golden, data: st.DataObject) -> None:
    begun = len(golden.data) - data.draw(st.integers(0, len(golden.data) - (8 if golden.kind == "request" else 4)))
    noise = data.draw(st.binary(max_size=300) | st.lists(st.sampled_from(SMALL_BYTES)).map(bytes))

    assert_whole_or_refused(golden, golden.data[:begun] + noise)


@every(
    "data, complaint",
    [
        ("", "request of 0 bytes cannot be decoded: it is shorter than a header"),
        ("0000000900000001", "client_id: unexpected end of data"),
        ("00000009000000010003", "client_id: 3 bytes for a string, but only 0 are left"),
        ("0000000900000001fffe00", "client_id: -2 is not a valid length"),
        ("0000000900000001ffff0000ffff0000000000", "topic_data: null is not a valid array"),
        (
            "0000000900000001ffff0000ffff00000000ffffffff070161",
            "topic_data: 6,442,450,938 bytes for an array of 2,147,483,646, but only 2 are left",
        ),
        (
            "0000000900000001ffff0000ffff000000000202740200000000640000",
            "topic_data.partition_data.records: 99 bytes for records, but only 2 are left",
        ),
        ("0000000900000001ffff0000ffff000000000200", "topic_data"),
        ("0000000900000001ffff0000ffff000000000202ff010000", "topic_data.name: not valid UTF-8"),
        ("0000000900000001ffff0000ffff000000000200010000", "topic_data.name: null is not a valid string"),
    ],
)
def test_the_complaint_names_the_field_and_what_is_wrong(data: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode_request(bytes.fromhex(data))
