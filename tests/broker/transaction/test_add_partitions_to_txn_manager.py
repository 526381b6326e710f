"""What a Produce and a TxnOffsetCommit ask the coordinator before they store anything, and what their clients are told."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.broker.transaction.add_partitions_to_txn_manager import (
    AddPartitionsToTxnManager,
    Failures,
    Guards,
    TransactionSupportedOperation,
    produce_error,
)
from spark_kafka_sink.broker.transaction.transaction_metadata import ProducerIdAndEpoch
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.transaction.world import A, World

E = ErrorCode
DEFAULT_ERROR = TransactionSupportedOperation.DEFAULT_ERROR
GENERIC_ERROR = TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
ADD_PARTITION = TransactionSupportedOperation.ADD_PARTITION


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def manager(world: World) -> AddPartitionsToTxnManager:
    return AddPartitionsToTxnManager(world.coordinator, lambda transactional_id: True, world.timer)


def test_without_a_coordinator_nothing_is_written(world: World) -> None:
    manager = AddPartitionsToTxnManager(world.coordinator, lambda transactional_id: False, world.timer)
    producer = world.init()
    assert manager.add_or_verify("t", *producer, [A], ADD_PARTITION) == {A: E.COORDINATOR_NOT_AVAILABLE}


class Verification:
    """A log: its guard lasts until a marker comes. `is_open`: records of the transaction are there."""

    def __init__(self) -> None:
        self.guard = VerificationGuard()
        self.is_open = False
        self.begun = 0

    def begin(self) -> Guards:
        self.begun += 1
        return {} if self.is_open else {A: self.guard}

    def marker(self) -> None:
        self.guard = VerificationGuard()


@pytest.fixture
def log() -> Verification:
    return Verification()


@pytest.fixture
def renewed(world: World) -> ProducerIdAndEpoch:
    """A producer whose last transaction's markers come in 50 ms."""
    producer = world.init()
    world.add(producer, A)
    world.coordinator.markers.delay_ms = 50
    return world.end(producer, True)


def test_produce_waits_for_the_markers_of_the_last_transaction(
    world: World, manager: AddPartitionsToTxnManager, renewed: ProducerIdAndEpoch, log: Verification
) -> None:
    told: list[Failures] = []
    manager.add_or_verify_with_patience("t", *renewed, log.begin, ADD_PARTITION, told.append)
    world.timer.advance(59)
    assert told == []
    world.timer.advance(1)
    assert told == [{}]


def test_but_not_for_ever(
    world: World, manager: AddPartitionsToTxnManager, renewed: ProducerIdAndEpoch, log: Verification
) -> None:
    world.partitions.refusals[A] = [E.NOT_LEADER_OR_FOLLOWER]
    told: list[Failures] = []
    manager.add_or_verify_with_patience("t", *renewed, log.begin, ADD_PARTITION, told.append)
    world.timer.advance(100)
    assert told == [{A: E.CONCURRENT_TRANSACTIONS}]


def test_a_marker_between_question_and_answer_makes_it_ask_again(
    world: World, manager: AddPartitionsToTxnManager, log: Verification
) -> None:
    producer = world.init()
    told: list[Failures] = []

    def begin() -> Guards:
        guards = log.begin()
        if log.begun == 1:
            log.marker()
        return guards

    manager.add_or_verify_with_patience("t", *producer, begin, ADD_PARTITION, told.append)
    assert told == [{}]
    assert log.begun == 3


@pytest.mark.parametrize("delay_ms", [50, 99, 120, 1000])
def test_a_slow_answer_goes_with_guards_that_are_in_force(
    world: World, renewed: ProducerIdAndEpoch, log: Verification, delay_ms: float
) -> None:
    """The markers of the last transaction come while the question is on its way."""
    world.partitions.on_marker = lambda partition, marker: log.marker()
    in_force: list[VerificationGuard] = []
    told: list[tuple[Failures, bool]] = []

    def begin() -> Guards:
        in_force.append(log.guard)
        return log.begin()

    manager = AddPartitionsToTxnManager(world.coordinator, lambda transactional_id: True, world.timer)
    manager.delay_ms = delay_ms
    manager.add_or_verify_with_patience(
        "t", *renewed, begin, ADD_PARTITION, lambda failures: told.append((failures, in_force[-1] is log.guard))
    )
    world.timer.advance(10 * delay_ms)
    assert told == [({}, True)]


def test_producers_are_told_of_a_coordinator_what_makes_them_try_again() -> None:
    for code in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS):
        assert {produce_error(code, operation) for operation in TransactionSupportedOperation} == {E.NOT_ENOUGH_REPLICAS}
    assert produce_error(E.CONCURRENT_TRANSACTIONS, GENERIC_ERROR) is E.NOT_ENOUGH_REPLICAS
    assert produce_error(E.CONCURRENT_TRANSACTIONS, ADD_PARTITION) is E.CONCURRENT_TRANSACTIONS
    assert produce_error(E.INVALID_TXN_STATE, DEFAULT_ERROR) is E.INVALID_TXN_STATE
