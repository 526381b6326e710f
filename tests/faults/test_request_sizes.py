"""No request is larger than it may be, whatever was expected of the compression: some gateways close the connection."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.accumulator.request_size import QUICK_MS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import PRODUCE, ProduceRequest
from spark_kafka_sink.protocol.messages import encode_request
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import figure, producer_on, send
from tests.faults.recording_broker import RecordingBroker, batches_of
from tests.waiting import wait_until

PARTITIONS = 40
REQUEST = 300_000  # bytes
VERSION = 12  # of Produce, which producers send
FRAME_PREFIX = 4  # bytes, for the frame's size


def values(value: bytes, *, changing: bool = False) -> RecordColumns:
    """One for each partition."""
    own = [os.urandom(len(value)) if changing else value for _ in range(PARTITIONS)]
    return RecordColumns(PARTITIONS, value=pa.array(own), partition=np.arange(PARTITIONS, dtype=np.int32))


class Requests(list[tuple[int, int]]):
    """Of each Produce request that came: its bytes, and how many batches are in it."""

    def __init__(self, cluster: RecordingBroker, client_id: str = "") -> None:
        self._client_id = client_id
        cluster.faults.watch(ApiKey.PRODUCE, on_request=self._keep)

    def _keep(self, broker: int, body: ProduceRequest) -> None:
        message = encode_request(PRODUCE, VERSION, 0, self._client_id, body)
        self.append((FRAME_PREFIX + sum(map(len, message)), len(list(batches_of(body)))))


@pytest.mark.parametrize("codec", ["zstd", "lz4", "snappy", "gzip"])
def test_records_that_compress_worse_than_those_before_go_in_more_requests(cluster: RecordingBroker, codec: str) -> None:
    cluster.topic("t", leaders=[1] * PARTITIONS)
    requests = Requests(cluster)
    with producer_on(cluster.bootstrap_servers, compression_type=codec, max_request_size=REQUEST, client_id="") as producer:
        for _ in range(3):
            send(producer, values(bytes(50_000)))
        assert max(count for _, count in requests) == PARTITIONS
        send(producer, values(bytes(50_000), changing=True))
        assert max(size for size, _ in requests) == figure(producer, "request-size-max")
    assert [size for size, _ in requests if size > REQUEST] == []
    stored = [cluster.stored("t", partition) for partition in range(PARTITIONS)]
    assert {sum(batch.record_count for batch in batches) for batches in stored} == {4}


def test_a_batch_that_alone_is_too_large_for_a_request_goes_alone(cluster: RecordingBroker) -> None:
    cluster.topic("t", leaders=[1] * PARTITIONS)
    requests = Requests(cluster)
    with producer_on(cluster.bootstrap_servers, compression_type="zstd", max_request_size=50_100) as producer:
        for _ in range(3):
            send(producer, values(bytes(50_000)))
        requests.clear()
        send(producer, values(bytes(50_000), changing=True))
    assert [count for _, count in requests] == [1] * PARTITIONS


def test_only_a_broker_that_answers_quickly_gets_requests_over_max_request_size(cluster: RecordingBroker) -> None:
    cluster.topic("t", leaders=[1] * PARTITIONS)
    requests = Requests(cluster)
    with producer_on(cluster.bootstrap_servers) as producer:

        def sent() -> list[int]:
            """Sends 4 MB. Returns the size of each request."""
            requests.clear()
            send(producer, values(bytes(100_000)))
            return [size for size, _ in requests]

        assert sent()[0] <= 2**20  # the broker has not answered any before
        with cluster.faults.delay(ApiKey.PRODUCE, QUICK_MS + 100, times=None):
            assert sent()[0] > 3 * 2**20
            assert max(sent()) <= 2**20
        assert sent()[0] <= 2**20
        assert sent()[0] > 3 * 2**20


def test_without_acks_no_request_is_over_max_request_size(cluster: RecordingBroker) -> None:
    """Nothing tells how quickly the broker takes them, nor that a gateway closed the connection over one."""
    cluster.topic("t", leaders=[1] * PARTITIONS)
    requests = Requests(cluster)
    with producer_on(cluster.bootstrap_servers, acks=0) as producer:
        for _ in range(3):
            send(producer, values(bytes(100_000)))
    wait_until(lambda: sum(count for _, count in requests) == 3 * PARTITIONS, "the last batch")
    assert max(size for size, _ in requests) <= 2**20
