"""AddPartitionsToTxn that is under way when a transaction is to end (version 1): the end waits, and nothing stays open."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import TransactionTimeoutError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from tests.producer.transactions.transacting import state_of, under_id, until_ended, until_read

ADD, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN
_numbers = itertools.count()


@pytest.fixture(scope="module")
def _broker() -> Iterator[EmbeddedBroker]:
    config = BrokerConfig(transaction_version=0, transaction_state_log_num_partitions=2)
    with EmbeddedBroker(config=config) as made:
        yield made


@pytest.fixture
def broker(_broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield _broker
    _broker.faults.clear()


@pytest.fixture
def topic() -> str:
    return f"pending-{os.getpid()}-{next(_numbers)}"


def commit_next(producer: Producer, topic: str, value: int) -> None:
    producer.begin()
    producer.send(topic, b"%d" % value)
    producer.commit()


@pytest.mark.fault("transaction", "AddPartitionsToTxn is pending when the transaction ends")
@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_waits_for_it(broker: EmbeddedBroker, topic: str, applied: bool) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer, ThreadPoolExecutor(1) as pool:
        producer.begin()
        ends = broker.faults.watch(END)
        with broker.faults.hold(ADD, applied=applied) as held:
            sent = producer.send(topic, b"1")
            held.wait()
            with pytest.raises(TransactionTimeoutError, match="has not responded to AddPartitionsToTxn"):
                producer.commit(0.2)
            committing = pool.submit(producer.commit)
            assert (ends.hits, sent.done()) == (0, False)
        committing.result(20)
        commit_next(producer, topic, 2)
    until_read(broker, topic, [1, 2])


@pytest.mark.fault("transaction", "AddPartitionsToTxn is pending when the transaction ends")
@pytest.mark.parametrize("applied", [True, False])
def test_an_abort_waits_for_it(broker: EmbeddedBroker, topic: str, applied: bool) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer:
        commit_next(producer, topic, 1)
        producer.begin()
        ends = broker.faults.watch(END)
        with broker.faults.hold(ADD, applied=applied) as held:
            sent = producer.send(topic, b"2")
            held.wait()
            with pytest.raises(TransactionTimeoutError, match="has not responded to AddPartitionsToTxn"):
                producer.abort(0.2)
            assert ends.hits == 0
        producer.abort()
        assert sent.exception(10) is not None
        assert state_of(broker, topic) != "Ongoing"
        commit_next(producer, topic, 3)
    until_read(broker, topic, [1, 3])
    until_ended(broker, topic)


@pytest.mark.fault("transaction", "AddPartitionsToTxn is pending when the transaction ends")
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
def test_one_that_is_lost_is_repeated_for_a_commit_and_harms_no_abort(
    broker: EmbeddedBroker, topic: str, cut: str, commits: bool
) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer:
        commit_next(producer, topic, 1)
        producer.begin()
        fault = getattr(broker.faults, cut)(ADD, times=2)
        producer.send(topic, b"2")
        if commits:
            producer.commit()
            assert fault.hits == 2
        else:
            producer.abort()
        fault.remove()
        commit_next(producer, topic, 3)
    until_read(broker, topic, [1, 2, 3] if commits else [1, 3])
    until_ended(broker, topic)


@pytest.mark.fault("transaction", "AddPartitionsToTxn is pending when the transaction ends")
def test_one_that_arrives_after_its_transaction_was_aborted_opens_no_other(broker: EmbeddedBroker, topic: str) -> None:
    """Nobody would end what it opened: until its time-out, readers would wait."""
    with under_id(broker.bootstrap_servers, topic, request_timeout_ms=500, delivery_timeout_ms=1000) as producer:
        commit_next(producer, topic, 1)
        producer.begin()
        held = broker.faults.hold(ADD, times=1)
        producer.send(topic, b"2")
        held.wait()
        producer.abort()  # once the request has timed out, over another connection
        held.remove()
        assert state_of(broker, topic) != "Ongoing"
        commit_next(producer, topic, 3)
    until_read(broker, topic, [1, 3])
    until_ended(broker, topic)
