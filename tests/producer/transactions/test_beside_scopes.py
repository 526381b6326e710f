"""What a scope drops, what is sent beside it, and a copy of it in a forked child: none of it is committed in silence."""

from __future__ import annotations

import os
from typing import Any

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import TransactionAbortableError, TransactionTimeoutError, UsageError
from spark_kafka_sink.protocol.api import ApiKey
from tests.faults.producing import commit_next, numbers
from tests.producer.transactions.transacting import scoped, under_id, until_read


def test_what_a_scope_dropped_is_missed_by_the_commit(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic, linger_ms=100_000, delivery_timeout_ms=200_000) as producer:
        producer.begin_transaction()
        with pytest.raises(ZeroDivisionError), producer.scope() as scope:
            scope.append(topic, numbers(range(3)))
            scope.flush(60)
            scope.append(topic, numbers(range(3, 6)))
            raise ZeroDivisionError
        with pytest.raises(TransactionAbortableError, match="the send scope was discarded"):
            producer.commit_transaction()
        producer.abort_transaction()
        commit_next(producer, topic, 7)
    until_read(broker, topic, [7])


def test_what_a_scope_dropped_while_a_commit_waited_for_it_is_missed_by_that(broker: EmbeddedBroker, topic: str) -> None:
    one_by_one: dict[str, Any] = {"batch_size": 1, "max_in_flight_requests_per_connection": 1}
    with under_id(broker.bootstrap_servers, topic, **one_by_one) as producer:
        producer.begin_transaction()
        with (
            pytest.raises(TransactionTimeoutError),
            broker.faults.hold(ApiKey.PRODUCE, topic=topic) as held,
            producer.scope() as scope,
        ):
            scope.append(topic, numbers(range(3)))
            held.wait()
            producer.commit_transaction(0.1)
        with pytest.raises(TransactionAbortableError, match="the send scope was discarded"):
            producer.commit_transaction()
        producer.abort_transaction()
        commit_next(producer, topic, 7)
    until_read(broker, topic, [7])


def test_a_scope_that_has_nothing_to_drop_keeps_no_commit_from_its_end(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer:
        producer.begin_transaction()
        with (
            pytest.raises(TransactionTimeoutError),
            broker.faults.hold(ApiKey.END_TXN),
            producer.scope() as scope,
        ):
            scope.append(topic, numbers(range(3)))
            scope.flush(60)
            producer.commit_transaction(0.1)
        producer.commit_transaction()
    until_read(broker, topic, [0, 1, 2])


def test_beside_the_scope_of_a_transaction_nothing_is_sent(broker: EmbeddedBroker, topic: str) -> None:
    """It would be in the open transaction, and in no handle."""
    with scoped(broker.bootstrap_servers) as producer, producer.transaction(topic) as scope:
        with pytest.raises(UsageError, match="cannot be sent outside a transaction"):
            producer.send(topic, b"1")
        with producer.scope() as beside, pytest.raises(UsageError, match="cannot be sent outside a transaction"):
            beside.append(topic, numbers([1]))
        scope.append(topic, numbers([2]))
        handle = scope.prepare()
    assert handle is not None
    assert handle.records == 1


def test_a_forked_child_prepares_nothing_of_its_parents(broker: EmbeddedBroker, topic: str) -> None:
    with scoped(broker.bootstrap_servers) as producer, producer.transaction(topic) as scope:
        scope.append(topic, numbers([1]))
        scope.flush(60)
        child = os.fork()
        if not child:
            try:
                scope.prepare()
            except UsageError as error:
                os._exit(0 if "belongs to process" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert scope.prepare() is not None
