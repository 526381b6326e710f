"""The faults of transactions that a proxy, a kill or time makes happen, so that real Kafka judges them too.

What needs one request held or refused is in test_transactions.py.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_kafka_sink.broker import broker_services
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.errors import (
    DeliveryTimeoutError,
    KafkaSinkError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionError,
    TransactionTimeoutError,
)
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.exactly_once.opened import client_of, soon
from tests.faults.producing import commit_next
from tests.kafka.brokers import Brokers
from tests.kafka.cluster import KafkaCluster
from tests.kafka.fixtures import BrokerKind, NewTopic, ProxiedKafka, embedded_in_make_test
from tests.kafka.kafka import Kafka
from tests.kafka.proxy import Way
from tests.kafka.witness import read_topic
from tests.producer.transactions.transacting import DEADLINE_S, Reached, state_of, under_id, until_ended, until_read
from tests.tiers import whole_but
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
_numbers = itertools.count()


def identity() -> str:
    return f"faulty-{os.getpid()}-{next(_numbers)}"


def until_committed(cluster: Brokers, topic: str, expected: list[int]) -> None:
    """Read past the proxy."""

    def read() -> list[int]:
        return [int(each.value or b"") for each in read_topic(cluster.direct_servers, topic, isolation_level="read_committed")]

    wait_until(lambda: read() == expected, f"{expected} committed", DEADLINE_S)


@pytest.mark.fault("transaction", "a zombie with the same id is fenced")
def test_a_zombie_is_fenced(transaction_kafka: Kafka, new_topic: NewTopic) -> None:
    topic, shared = new_topic(on=transaction_kafka), identity()
    with under_id(transaction_kafka.bootstrap_servers, shared) as zombie:
        zombie.begin_transaction()
        zombie.send(topic, b"1").result(20)
        with under_id(transaction_kafka.bootstrap_servers, shared) as living:
            living.begin_transaction()
            living.send(topic, b"2")
            with pytest.raises(ProducerFencedError):
                zombie.commit_transaction()
            living.commit_transaction()
    until_read(transaction_kafka, topic, [2])


@pytest.fixture
def pause_at_end(proxied_kafka: ProxiedKafka, monkeypatch: pytest.MonkeyPatch) -> Callable[[Way], threading.Event]:
    """Makes the proxy hold bytes from just before the next EndTxn until it is healed. The event: EndTxn is sent.

    So its answer cannot come before a call times out, however late the threads are.
    """
    told: list[tuple[Way, threading.Event]] = []
    send = NetworkClient.send

    def noted(client: NetworkClient, node_id: int, api: Any, *others: Any, **more: Any) -> None:
        way, sent = told.pop() if told and api.key is ApiKey.END_TXN else (None, threading.Event())
        if way is not None:
            proxied_kafka.proxy.pause(way)
        send(client, node_id, api, *others, **more)
        sent.set()

    def pause(way: Way) -> threading.Event:
        told.append((way, threading.Event()))
        return told[-1][1]

    monkeypatch.setattr(NetworkClient, "send", noted)
    return pause


def commit_in_vain(producer: Producer, sent: threading.Event) -> None:
    """Until EndTxn is sent. A busy machine may come to the end of a call while that asks for the ids of its topics."""
    while not sent.is_set():
        with pytest.raises(TransactionTimeoutError):
            producer.commit_transaction(0.15)


@pytest.mark.fault("transaction", "a commit that timed out is committed, never aborted")
@pytest.mark.parametrize("way", ["to_server", "to_client"])
def test_a_commit_that_timed_out_is_committed_by_the_next(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic, pause_at_end: Callable[[Way], threading.Event], way: Way
) -> None:
    """Its request, or the answer to it, is under way for longer than it may take."""
    topic = new_topic(on=proxied_kafka.cluster)
    with under_id(proxied_kafka.cluster.bootstrap_servers, identity()) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1").result(20)
        commit_in_vain(producer, pause_at_end(way))
        with pytest.raises(TransactionTimeoutError, match="has not responded to EndTxn"):
            producer.commit_transaction(0.4)
        proxied_kafka.proxy.heal()
        producer.commit_transaction()
        commit_next(producer, topic, 2)
    until_committed(proxied_kafka.cluster, topic, [1, 2])


@pytest.mark.fault("transaction", "a late EndTxn does not end the next transaction")
def test_an_end_whose_connection_is_cut_before_it_answers_ends_no_later_transaction(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic, pause_at_end: Callable[[Way], threading.Event]
) -> None:
    topic = new_topic(on=proxied_kafka.cluster)
    with under_id(proxied_kafka.cluster.bootstrap_servers, identity()) as producer:
        for value in range(0, 10, 2):
            producer.begin_transaction()
            producer.send(topic, b"%d" % value).result(20)
            commit_in_vain(producer, pause_at_end("to_client"))
            proxied_kafka.proxy.cut()
            proxied_kafka.proxy.heal()
            producer.commit_transaction()
            commit_next(producer, topic, value + 1)
    until_committed(proxied_kafka.cluster, topic, list(range(10)))


@pytest.mark.fault("transaction", "a batch that expired unsent makes the commit fail")
def test_a_batch_that_no_broker_took_in_time_makes_the_commit_fail(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    topic = new_topic(on=proxied_kafka.cluster)
    settings: dict[str, Any] = {"request_timeout_ms": 3000, "delivery_timeout_ms": 3000}
    with under_id(proxied_kafka.cluster.bootstrap_servers, identity(), **settings) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1").result(20)
        proxied_kafka.proxy.refuse()
        proxied_kafka.proxy.cut()
        lost = producer.send(topic, b"2")
        assert isinstance(lost.exception(20), DeliveryTimeoutError)
        with pytest.raises(TransactionAbortableError, match=r"delivery\.timeout\.ms"):
            producer.commit_transaction()
        proxied_kafka.proxy.heal()
        producer.abort_transaction()
        commit_next(producer, topic, 3)
    until_committed(proxied_kafka.cluster, topic, [3])


@pytest.mark.fault("transaction", "the coordinator moves between steps")
@pytest.mark.parametrize("commits", [True, False])
@embedded_in_make_test("half a minute each; tests/faults/test_leader_killed.py has a broker of real Kafka killed")
def test_the_broker_that_coordinates_is_killed_before_the_end(kafka3: Brokers, new_topic: NewTopic, commits: bool) -> None:
    topic, own = new_topic(1, on=kafka3, replication=3), identity()
    with under_id(kafka3.bootstrap_servers, own) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1").result(60)
        with client_of(kafka3) as client:
            kafka3.kill(client.coordinators([own], soon()).nodes[own])
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        commit_next(producer, topic, 2)
    until_read(kafka3, topic, [1, 2] if commits else [2])


# INVALID_PRODUCER_ID_MAPPING: the coordinator has forgotten a transactional id. As in Java since 4.0, its producer has ended


E = ErrorCode
# The embedded broker's clock is put forward when it is to forget. Kafka's first transaction of a group takes a second.
FORGETS_AFTER_MS: dict[BrokerKind, int] = {"embedded": 600_000, "kafka": 3000}
LOOKS_EVERY_MS = 200


class Clock:
    """The embedded brokers' time."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


_clock = Clock()


@pytest.fixture(params=[1, 2], ids=["tv1", "tv2"])
def transaction_version(request: pytest.FixtureRequest) -> int:
    version: int = request.param
    return version


@pytest.fixture(scope="module")
def _forgetful() -> Iterator[dict[tuple[BrokerKind, int], EmbeddedBroker | KafkaCluster]]:
    """Those that a test has asked for: each is started once."""
    made: dict[tuple[BrokerKind, int], EmbeddedBroker | KafkaCluster] = {}
    yield made
    for each in made.values():
        each.stop()


@pytest.fixture
def forgetful(
    broker_kind: BrokerKind,
    transaction_version: int,
    _forgetful: dict[tuple[BrokerKind, int], EmbeddedBroker | KafkaCluster],
) -> EmbeddedBroker | KafkaCluster:
    """A broker that soon forgets transactional ids without a transaction; by default it is after seven days."""
    key = broker_kind, transaction_version
    if key not in _forgetful:
        _forgetful[key] = _started(*key)
    return _forgetful[key]


def _started(kind: BrokerKind, version: int) -> EmbeddedBroker | KafkaCluster:
    level = 0 if version == 1 else 2
    if kind == "kafka":
        settings = {
            "transactional.id.expiration.ms": str(FORGETS_AFTER_MS[kind]),
            "transaction.remove.expired.transaction.cleanup.interval.ms": str(LOOKS_EVERY_MS),
        }
        return KafkaCluster(1, settings, features={"transaction.version": level}, heap_mb=256)
    config = BrokerConfig(
        transaction_version=level,
        transaction_state_log_num_partitions=2,
        transactional_id_expiration_ms=FORGETS_AFTER_MS[kind],
        transaction_remove_expired_transaction_cleanup_interval_ms=LOOKS_EVERY_MS,
    )
    broker = EmbeddedBroker(config=config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_services, "wall_ms", _clock.now_ms)
        broker.start()
    return broker


def until_forgotten(kafka: Reached, transactional_id: str) -> None:
    until_ended(kafka, transactional_id)  # it is counted from there
    if isinstance(kafka, EmbeddedBroker):
        _clock.ahead_ms += FORGETS_AFTER_MS["embedded"]
    wait_until(lambda: state_of(kafka, transactional_id) is None, f"{transactional_id} is forgotten")


@pytest.mark.fault("transaction", "the coordinator has forgotten the id (INVALID_PRODUCER_ID_MAPPING)")
@embedded_in_make_test("a broker of its own that has to wait until it forgets")
@pytest.mark.parametrize(
    "first",
    whole_but(
        ["a record", "a record elsewhere", "an offset elsewhere"],
        ["a record elsewhere", "an offset elsewhere"],
        "seconds until it is forgotten; elsewhere nobody knows a later epoch",
    ),
)
def test_a_fenced_producer_does_not_come_back_when_its_id_is_forgotten(
    forgetful: EmbeddedBroker | KafkaCluster, first: str
) -> None:
    """It would write what its successor has written, and take the group's offset back.

    Elsewhere no leader or group coordinator knows a later epoch of its producer id.
    """
    topic = identity()
    forgetful.create_topic(topic)
    forgetful.create_topic(f"{topic}-2")
    with under_id(forgetful.bootstrap_servers, topic) as fenced:
        commit_next(fenced, topic, 1, offset=True)
        with under_id(forgetful.bootstrap_servers, topic) as successor:
            commit_next(successor, topic, 2, offset=True)
        until_forgotten(forgetful, topic)
        fenced.begin_transaction()
        there = f"{topic}-2" if "elsewhere" in first else topic
        with pytest.raises(KafkaSinkError, match=r"INVALID_PRODUCER_(ID_MAPPING.* close this producer|EPOCH)"):
            if "record" in first:
                fenced.send(there, b"2").result(20)
            fenced.send_offsets_to_transaction({(topic, 0): 2}, there)
        for call in fenced.abort_transaction, fenced.begin_transaction, fenced.init_transactions:
            with pytest.raises(TransactionError, match="INVALID_PRODUCER_") as told:
                call()
            assert type(told.value) in (TransactionError, ProducerFencedError)
    with under_id(forgetful.bootstrap_servers, topic) as producer:
        commit_next(producer, topic, 3)
    until_read(forgetful, topic, [1, 2, 3])
    until_read(forgetful, f"{topic}-2", [])
    until_ended(forgetful, topic)


@pytest.mark.parametrize("broker_kind", ["embedded"])
def test_the_next_epoch_of_a_forgotten_id_is_not_taken(forgetful: EmbeddedBroker) -> None:
    """Kafka answers such a request with another producer id and no error (TransactionCoordinator.isValidProducerId)."""
    topic = identity()
    with under_id(forgetful.bootstrap_servers, topic) as producer:
        commit_next(producer, topic, 1)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({(topic, 0): 1}, topic)
        producer.send(topic, b"2")
        forgetful.faults.fail(ApiKey.END_TXN, E.UNKNOWN_PRODUCER_ID, times=1)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        with under_id(forgetful.bootstrap_servers, topic):  # aborts the transaction, which keeps the id from being forgotten
            until_forgotten(forgetful, topic)
        with pytest.raises(TransactionError, match="INVALID_PRODUCER_ID_MAPPING"):
            producer.abort_transaction()
        with pytest.raises(TransactionError, match="INVALID_PRODUCER_ID_MAPPING"):
            producer.begin_transaction()
    until_read(forgetful, topic, [1])
