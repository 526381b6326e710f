"""What an error names is what went wrong, not what came of it."""

from __future__ import annotations

import threading

import pytest

from spark_kafka_sink.client.cluster import Cluster, Node
from spark_kafka_sink.client.metadata import Metadata
from spark_kafka_sink.errors import DeliveryError, KafkaSinkError
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.faults.mock_cluster import MockCluster, Say
from tests.faults.producing import failing_scope, numbers, one_by_one, producer_on
from tests.producer.inside import metadata_of, pool_of


def test_an_append_that_waits_for_memory_says_why_the_producer_failed(cluster: MockCluster) -> None:
    cluster.script = lambda received: Say(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, hold=True)
    errors: list[KafkaSinkError] = []
    with one_by_one(cluster.bootstrap_servers, buffer_memory=32768) as producer, failing_scope(producer) as scope:

        def append() -> None:
            try:
                scope.append("t", numbers(range(10)))
            except KafkaSinkError as error:
                errors.append(error)

        appending = threading.Thread(target=append)
        appending.start()
        cluster.wait_for(lambda: bool(cluster.received) and pool_of(producer).queued() > 0, "a request and a wait for memory")
        cluster.release()
        appending.join(10)
    assert "CLUSTER_AUTHORIZATION_FAILED" in str(errors[0])


def test_a_leader_that_cannot_be_reached_is_named_with_its_address(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts = {"delivery_timeout_ms": 1500, "request_timeout_ms": 1000, "linger_ms": 0}
    with producer_on(cluster.bootstrap_servers, **timeouts) as producer, failing_scope(producer) as scope:
        producer.partitions_for("t")
        # What brokers with a wrong advertised.listeners would say, from now on
        known = metadata_of(producer).fetch()
        monkeypatch.setattr(Metadata, "update", lambda *_: None)  # first, as an answer may be on its way
        metadata_of(producer)._cluster = Cluster({0: Node(0, "127.0.0.1", 1)}, known.topics)
        scope.append("t", numbers([1]))
        with pytest.raises(DeliveryError, match=r"never sent: .*127\.0\.0\.1:1.*refused"):
            scope.flush(10)
