"""Histories of several producers with one transactional id, in which answers get lost, clocks run, logs refuse and the
coordinator is killed anywhere: what is committed, is so everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.broker.transaction.transaction_metadata import ProducerIdAndEpoch, TransactionMetadata
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.transaction.world import A, B, World

pytestmark = pytest.mark.slow

FINAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""With these a producer gives up its epoch; everything else it tries again."""
REFUSALS = [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS]


@dataclass(eq=False)
class Transaction:
    """What a producer meant to write together, and what became of it in each partition."""

    outcomes: dict[TopicPartition, set[bool]] = field(default_factory=dict)
    asked: bool | None = None
    answered: bool | None = None


@dataclass
class Log:
    """A partition: the epoch of each producer id, and its records that no marker has ended."""

    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[Transaction]] = field(default_factory=dict)


@dataclass
class Producer:
    """`version`: the transaction version it speaks. Without `identity` it has to initialize first."""

    version: int
    identity: ProducerIdAndEpoch | None = None
    transaction: Transaction = field(default_factory=Transaction)
    ended: tuple[ProducerIdAndEpoch, bool] | None = None

    def give_up(self) -> None:
        self.identity, self.ended, self.transaction = None, None, Transaction()


class Histories(RuleBasedStateMachine):
    """Partitions stand for real logs: they refuse old epochs, and records of a transaction that the coordinator does not know."""

    @initialize(version=st.sampled_from([1, 2]), epoch=st.sampled_from([0, 32760, 32764, 32765, 32766]))
    def begin(self, version: int, epoch: int) -> None:
        self.world = World(transaction_version=version)
        self.world.partitions.on_marker = self.marker
        if epoch:
            self.world.remember(TransactionMetadata("t", 999, 60_000, producer_epoch=epoch))
        # A cluster of version 2 has clients of version 1, too.
        self.producers = [Producer(version), Producer(1), Producer(version)]
        self.logs = {A: Log(), B: Log()}
        self.every: list[Transaction] = []

    def marker(self, partition: TopicPartition, marker: EndTransactionMarker) -> None:
        log = self.logs[partition]
        assert marker.producer_epoch >= log.epochs.get(marker.producer_id, 0), "a marker of an epoch that was fenced"
        log.epochs[marker.producer_id] = marker.producer_epoch
        for transaction in log.open.pop(marker.producer_id, []):
            transaction.outcomes[partition].add(marker.committed)

    # What producers do

    @rule(who=st.integers(0, 2), bump=st.booleans(), is_lost=st.booleans())
    def init(self, who: int, bump: bool, is_lost: bool) -> None:
        producer = self.producers[who]
        expected = producer.identity if bump else None
        try:
            identity = self.world.init(expected)
        except ApiException as error:
            if error.code in FINAL:
                producer.give_up()
            return
        producer.give_up()
        if not is_lost:
            producer.identity = identity

    @rule(who=st.integers(0, 2), partition=st.sampled_from([A, B]))
    def produce(self, who: int, partition: TopicPartition) -> None:
        producer = self.producers[who]
        identity = producer.identity
        if identity is None or producer.ended is not None:
            return
        log = self.logs[partition]
        try:
            is_open = log.open.get(identity.producer_id) and log.epochs[identity.producer_id] == identity.producer_epoch
            # With version 1 the last transaction, which is ended but not yet marked, has the same epoch.
            if not is_open or partition not in producer.transaction.outcomes:
                self.join(identity, partition, producer.version)
        except ApiException as error:
            if error.code in FINAL:
                producer.give_up()
            return
        if identity.producer_epoch < log.epochs.get(identity.producer_id, 0):
            producer.give_up()
            return
        log.epochs[identity.producer_id] = identity.producer_epoch
        if producer.transaction not in self.every:
            self.every.append(producer.transaction)
        producer.transaction.outcomes.setdefault(partition, set())
        opened = log.open.setdefault(identity.producer_id, [])
        if producer.transaction not in opened:
            opened.append(producer.transaction)

    def join(self, identity: ProducerIdAndEpoch, partition: TopicPartition, version: int) -> None:
        """The partition is in the transaction: by the client and then verified, or by the broker."""
        self.world.add(identity, partition, client_version=2 if version == 2 else 0)
        if version == 1:
            codes = self.world.coordinator.verify_partitions("t", identity, [partition])
            assert codes == {partition: ErrorCode.NONE}

    @rule(who=st.integers(0, 2), committed=st.booleans(), is_lost=st.booleans())
    def end(self, who: int, committed: bool, is_lost: bool) -> None:
        """Also again, with the same outcome, when the answer was lost."""
        producer = self.producers[who]
        if producer.identity is None or (producer.ended is None and not producer.transaction.outcomes):
            return
        asked = producer.ended or (producer.identity, committed)
        producer.ended = asked
        producer.transaction.asked = asked[1]
        try:
            renewed = self.world.end(*asked, client_version=2 if producer.version == 2 else 0)
        except ApiException as error:
            if error.code in FINAL:
                producer.give_up()
            return
        if is_lost:
            return
        producer.transaction.answered = asked[1]
        identity = renewed if producer.version == 2 else asked[0]
        producer.give_up()
        producer.identity = identity

    # What happens to the coordinator

    @rule()
    def settle(self) -> None:
        self.world.settle()

    @rule(seconds=st.sampled_from([1, 30, 70]))
    def time_passes(self, seconds: int) -> None:
        self.world.timer.advance(seconds * 1000)

    @rule()
    def killed(self) -> None:
        self.world.restart()

    @rule(code=st.sampled_from(REFUSALS))
    def log_refuses(self, code: ErrorCode) -> None:
        self.world.log.refusals.append(code)

    @rule(partition=st.sampled_from([A, B]), code=st.sampled_from(REFUSALS))
    def partition_refuses(self, partition: TopicPartition, code: ErrorCode) -> None:
        self.world.partitions.refusals.setdefault(partition, []).append(code)

    # What must hold

    @invariant()
    def nothing_is_both(self) -> None:
        for transaction in getattr(self, "every", []):
            assert len(set().union(*transaction.outcomes.values())) <= 1

    @invariant()
    def only_what_was_asked_is_committed(self) -> None:
        for transaction in getattr(self, "every", []):
            if any(True in each for each in transaction.outcomes.values()):
                assert transaction.asked is True

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.log.refusals.clear()
        self.world.partitions.refusals.clear()
        self.world.timer.advance(200_000)
        for log in self.logs.values():
            assert not any(log.open.values()), "a transaction that nobody ends"
        for transaction in self.every:
            outcomes = set().union(*transaction.outcomes.values())
            assert all(transaction.outcomes.values()), "a partition without an outcome"
            assert len(outcomes) == 1
            if transaction.answered is not None:
                assert outcomes == {transaction.answered}


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
