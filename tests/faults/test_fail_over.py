"""One address that leads to one cluster, then to another that has the same topics, and then to the first again."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.config import producer_config
from tests.exactly_once.opened import soon
from tests.faults.producing import numbers, one_by_one, send
from tests.kafka.proxy import TcpProxy
from tests.kafka.witness import read_topic


def test_records_reach_the_first_cluster_again_after_a_fail_over_to_a_second_and_back() -> None:
    """Only the first has a partition 1, so a producer that goes on with the second's metadata has no leader for it."""
    with TcpProxy() as proxy:
        advertised = {1: ("127.0.0.1", proxy.port)}
        with EmbeddedBroker(advertised=advertised) as first, EmbeddedBroker(advertised=advertised) as second:
            first.create_topic("t", 2)
            second.create_topic("t", 1)
            proxy.forward_to(first.address(1))
            with one_by_one(proxy.address, delivery_timeout_ms=10_000, request_timeout_ms=5_000) as producer:
                for number, (broker, partition) in enumerate([(first, 1), (second, 0), (first, 1)]):
                    proxy.forward_to(broker.address(1))
                    proxy.cut()
                    send(producer, numbers([number], partition))
            stored = [[record.value for record in read_topic(broker.direct_servers, "t")] for broker in (second, first)]
        assert stored == [[b"1"], [b"0", b"2"]]


def test_the_version_of_transactions_is_that_of_the_cluster_that_is_asked_now() -> None:
    """A cluster counts the epochs of its features by itself: they do not tell which of two clusters' features are newer."""
    with TcpProxy() as proxy:
        advertised = {1: ("127.0.0.1", proxy.port)}
        config = BrokerConfig(transaction_version=1)
        with EmbeddedBroker(advertised=advertised) as first, EmbeddedBroker(advertised=advertised, config=config) as second:
            proxy.forward_to(first.address(1))
            with ClusterClient(producer_config({"bootstrap.servers": proxy.address})) as client:
                levels = []
                for broker in (first, second, first):
                    proxy.forward_to(broker.address(1))
                    proxy.cut()
                    client.brokers(soon())
                    levels.append(client.finalized_feature("transaction.version", soon()))
    assert levels == [2, 1, 2]
