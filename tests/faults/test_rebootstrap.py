"""Every known broker is replaced by others: bootstrap.servers are asked again, or not, as metadata.recovery.strategy says."""

from __future__ import annotations

import time

import pytest

from spark_kafka_sink.errors import DeliveryError, MetadataTimeoutError
from spark_kafka_sink.protocol.api import ApiKey
from tests.faults.mock_cluster import MockCluster
from tests.faults.numbered_stream import wait_until
from tests.faults.producing import failing_scope, numbers, one_by_one, send
from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.kafka import Kafka
from tests.kafka.proxy import TcpProxy
from tests.kafka.witness import read_topic
from tests.producer.inside import metadata_of, wake_sender

SOON_OVER = {"request_timeout_ms": 700, "delivery_timeout_ms": 700, "max_block_ms": 700}


def test_when_every_known_broker_is_replaced_the_bootstrap_servers_are_asked_again(cluster: MockCluster) -> None:
    """KIP-899. Node 0 is the bootstrap server that stays; 1 and 2 lead, and then 3 does, of which nobody told."""
    for node in (1, 2):
        cluster.start(node)
    cluster.hidden.add(0)
    cluster.topic("t", leaders=(1, 2))
    with one_by_one(cluster.address(0)) as producer:
        for partition in (0, 1):
            send(producer, numbers([partition], partition))
        cluster.start(3)
        with cluster.changed:
            cluster.topics["t"].leaders[:] = [3, 3]
            cluster.topics["t"].epochs[:] = [1, 1]
            cluster.stop(1)
            cluster.stop(2)
        for partition in (0, 1):
            send(producer, numbers([partition + 10], partition))
    assert (cluster.values("t", 0), cluster.values("t", 1)) == ([0, 10], [1, 11])


def test_with_strategy_none_the_replacement_ends_in_errors_that_say_so(cluster: MockCluster) -> None:
    """Node 0 is the bootstrap server that stays, and hears nothing more; 1 was the only broker known."""
    cluster.start(1)
    cluster.hidden.add(0)
    cluster.topic("t", leaders=(1,))
    with one_by_one(cluster.address(0), metadata_recovery_strategy="none", **SOON_OVER) as producer:
        send(producer, numbers([0]))
        dead = cluster.address(1)
        cluster.start(2)
        with cluster.changed:
            cluster.topics["t"].leaders[:] = [2]
            cluster.stop(1)
        asked = cluster.requests_of(ApiKey.METADATA)
        wanted = rf"topic u: no metadata within \d+ ms; asked broker 1 \({dead}\): could not connect .*strategy=none asks only"
        with failing_scope(producer) as scope, pytest.raises(MetadataTimeoutError, match=wanted):
            scope.append("u", numbers([1]))
        with failing_scope(producer) as scope:
            scope.append("t", numbers([1]))
            wanted = rf"never sent: broker 1 \({dead}\): could not connect .*\(bootstrap.servers are not asked again: "
            with pytest.raises(DeliveryError, match=wanted):
                scope.flush(10)
        assert cluster.requests_of(ApiKey.METADATA) == asked
    assert cluster.values() == [0]


def test_known_brokers_that_stand_still_are_given_up_after_the_trigger_time(cluster: MockCluster) -> None:
    """KIP-1102. Without it the next thing to end the silence is the request timeout of 30 s."""
    with one_by_one(cluster.bootstrap_servers, metadata_recovery_rebootstrap_trigger_ms=300) as producer:
        send(producer, numbers([0]))
        cluster.stop_reading()
        begun = time.monotonic()
        with producer.scope() as scope:
            scope.append("t", numbers([1]))
            metadata_of(producer).request_update()
            wake_sender(producer)
            wait_until(lambda: metadata_of(producer).nodes() == {}, "a new beginning", 10)
            cluster.go_on_reading()
            scope.flush(10)
        assert time.monotonic() - begun < 10
    assert cluster.values() == [0, 1]


# Real Kafka: the bootstrap server's address leads to another cluster from one moment on, and the first one is gone.


@pytest.fixture
def moving(proxied_kafka: ProxiedKafka, proxy: TcpProxy) -> TcpProxy:
    """Where the bootstrap server is said to be."""
    proxy.forward_to(proxied_kafka.cluster.address(1))
    return proxy


def move(moving: TcpProxy, old: ProxiedKafka, new: Kafka) -> None:
    moving.forward_to(new.direct_servers.split(",")[0])
    old.proxy.refuse()
    old.proxy.cut()
    moving.cut()


def test_a_cluster_that_was_replaced_is_found_through_the_bootstrap_servers(
    moving: TcpProxy, proxied_kafka: ProxiedKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    proxied_kafka.cluster.create_topic(topic)
    with one_by_one(moving.address) as producer:
        send(producer, numbers(range(3)), topic)
        move(moving, proxied_kafka, kafka)
        send(producer, numbers(range(3, 9)), topic)
    assert values(proxied_kafka.cluster, topic) == [0, 1, 2]
    assert values(kafka, topic) == [3, 4, 5, 6, 7, 8]


def test_with_strategy_none_a_cluster_that_was_replaced_is_not_found(
    moving: TcpProxy, proxied_kafka: ProxiedKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    proxied_kafka.cluster.create_topic(topic)
    with one_by_one(moving.address, metadata_recovery_strategy="none", **SOON_OVER) as producer:
        send(producer, numbers(range(3)), topic)
        move(moving, proxied_kafka, kafka)
        with failing_scope(producer) as scope:
            scope.append(topic, numbers([3]))
            with pytest.raises(DeliveryError, match=r"delivery\.timeout\.ms .*broker 1 \(.*metadata\.recovery\.strategy is none"):
                scope.flush(10)
    assert values(kafka, topic) == []


def values(kafka: Kafka, topic: str) -> list[int]:
    return [int(record.value or b"") for record in read_topic(kafka.direct_servers, topic)]
