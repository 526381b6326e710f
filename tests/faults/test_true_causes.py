"""What an error names is what went wrong, not what came of it."""

from __future__ import annotations

import threading

import pytest

from spark_kafka_sink.errors import DeliveryError, KafkaSinkError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.faults.numbered_stream import wait_until
from tests.faults.producing import failing_scope, figure, numbers, one_by_one, producer_on
from tests.faults.recording_broker import RecordingBroker


def test_an_append_that_waits_for_memory_says_why_the_producer_failed(cluster: RecordingBroker) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE)
    cluster.faults.fail(ApiKey.PRODUCE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    errors: list[KafkaSinkError] = []
    with one_by_one(cluster.bootstrap_servers, buffer_memory=32768) as producer, failing_scope(producer) as scope:

        def append() -> None:
            try:
                scope.append("t", numbers(range(10)))
            except KafkaSinkError as error:
                errors.append(error)

        appending = threading.Thread(target=append)
        appending.start()
        held.wait()
        wait_until(lambda: figure(producer, "waiting-threads") > 0, "a wait for memory")
        held.remove()
        appending.join(10)
    assert "CLUSTER_AUTHORIZATION_FAILED" in str(errors[0])


def test_a_leader_that_cannot_be_reached_is_named_with_its_address() -> None:
    """Brokers with a wrong advertised.listeners."""
    timeouts = {"delivery_timeout_ms": 1500, "request_timeout_ms": 1000, "linger_ms": 0}
    with RecordingBroker(advertised={1: ("127.0.0.1", 1)}) as cluster:
        cluster.topic()
        with producer_on(cluster.address(1), **timeouts) as producer, failing_scope(producer) as scope:
            scope.append("t", numbers([1]))
            with pytest.raises(DeliveryError, match=r"never sent: .*127\.0\.0\.1:1.*refused"):
                scope.flush(10)
