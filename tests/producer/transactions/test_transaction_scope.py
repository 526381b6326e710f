"""A task's transaction: prepared by one, ended by another; or aborted, when its scope is left."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    DeliveryError,
    OptionError,
    TransactionAbortableError,
    UsageError,
)
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.protocol.api import ApiKey
from tests.faults.producing import numbers, producer_on
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.producer.transactions.transacting import (
    deadline,
    scoped,
    somebody_else,
    state_of,
    under_id,
    until_ended,
    until_read,
    values,
)


@pytest.fixture
def topic(transaction_kafka: Kafka, new_topic: NewTopic) -> str:
    return new_topic(3, on=transaction_kafka)


def prepared(producer: Producer, identity: str, topic: str, rows: range) -> TransactionHandle:
    with producer.transaction(identity) as scope:
        scope.append(topic, numbers(rows, partition=0))
        handle = scope.prepare()
    assert handle is not None
    return handle


def test_what_is_prepared_is_seen_once_somebody_else_commits_it(
    transaction_kafka: Kafka, transaction_version: int, topic: str
) -> None:
    with scoped(transaction_kafka.bootstrap_servers) as producer:
        handle = prepared(producer, topic, topic, range(100))
    assert (handle.transactional_id, handle.records, handle.partitions) == (topic, 100, ((topic, "0"),))
    assert handle.transaction_version == transaction_version
    assert values(transaction_kafka, topic) == []
    assert values(transaction_kafka, topic, "read_uncommitted") == list(range(100))
    with somebody_else(transaction_kafka) as other:
        assert other.end([handle], True, deadline())[topic].outcome is Outcome.COMMITTED
    until_read(transaction_kafka, topic, list(range(100)))


def test_a_transaction_without_records_leaves_nothing_open(transaction_kafka: Kafka, topic: str) -> None:
    with scoped(transaction_kafka.bootstrap_servers) as producer:
        with producer.transaction(topic) as scope:
            scope.append(topic, numbers([]))
            assert scope.prepare() is None
        assert state_of(transaction_kafka, topic) == "Empty"
        prepared(producer, topic, topic, range(1))


@pytest.mark.parametrize("acked", [True, False])
def test_a_scope_that_is_left_unprepared_aborts(transaction_kafka: Kafka, topic: str, acked: bool) -> None:
    with scoped(transaction_kafka.bootstrap_servers, linger_ms=0 if acked else 10_000) as producer:
        with producer.transaction(topic) as scope:
            scope.append(topic, numbers(range(10)))
            if acked:
                scope.flush()
        until_ended(transaction_kafka, topic)
        assert state_of(transaction_kafka, topic) == ("CompleteAbort" if acked else "Empty")
        assert producer.unfinished() == 0
    assert values(transaction_kafka, topic) == []


def test_an_exception_aborts_and_stays_what_is_raised(transaction_kafka: Kafka, topic: str) -> None:
    with scoped(transaction_kafka.bootstrap_servers) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction(topic) as scope:
            scope.append(topic, numbers(range(10)))
            scope.flush()
            raise ZeroDivisionError
        until_ended(transaction_kafka, topic)
        handle = prepared(producer, topic, topic, range(3))
    with somebody_else(transaction_kafka) as other:
        other.end([handle], True, deadline())
    until_read(transaction_kafka, topic, [0, 1, 2])


def test_who_takes_the_id_fences_the_open_transaction_and_harms_no_later_one(transaction_kafka: Kafka, topic: str) -> None:
    with scoped(transaction_kafka.bootstrap_servers) as producer, scoped(transaction_kafka.bootstrap_servers) as taker:
        with producer.transaction(topic) as zombie:
            zombie.append(topic, numbers([1], partition=0))
            zombie.flush()
            living = prepared(taker, topic, topic, range(2, 3))
            zombie.append(topic, numbers([4], partition=0))
            with pytest.raises((DeliveryError, TransactionAbortableError)):
                zombie.prepare()
        other_one = prepared(producer, f"{topic}-2", topic, range(5, 6))
    with somebody_else(transaction_kafka) as other:
        assert {each.outcome for each in other.end([living, other_one], True, deadline()).values()} == {Outcome.COMMITTED}
    until_read(transaction_kafka, topic, [2, 5])


def test_a_producer_has_one_transaction_at_a_time(transaction_kafka: Kafka, topic: str) -> None:
    refused = pytest.raises(UsageError, match="the producer already has an open transaction")
    with scoped(transaction_kafka.bootstrap_servers) as producer, producer.transaction(topic), refused:
        producer.transaction(f"{topic}-2")


def test_nothing_is_sent_outside_of_a_transaction(transaction_kafka: Kafka, topic: str) -> None:
    with scoped(transaction_kafka.bootstrap_servers) as producer:
        with pytest.raises(UsageError, match=r"outside a transaction: open one with producer\.transaction"):
            producer.send(topic, b"1")
        with producer.scope() as scope, pytest.raises(UsageError, match="cannot be sent outside a transaction"):
            scope.append(topic, numbers([1]))
        with producer.transaction(topic) as prepared_scope:
            prepared_scope.append(topic, numbers([1]))
            assert prepared_scope.prepare() is not None
            with pytest.raises(UsageError, match="PREPARED_TRANSACTION: the transaction no longer belongs to this producer"):
                prepared_scope.append(topic, numbers([2]))
            with pytest.raises(UsageError, match="PREPARED_TRANSACTION"):
                prepared_scope.prepare()
        with pytest.raises(UsageError, match="has ended"):
            prepared_scope.prepare()


def test_the_two_kinds_of_transactional_producers_are_not_mixed(transaction_kafka: Kafka, topic: str) -> None:
    with scoped(transaction_kafka.bootstrap_servers) as producer, pytest.raises(UsageError, match=r"set it and call init_trans"):
        producer.begin_transaction()
    with (
        under_id(transaction_kafka.bootstrap_servers, topic) as producer,
        pytest.raises(UsageError, match=r"has a transactional\.id"),
    ):
        producer.transaction(f"{topic}-2")
    with producer_on(transaction_kafka.bootstrap_servers) as plain, pytest.raises(UsageError, match="is not transactional"):
        plain.transaction(topic)


def test_transactions_need_idempotence() -> None:
    with pytest.raises(OptionError, match=r"enable\.idempotence: transactions require idempotence"):
        scoped("127.0.0.1:1", acks="1")
    with pytest.raises(OptionError, match=r"enable\.idempotence: transactions require idempotence"):
        under_id("127.0.0.1:1", "id", enable_idempotence="false")


def test_the_coordinator_of_an_id_that_comes_back_is_known(broker: EmbeddedBroker) -> None:
    topic = "comes-back"
    with scoped(broker.bootstrap_servers) as producer:
        prepared(producer, topic, topic, range(1))
        asked = broker.faults.watch(ApiKey.FIND_COORDINATOR)
        for row in range(1, 4):
            prepared(producer, topic, topic, range(row, row + 1))  # fences, and so aborts, the one before
        assert asked.hits == 0
