"""What a transaction does when others, brokers and time are against it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    DeliveryTimeoutError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionTimeoutError,
    UsageError,
)
from spark_kafka_sink.protocol.api import ApiKey
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.producer.transactions.transacting import under_id, until_ended, until_read, values
from tests.waiting import until, wait_until


@pytest.fixture(scope="module")
def _brokers() -> Iterator[dict[int, EmbeddedBroker]]:
    with cluster(1, 0) as version_1, cluster(1, 2) as version_2:
        yield {1: version_1, 2: version_2}


@pytest.fixture
def broker(transaction_version: int, _brokers: dict[int, EmbeddedBroker]) -> Iterator[EmbeddedBroker]:
    made = _brokers[transaction_version]
    yield made
    made.faults.clear()


@pytest.fixture(scope="module")
def _clusters() -> Iterator[dict[int, EmbeddedBroker]]:
    with cluster(3, 0) as version_1, cluster(3, 2) as version_2:
        yield {1: version_1, 2: version_2}


@pytest.fixture
def brokers3(transaction_version: int, _clusters: dict[int, EmbeddedBroker]) -> EmbeddedBroker:
    return _clusters[transaction_version]


def cluster(brokers: int, level: int) -> EmbeddedBroker:
    config = BrokerConfig(
        transaction_version=level,
        transaction_state_log_num_partitions=4,
        default_replication_factor=brokers,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=50,
    )
    return EmbeddedBroker(brokers, config=config)


def test_a_commit_names_a_topic_that_was_replaced_and_the_next_transaction_goes_on(broker: EmbeddedBroker, topic: str) -> None:
    kafka = Kafka(broker.bootstrap_servers)
    kafka.create_topic(topic)
    with under_id(broker.bootstrap_servers, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1").result(10)
        kafka.delete_topic(topic)
        kafka.create_topic(topic)
        with pytest.raises(TransactionAbortableError, match=f"records are gone.* even if it was created again: {topic}"):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"2")
        producer.commit_transaction()
    until_read(broker, topic, [2])


@pytest.mark.fault("transaction", "a commit that timed out is committed, never aborted")
def test_a_commit_that_timed_out_is_committed_by_the_next_and_never_aborted(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1").result(10)
        with broker.faults.hold(ApiKey.END_TXN) as held:
            with pytest.raises(
                TransactionTimeoutError,
                match=r"commit_transaction\(\) timed out after 1,000 ms: broker 1 has not responded to EndTxn",
            ):
                producer.commit_transaction(1)
            held.wait()
            for other in (producer.abort_transaction, producer.begin_transaction):
                with pytest.raises(
                    UsageError, match=r"an earlier commit_transaction\(\) ended before its outcome was known; repeat that call"
                ):
                    other()
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"2")
        producer.commit_transaction()
    until_read(broker, topic, [1, 2])


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_whose_answer_is_lost_is_asked_for_again(broker: EmbeddedBroker, topic: str, applied: bool) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer:
        for value in (b"1", b"2", b"3"):
            producer.begin_transaction()
            producer.send(topic, value).result(10)
            (broker.faults.cut_after if applied else broker.faults.cut_before)(ApiKey.END_TXN)
            producer.commit_transaction()
    until_read(broker, topic, [1, 2, 3])


@pytest.mark.fault("transaction", "a commit that timed out is committed, never aborted")
def test_a_producer_that_closes_after_its_commit_timed_out_does_not_abort(broker: EmbeddedBroker, topic: str) -> None:
    producer = under_id(broker.bootstrap_servers, topic)
    producer.begin_transaction()
    producer.send(topic, b"1").result(10)
    with broker.faults.hold(ApiKey.END_TXN), pytest.raises(TransactionTimeoutError):
        producer.commit_transaction(0.1)
    producer.close()
    until_read(broker, topic, [1])


@pytest.mark.fault("transaction", "the coordinator moves between steps")
def test_the_coordinator_moves_between_steps(brokers3: EmbeddedBroker, topic: str) -> None:
    nodes = itertools.cycle(brokers3.broker_ids)

    def move() -> None:
        brokers3.move_coordinator("transaction", topic, broker_id=next(nodes))
        brokers3.move_coordinator("group", topic, broker_id=next(nodes))

    with under_id(brokers3.bootstrap_servers, topic) as producer:
        for value in range(4):
            move()
            producer.begin_transaction()
            producer.send(topic, b"%d" % value).result(10)
            move()
            producer.send_offsets_to_transaction({(topic, 0): value}, topic)
            move()
            producer.commit_transaction()
    until_read(brokers3, topic, [0, 1, 2, 3])


def test_a_coordinator_that_is_gone_from_the_metadata_is_looked_for_again(brokers3: EmbeddedBroker, topic: str) -> None:
    with under_id(brokers3.bootstrap_servers, topic, metadata_max_age_ms=100) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1").result(10)
        gone = brokers3.broker_ids[-1]
        brokers3.move_leader(topic, 0, broker_id=brokers3.broker_ids[0])
        brokers3.move_coordinator("transaction", topic, broker_id=gone)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"2").result(10)
        brokers3.kill(gone)
        try:
            asked = brokers3.faults.seen(ApiKey.METADATA)
            wait_until(lambda: brokers3.faults.seen(ApiKey.METADATA) >= asked + 2, "metadata without it")
            producer.commit_transaction()
        finally:
            brokers3.restart(gone)
    until_read(brokers3, topic, [1, 2])


def test_the_leader_is_killed_mid_transaction(brokers3: EmbeddedBroker, topic: str) -> None:
    with under_id(brokers3.bootstrap_servers, topic, request_timeout_ms=2000) as producer:
        producer.begin_transaction()
        sent = [producer.send(topic, b"%d" % value) for value in range(50)]
        sent[-1].result(10)
        leader = producer.partitions_for(topic)[0].leader
        assert leader is not None
        brokers3.kill(leader.id)
        try:
            sent += [producer.send(topic, b"%d" % value) for value in range(50, 100)]
            producer.commit_transaction()
        finally:
            brokers3.restart(leader.id)
    until_read(brokers3, topic, list(range(100)))


@pytest.mark.fault("transaction", "CONCURRENT_TRANSACTIONS")
def test_the_markers_of_the_transaction_before_are_waited_for(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1").result(10)
        with broker.faults.hold_markers():
            producer.commit_transaction()
            producer.begin_transaction()
            second = producer.send(topic, b"2")
            assert not second.done()
        producer.commit_transaction()
    until_read(broker, topic, [1, 2])


@pytest.mark.fault("transaction", "the transaction timeout has passed")
def test_a_transaction_that_took_too_long_is_not_committed(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic, transaction_timeout_ms=2500) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1").result(10)
        until_ended(broker, topic)
        with pytest.raises(TransactionError, match=r"open for longer than transaction\.timeout\.ms"):
            producer.commit_transaction()
    assert values(broker, topic) == []


@pytest.mark.fault("transaction", "an empty transaction")
def test_an_empty_transaction_costs_no_request(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer:
        ends = broker.faults.watch(ApiKey.END_TXN)
        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            end()
        assert ends.hits == 0
        producer.begin_transaction()
        producer.send(topic, b"1")
        producer.commit_transaction()
        assert ends.hits == 1
    until_read(broker, topic, [1])


@pytest.mark.usefixtures("patient_requests")
def test_a_transaction_does_not_end_while_a_request_of_it_is_on_its_way(brokers3: EmbeddedBroker, topic: str) -> None:
    """Its batch has expired, but the leader may still store it: behind the end it would be part of the next transaction."""
    settings: dict[str, Any] = {"request_timeout_ms": 2500, "delivery_timeout_ms": 2500}
    with under_id(brokers3.bootstrap_servers, topic, **settings) as producer:
        producer.partitions_for(topic)
        leader, coordinator, _ = brokers3.broker_ids  # two connections: on one the end would be behind the request anyway
        brokers3.move_leader(topic, 0, broker_id=leader)
        brokers3.move_coordinator("transaction", topic, broker_id=coordinator)
        producer.begin_transaction()
        ends = brokers3.faults.watch(ApiKey.END_TXN)
        with brokers3.faults.hold(ApiKey.PRODUCE) as held:
            lost = producer.send(topic, b"1")
            held.wait()
            assert isinstance(lost.exception(20), DeliveryTimeoutError)
            with pytest.raises(TransactionTimeoutError):
                producer.abort_transaction(0.1)
            assert ends.hits == 0
        producer.abort_transaction()
        assert ends.hits > 0
        producer.begin_transaction()
        producer.send(topic, b"2")
        producer.commit_transaction()
    until_read(brokers3, topic, [2])


@pytest.mark.fault("transaction", "read_committed sees nothing aborted and nothing torn")
def test_nothing_aborted_and_nothing_torn_is_read(broker: EmbeddedBroker, topic: str) -> None:
    """A transaction is ten records of one number, over three partitions; every third is aborted, with records on every way."""
    producer = under_id(broker.bootstrap_servers, topic, batch_size=100, linger_ms=1)
    broker.create_topic(topic, 3)
    with producer:
        for turn in range(12):
            producer.begin_transaction()
            for row in range(10):
                producer.send(topic, b"%d" % turn, partition=row % 3)
            producer.abort_transaction() if turn % 3 == 2 else producer.commit_transaction()
            # Markers are written one partition after another, so each partition is whole at any time.
            read = read_topic(broker.bootstrap_servers, topic, isolation_level="read_committed")
            found_in = Counter((each.partition, each.value) for each in read)
            assert all(count == (4 if partition == 0 else 3) for (partition, _), count in found_in.items())
    found = until(lambda: values(broker, topic), lambda found: len(found) >= 80, "80 records")
    assert sorted(found) == [turn for turn in range(12) if turn % 3 != 2 for _ in range(10)]


def test_what_was_not_sent_fails_with_an_abort(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic, linger_ms=100_000, delivery_timeout_ms=200_000) as producer:
        producer.begin_transaction()
        sent = producer.send(topic, b"1")
        producer.abort_transaction()
        assert isinstance(sent.exception(0), TransactionAbortedError)
        producer.begin_transaction()
        producer.send(topic, b"2")
        producer.commit_transaction()
    until_read(broker, topic, [2])


def test_a_producer_that_closes_aborts_what_is_open(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer:
        ends = broker.faults.watch(ApiKey.END_TXN)
        producer.begin_transaction()
        sent = producer.send(topic, b"1")
    assert sent.exception(0) is None
    assert ends.hits == 1
    assert values(broker, topic) == []
