"""Full disks, transaction markers that come late, and coordinators that move."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, Producer

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.faults.asking import connected, end_offset, produced
from tests.broker.network.client import Client
from tests.broker.transaction.transactor import Transactor
from tests.kafka.witness import read_topic
from tests.waiting import wait_until

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def test_a_full_disk_refuses_appends_until_there_is_room(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    with broker.faults.disk_full() as full:
        assert produced(client, topic, 0, 1) == {0: STORAGE_ERROR, 1: STORAGE_ERROR}
        assert full.hits == 2

    assert produced(client, topic, 0, 1) == {0: 0, 1: 0}
    assert end_offset(client, topic) == 1


def test_a_disk_is_that_of_a_broker_or_of_a_topic(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    other = broker.create_topic(f"{topic}-other")
    broker.move_leader(other, 0, 1)
    with broker.faults.disk_full(topic=other), broker.faults.disk_full(broker=2):
        assert (produced(client, topic, 0), produced(client, other, 0)) == ({0: 0}, {0: STORAGE_ERROR})
        broker.move_leader(topic, 0, 2)
        with connected(broker, 2) as second:
            assert produced(second, topic, 0) == {0: STORAGE_ERROR}
    with pytest.raises(OptionError, match="there is no broker 5"):
        broker.faults.disk_full(broker=5)


@contextmanager
def transactions(broker: EmbeddedBroker, topic: str) -> Iterator[Transactor]:
    """With the topic's name as transactional id."""
    with connected(broker, broker.coordinator("transaction", topic)) as client:
        yield Transactor(client, topic, topic)


def test_held_markers_keep_a_producer_from_its_next_transaction(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    with transactions(broker, topic) as producer:
        who = producer.init().producer
        assert producer.add(who, 0) == [ErrorCode.NONE]
        with broker.faults.hold_markers() as held:
            assert producer.commit(who, 4).code is ErrorCode.NONE
            held.wait()
            assert producer.add(who, 0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
            assert end_offset(client, topic) == 0
        wait_until(lambda: producer.add(who, 0) == [ErrorCode.NONE])

        assert end_offset(client, topic) == 1  # the marker


def test_delayed_markers_come_by_themselves(broker: EmbeddedBroker, topic: str) -> None:
    with transactions(broker, topic) as producer:
        who = producer.init().producer
        assert producer.add(who, 0) == [ErrorCode.NONE]
        with broker.faults.delay_markers(300):
            begun = time.monotonic()
            assert producer.commit(who, 4).code is ErrorCode.NONE
            wait_until(lambda: producer.add(who, 0) == [ErrorCode.NONE])
            assert time.monotonic() - begun >= 0.3


def test_markers_come_at_once_when_nothing_delays_them_any_more(broker: EmbeddedBroker, topic: str) -> None:
    broker.faults.delay_markers(3_600_000).remove()
    with transactions(broker, topic) as producer:
        who = producer.init().producer
        assert (producer.add(who, 0), producer.commit(who, 4).code) == ([ErrorCode.NONE], ErrorCode.NONE)
        wait_until(lambda: producer.add(who, 0) == [ErrorCode.NONE])


def test_a_coordinator_moves(broker: EmbeddedBroker, topic: str) -> None:
    for kind in ("group", "transaction"):
        before = broker.coordinator(kind, topic)
        broker.move_coordinator(kind, topic, 3 - before)
        assert broker.coordinator(kind, topic) == 3 - before
    with transactions(broker, topic) as there, connected(broker, 3 - broker.coordinator("transaction", topic)) as elsewhere:
        assert there.init().code is ErrorCode.NONE
        assert Transactor(elsewhere, topic, topic).init().code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(OptionError, match="kind 'topic' is not valid: it must be 'group' or 'transaction'"):
        broker.move_coordinator("topic", topic, 1)  # type: ignore[arg-type]


def test_a_client_that_is_not_ours_gets_over_it(broker: EmbeddedBroker, topic: str) -> None:
    """Every record once, with lost answers, cuts, moves and a full disk on the way."""
    faults = broker.faults
    faults.fail(ApiKey.PRODUCE, ErrorCode.REQUEST_TIMED_OUT, applied=True, topic=topic)
    faults.cut_after(ApiKey.PRODUCE, topic=topic)
    faults.truncate(ApiKey.METADATA)
    hit = faults.fail(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=topic, times=2)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "log_level": 0,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
    )
    failed: list[KafkaError] = []
    for index in range(20):
        producer.produce(topic, str(index), partition=0, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
        if index == 10:
            broker.move_leader(topic, 0, 2)
    assert producer.flush(60) == 0

    assert (failed, hit.hits) == ([], 2)
    assert [record.value for record in read_topic(broker.bootstrap_servers, topic)] == [
        str(index).encode() for index in range(20)
    ]
