"""A producer with its coordinator: what Kafka 4.1 answers, step by step."""

from __future__ import annotations

from functools import partial

import pytest

from spark_kafka_sink.broker.transaction.transaction_metadata import ProducerIdAndEpoch, TransactionMetadata
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.transaction.world import A, B, World, code_of

E = ErrorCode


@pytest.fixture
def world() -> World:
    return World()


def ongoing(world: World) -> ProducerIdAndEpoch:
    producer = world.init()
    world.add(producer, A, B)
    return producer


class TestInitProducerId:
    def test_an_idempotent_producer_gets_an_id_of_its_own_each_time(self, world: World) -> None:
        first = world.coordinator.init_producer_id(None, 2**31 - 1)
        second = world.coordinator.init_producer_id(None, 2**31 - 1)
        assert first.producer_id != second.producer_id
        assert (first.producer_epoch, second.producer_epoch) == (0, 0)
        assert world.log.records == []

    def test_a_broker_that_is_not_its_coordinator_says_so_after_it_looked_at_the_request(self, world: World) -> None:
        init = world.coordinator.init_producer_id
        assert code_of(lambda: init("t", 0, is_coordinator=False)) is E.INVALID_TRANSACTION_TIMEOUT
        assert code_of(lambda: init("t", 1000, is_coordinator=False)) is E.NOT_COORDINATOR

    @pytest.mark.parametrize("expected", [None, ProducerIdAndEpoch(1, 32766)])
    def test_after_the_last_epoch_comes_another_id(self, world: World, expected: ProducerIdAndEpoch | None) -> None:
        world.remember(TransactionMetadata("t", 1, 60_000, producer_epoch=32766))
        renewed = world.init(expected)
        assert renewed.producer_id != 1
        assert renewed.producer_epoch == 0

    def test_a_bump_at_the_last_epoch_that_is_repeated_gets_the_next_epoch_of_the_new_id(self, world: World) -> None:
        world.remember(TransactionMetadata("t", 1, 60_000, producer_epoch=32766))
        renewed = world.init(ProducerIdAndEpoch(1, 32766))
        assert world.init(ProducerIdAndEpoch(1, 32766)) == renewed

    def test_a_producer_that_is_fenced_at_its_last_epoch_leaves_the_reserved_one(self, world: World) -> None:
        world.remember(TransactionMetadata("t", 1, 60_000, producer_epoch=32766))
        world.add(ProducerIdAndEpoch(1, 32766), A)
        assert code_of(world.init) is E.CONCURRENT_TRANSACTIONS
        world.settle()
        assert world.partitions.markers[A][0].producer_epoch == 32767
        assert world.init().producer_epoch == 0


class TestAddPartitions:
    def test_what_is_in_it_already_is_not_logged_again(self, world: World) -> None:
        producer = ongoing(world)
        records = len(world.log.records)
        world.add(producer, B)
        assert len(world.log.records) == records

    def test_everybody_waits_for_the_markers(self, world: World) -> None:
        producer = ongoing(world)
        renewed = world.end(producer, True)
        for anybody in (producer, renewed, ProducerIdAndEpoch(5, 0)):
            assert code_of(partial(world.add, anybody, A)) is E.CONCURRENT_TRANSACTIONS
        world.settle()
        world.add(renewed, A)


@pytest.mark.parametrize("committed", [True, False])
class TestEndOfVersion2:
    def test_at_the_last_epoch_gives_another_id(self, world: World, committed: bool) -> None:
        world.remember(TransactionMetadata("t", 1, 60_000, producer_epoch=32766))
        last = ProducerIdAndEpoch(1, 32766)
        world.add(last, A)
        renewed = world.end(last, committed)
        assert renewed.producer_id != 1
        assert renewed.producer_epoch == 0
        assert code_of(lambda: world.add(renewed, A)) is E.CONCURRENT_TRANSACTIONS
        world.restart()  # the id that was given is not forgotten
        world.settle()
        assert {marker.producer_id for marker in world.partitions.markers[A]} == {1}
        assert world.end(last, committed) == renewed
        world.add(renewed, A)


class TestTimeouts:
    def test_a_transaction_is_aborted_when_its_time_is_over(self, world: World) -> None:
        producer = ongoing(world)
        world.timer.advance(60_000)
        assert world.state() == "Ongoing"
        world.timer.advance(1_001)
        assert world.state() == "CompleteAbort"
        assert world.ended_in(A) == [False]
        assert code_of(lambda: world.end(producer, True)) is E.INVALID_TXN_STATE

    def test_a_commit_that_comes_at_the_same_moment_counts(self, world: World) -> None:
        producer = ongoing(world)
        world.timer.advance(60_500)
        world.when_asked_for_the_time = lambda: world.end(producer, True)
        world.coordinator.abort_timed_out_transactions()
        world.settle()
        assert world.ended_in(A) == [True]


class TestExpiry:
    def test_an_id_that_is_not_used_is_forgotten(self) -> None:
        world = World(transactional_id_expiration_ms=7_200_000)
        world.init()
        world.timer.advance(3 * 3_600_000)
        assert code_of(lambda: world.coordinator.describe("t")) is E.TRANSACTIONAL_ID_NOT_FOUND
        world.restart()
        assert code_of(lambda: world.coordinator.describe("t")) is E.TRANSACTIONAL_ID_NOT_FOUND
        assert world.init().producer_epoch == 0


class TestTheLogRefuses:
    """What is not in the log has not happened."""

    @pytest.mark.parametrize(
        ("refusal", "told"),
        [
            (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
            (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
            (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_a_new_id(self, world: World, refusal: ErrorCode, told: ErrorCode) -> None:
        world.log.refusals = [refusal]
        assert code_of(world.init) is told
        assert world.coordinator.every() == []
        assert world.init().producer_epoch == 0

    def test_a_commit(self, world: World) -> None:
        producer = ongoing(world)
        world.log.refusals = [E.KAFKA_STORAGE_ERROR]
        assert code_of(lambda: world.end(producer, True)) is E.NOT_COORDINATOR
        world.settle()
        assert world.ended_in(A) == []
        world.end(producer, False)

    def test_the_completion(self, world: World) -> None:
        producer = ongoing(world)
        renewed = world.end(producer, True)
        world.log.refusals = [E.KAFKA_STORAGE_ERROR, E.KAFKA_STORAGE_ERROR]
        world.timer.advance(150)
        assert world.state() == "PrepareCommit"
        world.timer.advance(100)
        assert world.state() == "CompleteCommit"
        world.add(renewed, A)


class TestMarkers:
    def test_of_partitions_that_cannot_be_written_come_later(self, world: World) -> None:
        producer = ongoing(world)
        world.partitions.refusals[B] = [E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR]
        world.end(producer, True)
        world.timer.advance(150)
        assert (world.ended_in(A), world.ended_in(B)) == ([True], [])
        assert world.state() == "PrepareCommit"
        world.timer.advance(100)
        assert (world.ended_in(A), world.ended_in(B)) == ([True], [True])

    def test_of_partitions_that_are_no_more_are_not_needed(self, world: World) -> None:
        producer = ongoing(world)
        world.partitions.deleted = {A, B}
        world.end(producer, True)
        world.settle()
        assert world.state() == "CompleteCommit"

    def test_are_written_after_a_restart_that_came_before_them(self, world: World) -> None:
        producer = ongoing(world)
        renewed = world.end(producer, True)
        world.restart()
        assert code_of(lambda: world.add(renewed, A)) is E.CONCURRENT_TRANSACTIONS
        world.settle()
        assert world.ended_in(A) == world.ended_in(B) == [True]
        assert world.end(producer, True) == renewed

    def test_may_be_delayed(self, world: World) -> None:
        producer = ongoing(world)
        world.coordinator.markers.delay_ms = 500
        world.end(producer, True)
        world.timer.advance(499)
        assert code_of(lambda: world.end(producer, True)) is E.CONCURRENT_TRANSACTIONS
        world.timer.advance(1)
        assert world.state() == "CompleteCommit"


def test_nothing_is_answered_before_the_log_is_read(world: World) -> None:
    fresh = world.unloaded()
    for ask in (lambda: fresh.init_producer_id("t", 1000), lambda: fresh.describe("t"), fresh.every):
        assert code_of(ask) is E.COORDINATOR_LOAD_IN_PROGRESS
