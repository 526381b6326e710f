"""The largest message of each API that a peer may send costs no more than 64 MB and a second, whatever its arrays hold."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.apis.metadata import METADATA, MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from spark_kafka_sink.protocol.messages import decode_request, decode_response, encode_response
from tests.limits import MEGABYTES, SECONDS, costs_at_most
from tests.protocol.whole import encode
from tests.protocol.worst_messages import Path, array_paths, worst_message
from tests.tiers import whole_but

pytestmark = pytest.mark.slow

SAMPLE = 200_000
"""Bytes of the message that is measured. Readers take each element in turn, so memory and time grow with the size."""

USED = (
    "PRODUCE",
    "FETCH",
    "LIST_OFFSETS",
    "METADATA",
    "FIND_COORDINATOR",
    "API_VERSIONS",
    "CREATE_TOPICS",
    "ADD_PARTITIONS_TO_TXN",
    "DESCRIBE_CONFIGS",
    "DESCRIBE_PRODUCERS",
    "DESCRIBE_TRANSACTIONS",
    "LIST_TRANSACTIONS",
)
"""The APIs of clients whose responses have arrays, each with a limit or an array of its own kind."""


def data_of(api: AnyApi, kind: str, path: Path, count: int) -> bytes:
    cls = api.request if kind == "request" else api.response
    return encode(api, api.max_version, kind, 1, "c", worst_message(cls, api.max_version, path, count))


def element_size(api: AnyApi, kind: str, path: Path) -> float:
    return (len(data_of(api, kind, path, 2_000)) - len(data_of(api, kind, path, 1_000))) / 1_000


def worst_array(api: AnyApi, kind: str) -> tuple[Path, float]:
    """The array with the smallest elements, and their size. A struct takes an object of its own, a number half as much."""
    cls = api.request if kind == "request" else api.response
    sizes = {path: element_size(api, kind, path) for path in array_paths(cls, api.max_version)}
    path = min(sizes, key=sizes.__getitem__)
    return path, sizes[path]


def read(api: AnyApi, kind: str, data: bytes) -> None:
    if kind == "request":
        decode_request(data, ALL_APIS)
    else:
        decode_response(api, api.max_version, data)


@pytest.mark.parametrize(
    "name", whole_but(USED, {"PRODUCE", "FETCH", "METADATA", "FIND_COORDINATOR"}, "the same reader, with other fields")
)
def test_the_largest_response_of_an_api_costs_at_most_64_mb_and_a_second(name: str) -> None:
    api = ALL_APIS[ApiKey[name]]
    path, size = worst_array(api, "response")
    data = data_of(api, "response", path, int(SAMPLE / size))
    part = len(data) / api.max_response_bytes

    # The frame itself takes memory as well.
    megabytes = (MEGABYTES - api.max_response_bytes / 1_000_000) * part
    costs_at_most(lambda: read(api, "response", data), megabytes=megabytes, seconds=SECONDS * part)


@pytest.mark.parametrize(
    "name",
    whole_but(
        ["PRODUCE", "METADATA", "LEAVE_GROUP", "CREATE_PARTITIONS", "OFFSET_COMMIT"],
        {"PRODUCE", "METADATA"},
        "the same reader, with other fields",
    ),
)
def test_a_request_of_a_megabyte_costs_at_most_64_mb_and_a_second(name: str) -> None:
    api = ALL_APIS[ApiKey[name]]
    path, size = worst_array(api, "request")
    data = data_of(api, "request", path, int(SAMPLE / size))
    part = len(data) / 1_000_000

    costs_at_most(lambda: read(api, "request", data), megabytes=MEGABYTES * part, seconds=SECONDS * part)


def test_metadata_of_a_large_cluster_is_within_its_limit() -> None:
    partitions = [
        MetadataResponsePartition(0, number, number % 300, 5, [1_000, 1_001, 1_002], [1_000, 1_001, 1_002], [])
        for number in range(80_000)
    ]
    body = MetadataResponse(topics=[MetadataResponseTopic(0, "topic", partitions=partitions)])
    assert len(b"".join(encode_response(METADATA, METADATA.max_version, 1, body))) < METADATA.max_response_bytes


@pytest.mark.parametrize("count", [2**31 - 2, 10_000_000, 5_000])
def test_a_count_beyond_the_rest_of_a_frame_is_refused_before_anything_is_allocated(count: int) -> None:
    data = bytearray(encode(METADATA, 8, "response", 1, None, MetadataResponse()))
    data[8:12] = count.to_bytes(4, "big")  # of brokers, behind the correlation id and the throttle time

    def refused() -> None:
        with pytest.raises(ProtocolError, match=f"an array of {count:,}"):
            decode_response(METADATA, 8, data)

    costs_at_most(refused, megabytes=0.5, seconds=0.1)
