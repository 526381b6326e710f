"""Batches over a topic's max.message.bytes: they go on in smaller ones, each record once and in order."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import DeliveryError, FlushTimeoutError
from spark_kafka_sink.producer.accumulator import request_size
from spark_kafka_sink.producer.accumulator.request_size import RequestLimits
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import PRODUCE, ProduceRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.messages import encode_request
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from tests.faults.producing import buffered_bytes, failing_scope, figure, numbers, producer_on, send
from tests.faults.recording_broker import RecordingBroker, batches_of, numbers_in
from tests.kafka.dump_log import DumpedBatch, dump_log, records_of
from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.witness import Witnessed, read_topic
from tests.records.making import HEADERS
from tests.tiers import whole_but
from tests.waiting import wait_until

E = ErrorCode
WIDTH = 90  # of a value: about 100 bytes a record


def is_larger_than(size: int, body: ProduceRequest) -> bool:
    """A batch of the request is."""
    return any(batch.size > size for _, _, batch in batches_of(body))


def known(producer: Producer) -> None:
    """Let the broker store something of this producer: from then on five may be in flight."""
    with producer.scope() as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)


def sent_sizes(cluster: RecordingBroker) -> list[int]:
    return [len(received.values) for received in cluster.received]


@pytest.mark.fault("record", "MESSAGE_TOO_LARGE splits, a single record fails alone")
@pytest.mark.fault("error codes", "10 MESSAGE_TOO_LARGE: split without using up a retry")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"enable_idempotence": "false", "max_in_flight_requests_per_connection": 1},
        {"retries": 0, "max_in_flight_requests_per_connection": 1},
    ],
)
def test_what_is_too_large_is_halved_until_it_is_taken(cluster: RecordingBroker, settings: dict[str, object]) -> None:
    cluster.topic(max_message_bytes=1000)
    with producer_on(cluster.bootstrap_servers, batch_size=8000, **settings) as producer, producer.scope() as scope:
        scope.append("t", numbers(range(60), width=WIDTH))
        scope.flush(10)
        report = scope.report()
    assert cluster.values() == list(range(60))
    assert report.records == 60
    assert report.errors == {"MESSAGE_TOO_LARGE": len(cluster.too_large)}
    assert report.retries == 0
    assert sent_sizes(cluster)[:4] == [60, 30, 15, 7]
    assert (report.partitions["t", 0].first_offset, report.partitions["t", 0].last_offset) == (0, 59)


@pytest.mark.fault("record", "MESSAGE_TOO_LARGE splits, a single record fails alone")
def test_one_that_is_too_large_alone_fails_alone(cluster: RecordingBroker) -> None:
    cluster.topic(max_message_bytes=1000)
    values = [b"%0*d" % (2000 if number == 13 else 9, number) for number in range(20)]
    with producer_on(cluster.bootstrap_servers) as producer, failing_scope(producer) as scope:
        scope.append("t", RecordColumns(20, value=pa.array(values)))
        with pytest.raises(DeliveryError, match=r"the broker rejected 1 record: MESSAGE_TOO_LARGE; a single record exceeds"):
            scope.flush(10)
        wait_until(lambda: cluster.values() == [n for n in range(20) if n != 13], "the others stored")


@pytest.mark.fault("sequence", "a split keeps order")
@pytest.mark.parametrize("large", [{1}, {3}, {5}, {1, 2, 3, 4, 5}])
def test_of_five_in_flight_those_too_large_are_split_and_the_others_wait_for_them(
    cluster: RecordingBroker, large: set[int]
) -> None:
    """Batch n of five holds 10 n to 10 n + 9. What follows one that is split is refused as out of order, and sent again."""

    def is_too_large(body: ProduceRequest) -> bool:
        values = numbers_in(body)
        return values[0] // 10 in large and len(values) == 10

    with producer_on(cluster.bootstrap_servers, batch_size=1100, linger_ms=20) as producer:
        known(producer)
        held = cluster.faults.hold(ApiKey.PRODUCE)
        cluster.faults.fail(ApiKey.PRODUCE, E.MESSAGE_TOO_LARGE, times=None, when=is_too_large)
        with producer.scope() as scope:
            scope.append("t", numbers(range(10, 60), width=WIDTH))
            wait_until(lambda: figure(producer, "requests-in-flight") == 5, "five in flight")
            held.remove()
            scope.flush(10)
            assert scope.report().records == 50
    assert sent_sizes(cluster)[:6] == [1, 10, 10, 10, 10, 10]
    assert cluster.values() == [0, *range(10, 60)]
    assert {received.batch.producer_epoch for received in cluster.received} == {0}


# Real Kafka

SMALL = {"max.message.bytes": "2000", "retention.ms": "-1"}


def rows(count: int) -> RecordColumns:
    """Records of 100 bytes, most of them digits at random, that say in every field which one they are."""
    values = [hashlib.sha256(b"%d" % n).hexdigest().encode() for n in range(count)]
    pairs = [[{"key": "n", "value": b"%d" % n}] if n % 3 else None for n in range(count)]
    return RecordColumns(
        count,
        key=pa.array([b"%d" % n for n in range(count)], pa.binary()),
        value=pa.array([None if n % 7 == 6 else value for n, value in enumerate(values)], pa.binary()),
        headers=pa.array(pairs, HEADERS),
        timestamp=np.array([1_600_000_000_000 - 1000 * n for n in range(count)], np.int64),
    )


def assert_is_all_of(columns: RecordColumns, found: list[Witnessed]) -> None:
    """Each record once, in order, and nothing of it changed."""
    assert columns.key is not None
    assert columns.value is not None
    assert columns.headers is not None
    assert [record.key for record in found] == columns.key.to_pylist()
    assert [record.value for record in found] == columns.value.to_pylist()
    due = [tuple((pair["key"], pair["value"]) for pair in row or []) for row in columns.headers.to_pylist()]
    assert [record.headers for record in found] == due
    assert columns.timestamp is not None
    assert [record.timestamp for record in found] == columns.timestamp.tolist()


def assert_in_sequence(batches: list[DumpedBatch]) -> None:
    """One epoch, and numbers without a gap."""
    assert {(batch.producer_epoch, batch.valid) for batch in batches} == {(0, True)}
    ends = itertools.accumulate((batch.count for batch in batches), initial=0)
    assert [batch.base_sequence for batch in batches] == list(ends)[:-1]


@pytest.mark.fault("record", "MESSAGE_TOO_LARGE splits, a single record fails alone")
@pytest.mark.parametrize("codec", whole_but(["none", "lz4"], ["lz4"], "four seconds; that it is compressed is what differs"))
def test_real_kafka_takes_five_in_flight_in_parts_split_three_times_and_more(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic, codec: str
) -> None:
    cluster = proxied_kafka.cluster
    topic = new_topic(1, on=cluster, config=SMALL)
    columns = rows(1200)
    settings = {"batch_size": 16 * 1100, "compression_type": codec, "linger_ms": 0}
    with producer_on(cluster.bootstrap_servers, **settings) as producer, producer.scope() as scope:
        scope.append(topic, columns.slice(0, 1))
        scope.flush(20)
        proxied_kafka.proxy.pause("to_client")
        scope.append(topic, columns.slice(1, 1199))
        wait_until(lambda: figure(producer, "requests-in-flight") == 5, "five in flight")
        proxied_kafka.proxy.resume()
        scope.flush(60)
        report = scope.report()
    assert report.records == 1200
    assert report.errors["MESSAGE_TOO_LARGE"] >= 5 + 3
    batches = dump_log(cluster, 1, topic)
    assert all(batch.size <= 2000 and batch.codec == codec for batch in batches)
    assert_in_sequence(batches)
    assert_is_all_of(columns, read_topic(cluster.direct_servers, topic))


@pytest.mark.fault("sequence", "a split keeps order")
@pytest.mark.parametrize("large", whole_but([0, 2, 4], [2], "an embedded broker refuses the first, third and fifth above"))
def test_on_real_kafka_those_behind_one_that_is_split_come_after_its_parts(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic, large: int
) -> None:
    """Of five batches in flight, each of another scope, one is too large, for one of its ten records is."""
    cluster = proxied_kafka.cluster
    topic = new_topic(1, on=cluster, config=SMALL)
    widths = [1300 if n == 10 * large + 5 else 70 for n in range(50)]
    values = [b"%0*d" % (width, n) for n, width in enumerate(widths)]
    report = DeliveryReport()
    with producer_on(cluster.bootstrap_servers, batch_size=10_000) as producer, ExitStack() as ends:
        scopes = [ends.enter_context(producer.scope()) for _ in range(6)]
        scopes[5].append(topic, numbers([99]))
        scopes[5].flush(20)
        proxied_kafka.proxy.pause("to_client")
        for number, scope in enumerate(scopes[:5]):
            scope.append(topic, RecordColumns(10, value=pa.array(values[10 * number : 10 * number + 10])))
        wait_until(lambda: figure(producer, "requests-in-flight") == 5, "five in flight")
        proxied_kafka.proxy.resume()
        for scope in scopes:
            scope.flush(30)
            report.add(scope.report())
    batches = dump_log(cluster, 1, topic)
    assert report.errors["MESSAGE_TOO_LARGE"] == 1
    assert report.errors.get("OUT_OF_ORDER_SEQUENCE_NUMBER", 0) == 4 - large
    assert_in_sequence(batches)
    assert [int(record.value or b"") for record in records_of(batches)] == [99, *range(50)]


def test_a_close_by_force_leaves_no_part_behind(cluster: RecordingBroker) -> None:
    cluster.topic(max_message_bytes=4000)
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None, when=lambda body: not is_larger_than(4000, body))
    producer = producer_on(cluster.bootstrap_servers, batch_size=8000)
    scope = producer.scope()
    scope.append("t", numbers(range(60), width=WIDTH))
    held.wait()
    with pytest.raises(FlushTimeoutError):
        producer.close(0)
    with pytest.raises(DeliveryError, match=r"60 records failed, 0 were acknowledged"):
        scope.flush(5)
    assert buffered_bytes(producer) == 0


# No request is larger than it may be, whatever was expected of the compression: some gateways close the connection


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

    def __init__(self, cluster: RecordingBroker) -> None:
        cluster.faults.watch(ApiKey.PRODUCE, on_request=self._keep)

    def _keep(self, broker: int, body: ProduceRequest) -> None:
        message = encode_request(PRODUCE, VERSION, 0, "", body)
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


def test_only_a_broker_that_answers_quickly_gets_requests_over_max_request_size(
    cluster: RecordingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.topic("t", leaders=[1] * PARTITIONS)
    requests = Requests(cluster)
    delayed, answered = threading.Event(), RequestLimits.answered

    def noted(limits: RequestLimits, node: int, size: int, latency_ms: int) -> None:
        """As far as it was delayed: on a busy machine 4 MB take longer than is quick without that too."""
        answered(limits, node, size, latency_ms if delayed.is_set() else 0)

    monkeypatch.setattr(RequestLimits, "answered", noted)
    monkeypatch.setattr(request_size, "QUICK_MS", 200)
    with producer_on(cluster.bootstrap_servers) as producer:

        def sent() -> list[int]:
            """Sends 4 MB. Returns the size of each request."""
            requests.clear()
            send(producer, values(bytes(100_000)))
            return [size for size, _ in requests]

        assert sent()[0] <= 2**20  # the broker has not answered any before
        delayed.set()
        with cluster.faults.delay(ApiKey.PRODUCE, 300, times=None):
            assert sent()[0] > 3 * 2**20
            assert max(sent()) <= 2**20
        delayed.clear()
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
