"""Produce requests from prepared parts have the bytes that the codec writes field by field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import UnsupportedVersionError, UsageError
from spark_kafka_sink.protocol.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from spark_kafka_sink.protocol.fields import Buffer
from spark_kafka_sink.protocol.messages import LAST_BY_NAME, BatchParts, ProduceEncoder, encode_request
from tests.every import every

CLIENT_ID = "clïent"
TIMEOUT_MS = 1_234
BY_NAME = range(PRODUCE.min_version, LAST_BY_NAME + 1)

Topics = dict[str, list[BatchParts]]


def batch(partition: int, *payload: Buffer) -> BatchParts:
    header = b"h" * 61
    return partition, len(header) + sum(map(len, payload)), header, payload


def field_by_field(version: int, correlation_id: int, transactional_id: str | None, acks: int, topics: Topics) -> bytes:
    data = [
        TopicProduceData(
            name, partition_data=[PartitionProduceData(partition, [header, *rest]) for partition, _, header, rest in batches]
        )
        for name, batches in topics.items()
    ]
    request = ProduceRequest(transactional_id, acks, TIMEOUT_MS, data)
    return b"".join(encode_request(PRODUCE, version, correlation_id, CLIENT_ID, request))


SEVERAL: Topics = {
    "orders": [batch(0, b"abc"), batch(2**31 - 1, b"", b"de"), batch(7)],
    "t" * 249: [batch(number, b"x") for number in range(200)],
    "t": [batch(3, memoryview(bytes(size))) for size in (65, 66, 67, 16_321, 16_322, 16_323, 1 << 20, 1 << 22)],
    "one": [batch(1, b"a", b"b", bytearray(b"c"))],
}


@every("version", BY_NAME)
@every("transactional_id, acks", [(None, -1), (None, 0), ("tränsaction", 1), ("", -1)])
def test_the_bytes_are_those_of_the_codec(version: int, transactional_id: str | None, acks: int) -> None:
    encoder = ProduceEncoder(CLIENT_ID, acks, TIMEOUT_MS)
    for correlation_id in (0, 2**31 - 1):  # the second time from prepared parts
        buffers = encoder.encode(transactional_id, SEVERAL, version, correlation_id)
        assert b"".join(buffers) == field_by_field(version, correlation_id, transactional_id, acks, SEVERAL)


@given(
    versions=st.lists(st.sampled_from(BY_NAME), min_size=1, max_size=4),
    requests=st.lists(
        st.tuples(
            st.sampled_from([None, "a", "b"]),
            st.dictionaries(
                st.text("ab.-_", min_size=1, max_size=130),
                st.lists(st.builds(batch, st.integers(0, 2**31 - 1), st.binary(max_size=300)), min_size=1, max_size=4),
                min_size=1,
                max_size=130,
            ),
        ),
        max_size=5,
    ),
)
def test_one_encoder_serves_requests_of_any_version_transaction_and_topics(
    versions: list[int], requests: list[tuple[str | None, Topics]]
) -> None:
    encoder = ProduceEncoder(CLIENT_ID, -1, TIMEOUT_MS)
    for number, (transactional_id, topics) in enumerate(requests):
        version = versions[number % len(versions)]
        buffers = encoder.encode(transactional_id, topics, version, number)
        assert b"".join(buffers) == field_by_field(version, number, transactional_id, -1, topics)


@pytest.mark.parametrize("version", [3, 9])
def test_payloads_go_out_as_the_very_buffers_given(version: int) -> None:
    payload: list[Buffer] = [memoryview(bytearray(b"first")), b"second", bytearray(b"third")]

    buffers = ProduceEncoder(CLIENT_ID, -1, TIMEOUT_MS).encode(None, {"t": [batch(0, *payload)]}, version, 1)

    assert [id(buffer) for buffer in buffers[1:4]] == list(map(id, payload))


@pytest.mark.parametrize("version", [PRODUCE.min_version - 1, LAST_BY_NAME + 1])
def test_a_version_without_topic_names_or_not_spoken_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"PRODUCE v{version} is not supported; v3 to v12 are"):
        ProduceEncoder(CLIENT_ID, -1, TIMEOUT_MS).encode(None, SEVERAL, version, 1)


def test_a_value_that_does_not_fit_is_refused() -> None:
    encoder = ProduceEncoder(CLIENT_ID, -1, TIMEOUT_MS)
    with pytest.raises(UsageError, match="transactional_id: the length 32,768 exceeds the limit"):
        encoder.encode("x" * 32_768, SEVERAL, 8, 1)
    with pytest.raises(UsageError, match=r"topic .* cannot be encoded: name: the length 32,768 exceeds the limit"):
        encoder.encode(None, {"x" * 32_768: [batch(0)]}, 8, 1)
