"""The faults of transactions that a proxy, a kill or time makes happen, so that real Kafka judges them too.

What needs one request held or refused is in test_transactions.py."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from spark_kafka_sink.errors import (
    DeliveryTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionTimeoutError,
)
from spark_kafka_sink.producer.producer import Producer
from tests.exactly_once.opened import client_of, soon
from tests.kafka.brokers import Brokers
from tests.kafka.fixtures import NewTopic, ProxiedKafka, embedded_in_make_test
from tests.kafka.kafka import Kafka
from tests.kafka.proxy import Way
from tests.kafka.witness import read_topic
from tests.producer.transactions.transacting import DEADLINE_S, under_id, until_read
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
_numbers = itertools.count()


def identity() -> str:
    return f"faulty-{os.getpid()}-{next(_numbers)}"


def commit_next(producer: Producer, topic: str, *values: int) -> None:
    producer.begin()
    for value in values:
        producer.send(topic, b"%d" % value)
    producer.commit()


def until_committed(cluster: Brokers, topic: str, expected: list[int]) -> None:
    """Read past the proxy."""

    def read() -> list[int]:
        return [int(each.value or b"") for each in read_topic(cluster.direct_servers, topic, isolation_level="read_committed")]

    wait_until(lambda: read() == expected, f"{expected} committed", DEADLINE_S)


@pytest.mark.fault("transaction", "a zombie with the same id is fenced")
def test_a_zombie_is_fenced(transaction_kafka: Kafka, new_topic: NewTopic) -> None:
    topic, shared = new_topic(on=transaction_kafka), identity()
    with under_id(transaction_kafka.bootstrap_servers, shared) as zombie:
        zombie.begin()
        zombie.send(topic, b"1").result(20)
        with under_id(transaction_kafka.bootstrap_servers, shared) as living:
            living.begin()
            living.send(topic, b"2")
            with pytest.raises(ProducerFencedError):
                zombie.commit()
            living.commit()
    until_read(transaction_kafka, topic, [2])


@pytest.mark.fault("transaction", "a commit that timed out is committed, never aborted")
@pytest.mark.parametrize("way", ["to_server", "to_client"])
def test_a_commit_that_timed_out_is_committed_by_the_next(proxied_kafka: ProxiedKafka, new_topic: NewTopic, way: Way) -> None:
    """Its request, or the answer to it, is under way for longer than it may take."""
    topic = new_topic(on=proxied_kafka.cluster)
    with under_id(proxied_kafka.cluster.bootstrap_servers, identity()) as producer:
        producer.begin()
        producer.send(topic, b"1").result(20)
        proxied_kafka.proxy.delay(0.5, way)  # the ids of its topics are answered in time; a busy machine may be later
        with pytest.raises(TransactionTimeoutError, match=r"has not responded to (EndTxn|Metadata)"):
            producer.commit(0.8)
        proxied_kafka.proxy.heal()
        producer.commit()
        commit_next(producer, topic, 2)
    until_committed(proxied_kafka.cluster, topic, [1, 2])


@pytest.mark.fault("transaction", "a late EndTxn does not end the next transaction")
def test_an_end_whose_connection_is_cut_before_it_answers_ends_no_later_transaction(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(on=proxied_kafka.cluster)
    with under_id(proxied_kafka.cluster.bootstrap_servers, identity()) as producer:
        for value in range(0, 10, 2):
            producer.begin()
            producer.send(topic, b"%d" % value).result(20)
            proxied_kafka.proxy.delay(0.1, "to_client")
            with pytest.raises(TransactionTimeoutError):
                producer.commit(0.15)
            proxied_kafka.proxy.cut()
            proxied_kafka.proxy.heal()
            producer.commit()
            commit_next(producer, topic, value + 1)
    until_committed(proxied_kafka.cluster, topic, list(range(10)))


@pytest.mark.fault("transaction", "a batch that expired unsent makes the commit fail")
def test_a_batch_that_no_broker_took_in_time_makes_the_commit_fail(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    topic = new_topic(on=proxied_kafka.cluster)
    settings: dict[str, Any] = {"request_timeout_ms": 1000, "delivery_timeout_ms": 1500}
    with under_id(proxied_kafka.cluster.bootstrap_servers, identity(), **settings) as producer:
        producer.begin()
        producer.send(topic, b"1").result(20)
        proxied_kafka.proxy.refuse()
        proxied_kafka.proxy.cut()
        lost = producer.send(topic, b"2")
        assert isinstance(lost.exception(20), DeliveryTimeoutError)
        with pytest.raises(TransactionAbortableError, match=r"delivery\.timeout\.ms"):
            producer.commit()
        proxied_kafka.proxy.heal()
        producer.abort()
        commit_next(producer, topic, 3)
    until_committed(proxied_kafka.cluster, topic, [3])


@pytest.mark.fault("transaction", "the coordinator moves between steps")
@pytest.mark.parametrize("commits", [True, False])
@embedded_in_make_test("half a minute each; tests/faults/test_leader_killed.py has a broker of real Kafka killed")
def test_the_broker_that_coordinates_is_killed_before_the_end(kafka3: Brokers, new_topic: NewTopic, commits: bool) -> None:
    topic, own = new_topic(1, on=kafka3, replication=3), identity()
    with under_id(kafka3.bootstrap_servers, own) as producer:
        producer.begin()
        producer.send(topic, b"1").result(60)
        with client_of(kafka3) as client:
            kafka3.kill(client.coordinators([own], soon()).nodes[own])
        if commits:
            producer.commit()
        else:
            producer.abort()
        commit_next(producer, topic, 2)
    until_read(kafka3, topic, [1, 2] if commits else [2])
