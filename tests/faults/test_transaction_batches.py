"""What becomes of the batches of a transaction that brokers refuse, answer late, or not at all; for both versions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    BrokerError,
    DeliveryError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionTimeoutError,
)
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.faults.producing import QUICK, commit_next, numbers
from tests.producer.transactions import transacting
from tests.producer.transactions.transacting import deadline, scoped, somebody_else, state_of, until_ended, until_read
from tests.tiers import whole_but
from tests.waiting import wait_until

E = ErrorCode
# Given up soon; but a broker of a busy test machine has been quiet for half a second.
TIGHT: dict[str, object] = {"request.timeout.ms": 1000, "delivery.timeout.ms": 60_000}


@pytest.fixture(scope="module")
def _brokers() -> Iterator[dict[int, EmbeddedBroker]]:
    with _broker(0) as version_1, _broker(2) as version_2:
        yield {1: version_1, 2: version_2}


def _broker(level: int) -> EmbeddedBroker:
    return EmbeddedBroker(config=BrokerConfig(transaction_version=level, transaction_state_log_num_partitions=2))


@pytest.fixture(params=[1, 2], ids=["version-1", "version-2"])
def broker(request: pytest.FixtureRequest, _brokers: dict[int, EmbeddedBroker]) -> Iterator[EmbeddedBroker]:
    made = _brokers[request.param]
    yield made
    made.faults.clear()


def under_id(broker: EmbeddedBroker, identity: str, **settings: Any) -> Producer:
    """Each record is a batch."""
    return transacting.under_id(broker.bootstrap_servers, identity, **{"batch_size": 1, **settings})


def test_what_is_too_large_is_split_within_its_transaction(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker, topic, batch_size=10_000, linger_ms=100_000, delivery_timeout_ms=200_000) as producer:
        commit_next(producer, topic, 0)
        broker.faults.fail(ApiKey.PRODUCE, E.MESSAGE_TOO_LARGE, times=3, topic=topic)
        commit_next(producer, topic, *range(1, 30))
        commit_next(producer, topic, 30)
    until_read(broker, topic, list(range(31)))


@pytest.mark.fault("error codes", "120 TRANSACTION_ABORTABLE")
@pytest.mark.fault("error codes", "48 INVALID_TXN_STATE: abortable on Produce, fatal on coordinators' APIs")
@pytest.mark.fault("error codes", "47 INVALID_PRODUCER_EPOCH: abortable on Produce, fenced on coordinators' APIs")
@pytest.mark.fault(
    "error codes", "45 OUT_OF_ORDER_SEQUENCE_NUMBER: retried in turn, then a new epoch; a transaction can only be aborted"
)
@pytest.mark.fault("error codes", "-1, 8, 17, 18, 21, 29, 32, 42, 43, 76, 87: the batch fails, a transaction can only be aborted")
@pytest.mark.parametrize(
    ("code", "first"),
    [
        (E.INVALID_PRODUCER_EPOCH, True),
        (E.INVALID_TXN_STATE, False),
        (E.TRANSACTION_ABORTABLE, True),
        (E.TOPIC_AUTHORIZATION_FAILED, False),
        (E.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
        (E.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (9999, True),
    ],
)
def test_what_fails_one_of_five_makes_the_transaction_void_and_the_next_goes_on(
    broker: EmbeddedBroker, topic: str, code: int, first: bool
) -> None:
    with under_id(broker, topic) as producer:
        commit_next(producer, topic, 0)
        producer.begin_transaction()
        if not first:
            producer.send(topic, b"1").result(10)
        broker.faults.fail(ApiKey.PRODUCE, code, times=1, topic=topic)
        failing = producer.send(topic, b"2")
        with suppress(TransactionAbortableError):  # the refusal may have come before all are sent
            for value in range(3, 7):
                producer.send(topic, b"%d" % value)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        assert failing.exception(0) is not None
        commit_next(producer, topic, 7, 8, 9)
        commit_next(producer, topic, 10)
    until_read(broker, topic, [0, 7, 8, 9, 10])


@pytest.mark.parametrize(
    "code",
    whole_but(
        [
            E.CONCURRENT_TRANSACTIONS,
            E.NOT_COORDINATOR,
            E.COORDINATOR_LOAD_IN_PROGRESS,
            E.NOT_ENOUGH_REPLICAS,
            E.REQUEST_TIMED_OUT,
        ],
        [E.CONCURRENT_TRANSACTIONS, E.REQUEST_TIMED_OUT],
        "all take the path of the two; which codes are retried is in the table of error codes",
    ),
)
@pytest.mark.parametrize("applied", whole_but([True, False], [True], "stored or not, a batch is sent again in the same way"))
def test_what_passes_is_waited_out(broker: EmbeddedBroker, topic: str, code: int, applied: bool) -> None:
    with under_id(broker, topic) as producer:
        broker.faults.fail(ApiKey.PRODUCE, code, times=4, topic=topic, applied=applied)
        commit_next(producer, topic, *range(10))
        broker.faults.fail(ApiKey.PRODUCE, code, times=4, topic=topic, applied=applied)
        commit_next(producer, topic, *range(10, 20))
    until_read(broker, topic, list(range(20)))


@pytest.mark.parametrize("applied", [True, False])
def test_a_batch_on_the_wire_of_an_aborted_transaction_never_comes_into_the_next(
    broker: EmbeddedBroker, topic: str, applied: bool
) -> None:
    with under_id(broker, topic) as producer:
        commit_next(producer, topic, 0)
        producer.begin_transaction()
        with broker.faults.hold(ApiKey.PRODUCE, topic=topic, applied=applied, times=1) as held:
            sent = producer.send(topic, b"1")
            held.wait()
            with pytest.raises(TransactionTimeoutError):
                producer.abort_transaction(0.05)
        producer.abort_transaction()
        assert sent.done()
        commit_next(producer, topic, 2, 3)
    until_read(broker, topic, [0, 2, 3])


def test_a_batch_that_comes_after_its_transaction_was_given_up_is_stored_in_no_other(broker: EmbeddedBroker, topic: str) -> None:
    """The request is given up, its connection with it; the broker comes to it when the next transaction is open."""
    with under_id(broker, topic, **TIGHT) as producer:
        commit_next(producer, topic, 0)
        producer.begin_transaction()
        producer.send(topic, b"1").result(10)
        with broker.faults.hold(ApiKey.PRODUCE, topic=topic, times=1) as held:
            late = producer.send(topic, b"2")
            held.wait()
            producer.abort_transaction()
            assert late.exception(0) is not None
            producer.begin_transaction()
            producer.send(topic, b"3").result(10)
        producer.send(topic, b"4").result(10)
        producer.commit_transaction()
        commit_next(producer, topic, 5)
    until_read(broker, topic, [0, 3, 4, 5])


def test_a_batch_that_expired_on_the_wire_makes_the_commit_fail(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker, topic, **{"request.timeout.ms": 2000, "delivery.timeout.ms": 2000}) as producer:
        commit_next(producer, topic, 0)
        producer.begin_transaction()
        with broker.faults.hold(ApiKey.PRODUCE, topic=topic, applied=True, times=1) as held:
            late = producer.send(topic, b"1")
            held.wait()
            with pytest.raises(TransactionAbortableError, match=r"delivery\.timeout\.ms"):
                producer.commit_transaction()
            assert late.exception(0) is not None
        producer.abort_transaction()
        commit_next(producer, topic, 2)
    until_read(broker, topic, [0, 2])


def test_who_is_fenced_while_a_flush_waits_is_told_by_it(broker: EmbeddedBroker, topic: str) -> None:
    with (
        scoped(broker.bootstrap_servers) as producer,
        pytest.raises(DeliveryError) as failed,
        producer.transaction(topic) as scope,
    ):
        scope.append(topic, numbers(range(3)))
        scope.flush(10)
        with broker.faults.hold(ApiKey.PRODUCE, topic=topic, times=1) as held:
            scope.append(topic, numbers(range(3, 6)))
            flushing = threading.Timer(0, held.remove)
            held.wait()
            with under_id(broker, topic):
                pass
            flushing.start()
            scope.prepare(10)
        flushing.join()
    assert isinstance(failed.value.__cause__, BrokerError)
    until_read(broker, topic, [])


def test_a_producer_that_closes_for_want_of_use_leaves_open_what_it_prepared(broker: EmbeddedBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **QUICK}, transactional=True)
    with producer.transaction(topic) as scope:
        scope.append(topic, numbers(range(3)))
        handle = scope.prepare()
    assert handle is not None
    producer.close_when_idle()
    wait_until(lambda: producer.closed, "the end of the producer")
    with somebody_else(broker) as other:
        (ended,) = other.end([handle], True, deadline()).values()
    assert ended.outcome is Outcome.COMMITTED
    until_read(broker, topic, [0, 1, 2])


@pytest.mark.fault("transaction", "a late EndTxn does not end the next transaction")
@pytest.mark.parametrize("committed", [True, False])
def test_an_end_that_was_asked_for_twice_ends_no_later_transaction(broker: EmbeddedBroker, topic: str, committed: bool) -> None:
    """The first request is given up and asked again, and the broker comes to it when the next transaction is open."""
    with under_id(broker, topic, **TIGHT) as producer:
        commit_next(producer, topic, 0)
        producer.begin_transaction()
        producer.send(topic, b"1").result(10)
        with broker.faults.hold(ApiKey.END_TXN, times=1) as held:
            producer.commit_transaction() if committed else producer.abort_transaction()
            assert held.hits == 1
            producer.begin_transaction()
            producer.send(topic, b"2").result(10)
        producer.send(topic, b"3").result(10)
        producer.abort_transaction() if committed else producer.commit_transaction()
        commit_next(producer, topic, 4)
    until_read(broker, topic, [0, 1, 4] if committed else [0, 2, 3, 4])


def test_what_is_committed_is_no_error_whatever_becomes_of_the_next_epoch(broker: EmbeddedBroker, topic: str) -> None:
    """With version 1 another epoch is asked for after an EndTxn that was lost. Who is told an error would write again."""
    with under_id(broker, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"1").result(10)
        broker.faults.cut_after(ApiKey.END_TXN, times=1)
        fenced = broker.faults.fail(ApiKey.INIT_PRODUCER_ID, E.PRODUCER_FENCED)
        producer.commit_transaction()
        if fenced.hits:
            with pytest.raises(ProducerFencedError):
                producer.begin_transaction()
    until_read(broker, topic, [1])


# AddPartitionsToTxn that is under way when a transaction is to end (version 1): the end waits, and nothing stays open


of_version_1 = pytest.mark.parametrize("broker", [1], indirect=True)
ADD, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN


@of_version_1
@pytest.mark.fault("transaction", "AddPartitionsToTxn is pending when the transaction ends")
@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_waits_for_it(broker: EmbeddedBroker, topic: str, applied: bool) -> None:
    with under_id(broker, topic) as producer, ThreadPoolExecutor(1) as pool:
        producer.begin_transaction()
        ends = broker.faults.watch(END)
        with broker.faults.hold(ADD, applied=applied) as held:
            sent = producer.send(topic, b"1")
            held.wait()
            with pytest.raises(TransactionTimeoutError, match="has not responded to AddPartitionsToTxn"):
                producer.commit_transaction(0.2)
            committing = pool.submit(producer.commit_transaction)
            assert (ends.hits, sent.done()) == (0, False)
        committing.result(20)
        commit_next(producer, topic, 2)
    until_read(broker, topic, [1, 2])


@of_version_1
@pytest.mark.fault("transaction", "AddPartitionsToTxn is pending when the transaction ends")
@pytest.mark.parametrize("applied", [True, False])
def test_an_abort_waits_for_it(broker: EmbeddedBroker, topic: str, applied: bool) -> None:
    with under_id(broker, topic) as producer:
        commit_next(producer, topic, 1)
        producer.begin_transaction()
        ends = broker.faults.watch(END)
        with broker.faults.hold(ADD, applied=applied) as held:
            sent = producer.send(topic, b"2")
            held.wait()
            with pytest.raises(TransactionTimeoutError, match="has not responded to AddPartitionsToTxn"):
                producer.abort_transaction(0.2)
            assert ends.hits == 0
        producer.abort_transaction()
        assert sent.exception(10) is not None
        assert state_of(broker, topic) != "Ongoing"
        commit_next(producer, topic, 3)
    until_read(broker, topic, [1, 3])
    until_ended(broker, topic)


@of_version_1
@pytest.mark.fault("transaction", "AddPartitionsToTxn is pending when the transaction ends")
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
def test_one_that_is_lost_is_repeated_for_a_commit_and_harms_no_abort(
    broker: EmbeddedBroker, topic: str, cut: str, commits: bool
) -> None:
    with under_id(broker, topic) as producer:
        commit_next(producer, topic, 1)
        producer.begin_transaction()
        fault = getattr(broker.faults, cut)(ADD, times=2)
        producer.send(topic, b"2")
        if commits:
            producer.commit_transaction()
            assert fault.hits == 2
        else:
            producer.abort_transaction()
        fault.remove()
        commit_next(producer, topic, 3)
    until_read(broker, topic, [1, 2, 3] if commits else [1, 3])
    until_ended(broker, topic)


@of_version_1
@pytest.mark.fault("transaction", "AddPartitionsToTxn is pending when the transaction ends")
def test_one_that_arrives_after_its_transaction_was_aborted_opens_no_other(broker: EmbeddedBroker, topic: str) -> None:
    """Nobody would end what it opened: until its time-out, readers would wait."""
    with under_id(broker, topic, **TIGHT) as producer:
        commit_next(producer, topic, 1)
        producer.begin_transaction()
        held = broker.faults.hold(ADD, times=1)
        producer.send(topic, b"2")
        held.wait()
        producer.abort_transaction()  # once the request has timed out, over another connection
        held.remove()
        assert state_of(broker, topic) != "Ongoing"
        commit_next(producer, topic, 3)
    until_read(broker, topic, [1, 3])
    until_ended(broker, topic)
