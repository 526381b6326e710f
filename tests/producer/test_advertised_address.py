"""Brokers that advertise an address that cannot be reached from here, as behind a proxy or in a container."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from spark_kafka_sink.errors import DeliveryError, FlushTimeoutError, MetadataTimeoutError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from tests.faults.producing import failing_scope, numbers, producer_on
from tests.faults.recording_broker import RecordingBroker
from tests.kafka.ports import free_ports
from tests.producer.inside import columns_of, meet
from tests.waiting import wait_until

CLIENT_LOG = "spark_kafka_sink.client.connection_states"


@pytest.fixture
def nowhere() -> int:
    """A port at which nobody listens."""
    (port,) = free_ports(1)
    return port


@pytest.fixture
def cluster(nowhere: int) -> Iterator[RecordingBroker]:
    """One broker, which tells clients to go elsewhere."""
    with RecordingBroker(advertised={1: ("127.0.0.1", nowhere)}) as made:
        made.topic()
        yield made


def explanation(cluster: RecordingBroker, nowhere: int) -> str:
    return (
        f"bootstrap server {cluster.address(1)} responded, and advertises 127.0.0.1:{nowhere} for broker 1: if this machine"
        " cannot reach that address, correct advertised.listeners on the broker"
    )


def on(cluster: RecordingBroker, **settings: object) -> Producer:
    """A producer that knows `t`: there will be no other answer about metadata."""
    with cluster.faults.hold(ApiKey.API_VERSIONS, times=None):  # metadata is asked for after it, with the topic
        made = producer_on(cluster.address(1), **{"metadata_recovery_strategy": "none", **settings})
        columns_of(made).request_topics(["t"])
    meet(made, "t")
    return made


def until_logged(cluster: RecordingBroker, nowhere: int, log: pytest.LogCaptureFixture) -> None:
    wait_until(lambda: explanation(cluster, nowhere) in log.text, "a line in the log")


def test_the_log_explains_the_first_failed_attempt_once_and_a_flush_that_ends_in_vain_does(
    cluster: RecordingBroker, nowhere: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), on(cluster) as producer, failing_scope(producer) as scope:
        scope.append("t", numbers([1]))
        until_logged(cluster, nowhere, caplog)
        with pytest.raises(FlushTimeoutError) as raised:
            scope.flush(1.5)
    assert explanation(cluster, nowhere) in str(raised.value)
    assert len([record for record in caplog.records if record.name == CLIENT_LOG]) == 1


def test_records_that_expire_explain_it(cluster: RecordingBroker, nowhere: int, caplog: pytest.LogCaptureFixture) -> None:
    with on(cluster, delivery_timeout_ms=1500, request_timeout_ms=1500) as producer, failing_scope(producer) as scope:
        scope.request_topics(["another"])
        until_logged(cluster, nowhere, caplog)  # an attempt has failed, however soon the records expire
        scope.append("t", numbers([1]))
        with pytest.raises(DeliveryError) as raised:
            scope.flush(60)
    assert explanation(cluster, nowhere) in str(raised.value)


def test_metadata_that_does_not_come_explains_it(
    cluster: RecordingBroker, nowhere: int, caplog: pytest.LogCaptureFixture
) -> None:
    with on(cluster, max_block_ms=1500) as producer, producer.scope() as scope:
        scope.request_topics(["another"])
        until_logged(cluster, nowhere, caplog)
        with pytest.raises(MetadataTimeoutError) as raised:
            scope.append("another", numbers([1]))
    assert explanation(cluster, nowhere) in str(raised.value)


def test_a_broker_that_was_reached_before_is_only_away(caplog: pytest.LogCaptureFixture) -> None:
    with RecordingBroker() as cluster, producer_on(cluster.address(1)) as producer, failing_scope(producer) as scope:
        cluster.topic()
        scope.append("t", numbers([1]))
        scope.flush(60)
        cluster.faults.unreachable(1)
        scope.append("t", numbers([2]))
        with pytest.raises(FlushTimeoutError) as raised:
            scope.flush(1.5)
    assert "could not connect" in str(raised.value)
    assert "advertised" not in str(raised.value) + caplog.text
