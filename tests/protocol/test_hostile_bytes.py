"""No bytes make the decoder do more than raise a ProtocolError: no other exception, no large allocation, no silent acceptance."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError
from spark_kafka_sink.protocol.messages import decode_request
from tests.protocol.golden_messages import Golden, golden_messages
from tests.protocol.whole import decode

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


def read_any(golden: Golden, data: bytes) -> bool:
    """Whether `data` was read as a message; what it may raise besides is only what says that it is none."""
    try:
        decode(golden.api, golden.version, golden.kind, data)
    except ProtocolError:
        return False
    except UnsupportedVersionError:
        # The API key and version at the front of a request were overwritten.
        assert golden.kind == "request"
        return False
    return True


@pytest.mark.parametrize("golden", golden_messages(), ids=str)
def test_a_message_cut_anywhere_is_refused(golden: Golden) -> None:
    accepted = [size for size in range(len(golden.data)) if read_any(golden, golden.data[:size])]

    assert accepted == []


@pytest.mark.parametrize("golden", golden_messages(), ids=str)
def test_bytes_behind_the_message_are_refused(golden: Golden) -> None:
    with pytest.raises(ProtocolError, match=rf"it ends at {len(golden.data):,}"):
        decode(golden.api, golden.version, golden.kind, golden.data + b"\0")


@pytest.mark.parametrize("golden", golden_messages(), ids=str)
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

    assert peak < 100_000


@given(st.sampled_from(golden_messages()), st.data())
def test_overwritten_bytes_are_read_or_refused(golden: Golden, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(golden.data) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=8))

    read_any(golden, golden.data[:at] + noise + golden.data[at + len(noise) :])


@given(st.sampled_from(golden_messages()), st.binary(max_size=300))
def test_noise_behind_a_header_is_read_or_refused(golden: Golden, noise: bytes) -> None:
    read_any(golden, golden.data[: 8 if golden.kind == "request" else 4] + noise)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("", "request of 0 bytes cannot be read: it is shorter than a header"),
        ("0000000900000001", "client_id: the data ends here"),
        ("00000009000000010003", "client_id: 3 bytes for a string where 0 are left"),
        ("0000000900000001fffe00", "client_id: a length of -2"),
        ("0000000900000001ffff0000ffff0000000000", "topic_data: null where an array must be"),
        (
            "0000000900000001ffff0000ffff00000000ffffffff070161",
            "topic_data: 6,442,450,938 bytes for an array of 2,147,483,646 where 2 are left",
        ),
        (
            "0000000900000001ffff0000ffff000000000202740200000000640000",
            "topic_data.partition_data.records: 99 bytes for records where 2 are left",
        ),
        ("0000000900000001ffff0000ffff000000000200", "topic_data"),
        ("0000000900000001ffff0000ffff000000000202ff010000", "topic_data.name: not UTF-8"),
        ("0000000900000001ffff0000ffff000000000200010000", "topic_data.name: null where a string must be"),
    ],
)
def test_the_complaint_names_the_field_and_what_is_wrong(data: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode_request(bytes.fromhex(data))
