"""No request is larger than max.request.size, whatever was expected of the compression: some gateways close the connection."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.mock_cluster import MockCluster
from tests.faults.producing import producer_on, send

PARTITIONS = 40
REQUEST = 300_000  # bytes


def values(value: bytes, *, changing: bool = False) -> RecordColumns:
    """One for each partition."""
    own = [os.urandom(len(value)) if changing else value for _ in range(PARTITIONS)]
    return RecordColumns(PARTITIONS, value=pa.array(own), partition=np.arange(PARTITIONS, dtype=np.int32))


@pytest.mark.parametrize("codec", ["zstd", "lz4", "snappy", "gzip"])
def test_records_that_compress_worse_than_those_before_go_in_more_requests(cluster: MockCluster, codec: str) -> None:
    cluster.topic("t", leaders=[0] * PARTITIONS)
    with producer_on(cluster.bootstrap_servers, compression_type=codec, max_request_size=REQUEST) as producer:
        for _ in range(3):
            send(producer, values(bytes(50_000)))
        assert max(count for _, count in cluster.produced) == PARTITIONS
        send(producer, values(bytes(50_000), changing=True))
    assert [size for size, _ in cluster.produced if size > REQUEST] == []
    assert {len(log.values) for log in cluster.logs.values()} == {4}


@pytest.mark.parametrize("size", [1, 150, 20_000])
def test_what_is_not_records_counts_too(cluster: MockCluster, size: int) -> None:
    name = cluster.topic("a-topic-of-" + "long" * 50, leaders=[0] * PARTITIONS)
    with producer_on(cluster.bootstrap_servers, client_id="c" * 100, max_request_size=2 * (size + 400)) as producer:
        send(producer, values(bytes(size)), name)
    assert [request for request in cluster.produced if request[0] > 2 * (size + 400) and request[1] > 1] == []
    assert sum(count for _, count in cluster.produced) == PARTITIONS


def test_a_batch_that_alone_is_too_large_for_a_request_goes_alone(cluster: MockCluster) -> None:
    cluster.topic("t", leaders=[0] * PARTITIONS)
    with producer_on(cluster.bootstrap_servers, compression_type="zstd", max_request_size=50_100) as producer:
        for _ in range(3):
            send(producer, values(bytes(50_000)))
        cluster.produced.clear()
        send(producer, values(bytes(50_000), changing=True))
    assert [count for _, count in cluster.produced] == [1] * PARTITIONS
