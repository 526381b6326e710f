"""Brokers whose quota is exceeded ask for pauses (KIP-219): the client keeps them, counts them, and says what takes so long."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    BufferExhaustedError,
    DeliveryError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    TransactionTimeoutError,
)
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.sender import throttle_log
from spark_kafka_sink.protocol.api import ApiKey
from tests.faults.producing import failing_scope, figure, numbers, one_by_one, producer_on, send
from tests.faults.recording_broker import RecordingBroker

PAUSE_MS = 700
QUOTA = "exceeds a quota (producer_byte_rate or request_percentage of its user or of client.id 'spark-kafka-sink')"


def test_pauses_are_in_the_report_and_in_its_one_line(cluster: RecordingBroker) -> None:
    cluster.faults.throttle(ApiKey.PRODUCE, 300)
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        for value in range(3):
            scope.append("t", numbers([value]))
            scope.flush(10)
        report = scope.report()
        assert report.throttled_ms == 300
        assert "throttled by broker quotas for 0.3 s" in repr(report)
        assert figure(producer, "produce-throttle-time-max") == 300


def test_without_a_quota_nothing_is_counted_or_shown(cluster: RecordingBroker) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        scope.append("t", numbers([0]))
        scope.flush(10)
        assert scope.report().throttled_ms == 0
        assert "throttled" not in repr(scope.report())


@pytest.mark.fault("rate", "a broker's quota is exceeded (KIP-219)")
def test_a_pause_is_that_of_one_broker_only(cluster2: RecordingBroker) -> None:
    cluster2.topic("u", leaders=[2])
    with producer_on(cluster2.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        send(producer, numbers([0]), topic="u")
        cluster2.faults.throttle(ApiKey.PRODUCE, 60_000, broker=1)
        send(producer, numbers([1]))
        assert send(producer, numbers([1]), topic="u") == 1
        with failing_scope(producer) as scope:
            scope.append("t", numbers([2]))
            with pytest.raises(FlushTimeoutError, match=r"broker 1 .* throttles this client for another 5\d\.\d s"):
                scope.flush(0.5)
    assert cluster2.values("u") == [0, 1]
    assert cluster2.values() == [0, 1]


@pytest.mark.parametrize("api", [ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN])
def test_requests_of_transactions_ask_for_pauses_too_and_wait_for_them(broker: EmbeddedBroker, api: ApiKey) -> None:
    broker.faults.throttle(api, PAUSE_MS)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "throttled", "linger.ms": 0}
    with Producer(settings) as producer:
        begun = time.monotonic()
        producer.init_transactions(20)
        for value in (b"0", b"1"):
            producer.begin()
            producer.send("t", value)
            producer.commit(20)
        assert time.monotonic() - begun > PAUSE_MS / 1000 - 0.1


def test_a_call_of_a_transaction_that_times_out_in_a_pause_says_so(broker: EmbeddedBroker) -> None:
    broker.faults.throttle(ApiKey.INIT_PRODUCER_ID, 60_000)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "throttled", "max.block.ms": 1000}
    with (
        pytest.raises(TransactionTimeoutError, match=r"throttles this client for another 5\d\.\d s, because"),
        Producer(settings) as producer,
    ):
        producer.init_transactions(20)
        producer.begin()
        producer.send_offsets({("t", 0): 1}, "a-group")


def test_metadata_is_not_asked_for_during_a_pause(cluster: RecordingBroker) -> None:
    cluster.topic("u")
    asked = cluster.faults.watch(ApiKey.METADATA)
    with producer_on(cluster.bootstrap_servers) as producer:
        cluster.faults.throttle(ApiKey.PRODUCE, PAUSE_MS)
        send(producer, numbers([0]))
        before, begun = asked.hits, time.monotonic()
        assert len(producer.partitions_for("u")) == 1
        assert time.monotonic() - begun > PAUSE_MS / 1000 - 0.3
        assert asked.hits == before + 1


@pytest.mark.fault("rate", "a broker's quota is exceeded (KIP-219)")
def test_records_that_expire_in_a_pause_say_which_quota_and_what_to_do(cluster: RecordingBroker) -> None:
    with one_by_one(cluster.bootstrap_servers, request_timeout_ms=1000, delivery_timeout_ms=1000) as producer:
        send(producer, numbers([0]))
        cluster.faults.throttle(ApiKey.PRODUCE, 60_000)
        with failing_scope(producer) as scope:
            scope.append("t", numbers([1]))
            scope.flush(10)
            scope.append("t", numbers([2]))
            with pytest.raises(DeliveryError) as raised:
                scope.flush(20)
    cause = raised.value.__cause__
    assert isinstance(cause, DeliveryTimeoutError)
    assert "never sent" in cause.message
    assert QUOTA in cause.message
    assert "asked for pauses of 60.0 s" in cause.message
    assert cause.message.endswith("or set max.bytes.per.second to less than the quota, or raise delivery.timeout.ms")
    assert cluster.values() == [0, 1]


def test_an_append_that_finds_no_memory_in_a_pause_says_so(cluster: RecordingBroker) -> None:
    size = 200_000
    with producer_on(cluster.bootstrap_servers, buffer_memory=3 * size, max_block_ms=500) as producer:
        send(producer, numbers([0]))
        cluster.faults.throttle(ApiKey.PRODUCE, 60_000)
        with failing_scope(producer) as scope:
            scope.append("t", numbers([1], width=size))
            scope.flush(10)
            with pytest.raises(
                BufferExhaustedError, match=r"throttles this client for another 5\d\.\d s, because it exceeds a quota"
            ):
                for value in range(2, 9):
                    scope.append("t", numbers([value], width=size))


def test_a_long_pause_is_logged_once_with_its_broker(cluster: RecordingBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger=throttle_log.__name__)
    with producer_on(cluster.bootstrap_servers) as producer:
        send(producer, numbers([0]))
        cluster.faults.throttle(ApiKey.PRODUCE, 60_000)
        send(producer, numbers([1]))
    (line,) = [record.getMessage() for record in caplog.records if record.name == throttle_log.__name__]
    assert f"broker 1 ({cluster.address(1)}) throttles this client, because it {QUOTA}" in line


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made
