"""Every known broker is replaced, or an address leads to another cluster: what is asked again, and what is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import ClusterChangedError, DeliveryError
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tests.exactly_once.opened import soon
from tests.faults.producing import failing_scope, figure, numbers, one_by_one, send
from tests.faults.recording_broker import RecordingBroker
from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.kafka import Kafka
from tests.kafka.proxy import TcpProxy
from tests.kafka.witness import read_topic
from tests.producer.transactions.transacting import under_id
from tests.waiting import HOUR_MS, wait_until

SOON_OVER = {"request_timeout_ms": 3500, "delivery_timeout_ms": 3500}


def hide(cluster: RecordingBroker, broker: int) -> None:
    """Metadata do not tell of it, as of a bootstrap server that is a load balancer."""

    def change(body: MetadataRequest, answer: MetadataResponse) -> MetadataResponse:
        return replace(answer, brokers=[each for each in answer.brokers if each.node_id != broker])

    cluster.faults.alter(ApiKey.METADATA, change, times=None)


def test_known_brokers_that_stand_still_are_given_up_after_the_trigger_time(
    cluster: RecordingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-1102. Without it the next thing to end the silence is the request timeout."""
    patient = {"request_timeout_ms": HOUR_MS, "delivery_timeout_ms": 2 * HOUR_MS}
    settings = {"metadata_recovery_rebootstrap_trigger_ms": 1000, "metadata_max_age_ms": 100, **patient}
    wanted = "restarting with bootstrap.servers: no metadata for 1,000 ms"
    with one_by_one(cluster.bootstrap_servers, **settings) as producer:
        send(producer, numbers([0]))
        silence = cluster.faults.unreachable(1, black_hole=True)
        caplog.clear()  # of a first answer that took longer than the trigger time
        with producer.scope() as scope:
            scope.append("t", numbers([1]))
            wait_until(lambda: wanted in caplog.messages, "a new beginning")
            silence.remove()
            scope.flush(10)
    assert cluster.values() == [0, 1]


# One address that leads to one cluster, then to another that has the same topics, and then to the first again


def test_a_task_and_a_transaction_fail_where_single_records_go_on_to_the_other_cluster() -> None:
    with TcpProxy() as proxy:
        advertised = {1: ("127.0.0.1", proxy.port)}
        with EmbeddedBroker(advertised=advertised) as first, EmbeddedBroker(advertised=advertised) as second:
            for broker in (first, second):
                broker.create_topic("t", 1)
            proxy.forward_to(first.address(1))
            changed = f"{proxy.address}.* belongs to cluster {second.cluster.cluster_id} now, not to {first.cluster.cluster_id}"
            with one_by_one(proxy.address) as producer, under_id(proxy.address, "t") as transactional:
                transactional.begin_transaction()
                transactional.send("t", b"0").result(10)
                with failing_scope(producer) as scope:
                    scope.append("t", numbers([1]))
                    scope.flush(10)
                    proxy.forward_to(second.address(1))
                    proxy.cut()
                    scope.append("t", numbers([2]))
                    with pytest.raises(DeliveryError, match=rf"\[CLUSTER_CHANGED\] .*{changed}"):
                        scope.flush(10)
                producer.send("t", b"3").result(10)
                with pytest.raises(ClusterChangedError, match=changed):
                    transactional.commit_transaction()
            assert [record.value for record in read_topic(second.direct_servers, "t")] == [b"3"]


@contextmanager
def one_address_of_two_clusters() -> Iterator[tuple[TcpProxy, RecordingBroker, RecordingBroker]]:
    """Both have a topic `t`. It leads to the first until it is told otherwise."""
    with TcpProxy() as proxy:
        advertised = {1: ("127.0.0.1", proxy.port)}
        with RecordingBroker(advertised=advertised) as first, RecordingBroker(advertised=advertised) as second:
            for cluster in (first, second):
                cluster.topic()
            proxy.forward_to(first.address(1))
            yield proxy, first, second


def fail_over(proxy: TcpProxy, to: RecordingBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Returns when the producer knows of it."""
    proxy.forward_to(to.address(1))
    proxy.cut()
    changed = f"belongs to cluster {to.cluster.cluster_id} now"
    wait_until(lambda: any(changed in message for message in caplog.messages), "the other cluster's metadata")


def test_another_cluster_gives_a_producer_id_before_the_next_batch_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    """It has given the first cluster's id to another producer, whose batches would make these count as stored."""
    with one_address_of_two_clusters() as (proxy, first, second):
        with one_by_one(proxy.address) as producer, one_by_one(second.direct_servers) as other:
            send(producer, numbers([0]))
            send(other, numbers([10, 11]))
            fail_over(proxy, second, caplog)
            for value in (1, 2):
                producer.send("t", b"%d" % value).result(10)
        theirs, _, ours, _ = [received.batch.producer_id for received in second.received]
        assert first.received[0].batch.producer_id == theirs != ours
        assert second.values() == [10, 11, 1, 2]


def test_a_batch_that_the_cluster_of_before_may_have_stored_fails_and_later_ones_go_on(caplog: pytest.LogCaptureFixture) -> None:
    with one_address_of_two_clusters() as (proxy, first, second):
        with one_by_one(proxy.address) as producer, one_by_one(second.direct_servers) as other:
            send(producer, numbers([0]))
            send(other, numbers([10, 11]))
            lost = first.faults.hold(ApiKey.PRODUCE, applied=True)
            unanswered = producer.send("t", b"1")
            lost.wait()
            fail_over(proxy, second, caplog)
            with pytest.raises(ClusterChangedError, match=r"topic t partition 0: 1 record was sent and may have been stored; .*"):
                unanswered.result(10)
            producer.send("t", b"2").result(10)
        assert second.values() == [10, 11, 2]


def test_the_version_of_transactions_is_that_of_the_cluster_that_is_asked_now() -> None:
    """A cluster counts the epochs of its features by itself: they do not tell which of two clusters' features are newer."""
    with TcpProxy() as proxy:
        advertised = {1: ("127.0.0.1", proxy.port)}
        config = BrokerConfig(transaction_version=1)
        with EmbeddedBroker(advertised=advertised) as first, EmbeddedBroker(advertised=advertised, config=config) as second:
            proxy.forward_to(first.address(1))
            with ClusterClient(producer_config({"bootstrap.servers": proxy.address})) as client:
                levels = list[int]()
                for broker in (first, second, first):
                    proxy.forward_to(broker.address(1))
                    proxy.cut()
                    with pytest.raises(ClusterChangedError) if levels else nullcontext():
                        client.brokers(soon())
                    levels.append(client.finalized_feature("transaction.version", soon()))
    assert levels == [2, 1, 2]


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


@pytest.mark.fault("metadata", "every bootstrap or known broker replaced")
def test_a_cluster_that_was_replaced_is_found_through_the_bootstrap_servers(
    moving: TcpProxy, proxied_kafka: ProxiedKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    proxied_kafka.cluster.create_topic(topic)
    # It begins again when it finds all addresses in their back-off, for which a busy machine needs a longer one.
    settings = {"reconnect_backoff_ms": 300, "reconnect_backoff_max_ms": 300}
    with one_by_one(moving.address, **settings) as producer:
        send(producer, numbers(range(3)), topic)
        closed = figure(producer, "connection-close-total") + figure(producer, "connection-count")
        move(moving, proxied_kafka, kafka)
        # What is sent on a connection that is gone may have been stored, and fails.
        wait_until(lambda: figure(producer, "connection-close-total") >= closed, "the end of the connections")
        send(producer, numbers(range(3, 9)), topic)
    assert values(proxied_kafka.cluster, topic) == [0, 1, 2]
    assert values(kafka, topic) == [3, 4, 5, 6, 7, 8]


@pytest.mark.fault("metadata", "every bootstrap or known broker replaced")
def test_with_strategy_none_a_cluster_that_was_replaced_is_not_found(
    moving: TcpProxy, proxied_kafka: ProxiedKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    proxied_kafka.cluster.create_topic(topic)
    with one_by_one(moving.address, metadata_recovery_strategy="none", **SOON_OVER) as producer:
        send(producer, numbers(range(3)), topic)
        move(moving, proxied_kafka, kafka)
        # Or the record is sent, lost with the connection, and expires without a second attempt.
        wait_until(lambda: figure(producer, "connection-count") == 0, "the end of the connections")
        with failing_scope(producer) as scope:
            scope.append(topic, numbers([3]))
            with pytest.raises(DeliveryError, match=r"delivery\.timeout\.ms .*broker 1 \(.*metadata\.recovery\.strategy is none"):
                scope.flush(10)
    assert values(kafka, topic) == []


def values(kafka: Kafka, topic: str) -> list[int]:
    return [int(record.value or b"") for record in read_topic(kafka.direct_servers, topic)]
