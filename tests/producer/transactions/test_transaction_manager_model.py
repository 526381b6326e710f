"""A TransactionManager through any order of calls, answers, lost answers, errors and fences: no state of it is a trap, and what
it tells the program is what its coordinator did."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_kafka_sink.errors import (
    BrokerError,
    KafkaSinkError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionError,
    TransactionTimeoutError,
    UsageError,
)
from spark_kafka_sink.producer.accumulator.producer_batch import PartitionQueue
from spark_kafka_sink.producer.accumulator.sequences import ProducerIdAndEpoch
from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from spark_kafka_sink.producer.transactions.states import Call, Reaction, State, gravest, reaction
from spark_kafka_sink.producer.transactions.transaction_manager import TransactionManager
from tests.examples import examples
from tests.producer.simulation.coordinator import SimulatedCoordinator

pytestmark = pytest.mark.slow

FOREVER_MS = 2**62

# As KafkaProducer's documentation has it: what may be called when, and where it leads at once.
MAY_BE_CALLED: Mapping[tuple[State, Call], State] = {
    (State.UNINITIALIZED, Call.INIT): State.INITIALIZING,
    (State.READY, Call.BEGIN): State.IN_TRANSACTION,
    (State.IN_TRANSACTION, Call.SEND): State.IN_TRANSACTION,
    (State.IN_TRANSACTION, Call.SEND_OFFSETS): State.IN_TRANSACTION,
    (State.IN_TRANSACTION, Call.COMMIT): State.COMMITTING_TRANSACTION,
    (State.IN_TRANSACTION, Call.ABORT): State.ABORTING_TRANSACTION,
    (State.ABORTABLE_ERROR, Call.ABORT): State.ABORTING_TRANSACTION,
}


ENDING = (State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION)


class TransactionManagerModel(RuleBasedStateMachine):
    """Records are numbers; each is in one transaction, which is a number too."""

    @initialize(version=st.sampled_from([1, 2]), begun=st.booleans())
    def start(self, version: int, begun: bool) -> None:
        self.coordinator = SimulatedCoordinator(version)
        self.manager = TransactionManager("id", 60_000, self.coordinator.finalized_feature)
        self.queues = {number: PartitionQueue("t", number, 0) for number in range(3)}
        self.pending: Call | None = None
        self.transaction = 0
        self.sent: dict[int, int] = {}  # record -> transaction
        self.waiting: list[tuple[int, int]] = []  # record, partition: not sent yet
        self.on_wire: list[tuple[int, int, ProducerIdAndEpoch]] = []
        self.refused: set[int] = set()  # transactions with a record that failed
        self.told: dict[int, bool] = {}  # transaction -> committed
        self.fenced = False
        if begun:
            self._call(Call.INIT)
            self.ask("answered")
            self._call(Call.INIT)
            self._call(Call.BEGIN)

    # Calls

    @precondition(lambda self: self.pending is not None or self.manager.state is not State.IN_TRANSACTION)
    @rule(chosen=st.integers(0, 5))
    def go_on(self, chosen: int) -> None:
        """What a program does: the same again, or what comes next."""
        following = [call for state, call in MAY_BE_CALLED if state is self.manager.state]
        self._call(self.pending or (following[chosen % len(following)] if following else Call.ABORT))

    @precondition(lambda self: self.manager.state is State.IN_TRANSACTION)
    @rule(call=st.sampled_from([Call.COMMIT, Call.COMMIT, Call.ABORT, Call.SEND_OFFSETS]))
    def end(self, call: Call) -> None:
        self._call(call)

    @rule(call=st.sampled_from([Call.INIT, Call.COMMIT, Call.ABORT, Call.BEGIN, Call.SEND_OFFSETS]))
    def call_anything(self, call: Call) -> None:
        self._call(call)

    def _call(self, call: Call) -> None:
        before = self.manager.state
        try:
            self._make(call)
        except UsageError as refused:
            self._check_refused(refused, before, call)
        except TransactionAbortableError:
            assert before is State.ABORTABLE_ERROR
            assert call is not Call.ABORT
        except TransactionError:
            assert before is State.FATAL_ERROR
        else:
            if self.pending is not call:
                assert self.manager.state is MAY_BE_CALLED[before, call]
            if call in (Call.INIT, Call.COMMIT, Call.ABORT):
                self.pending = call
                self._see_the_end(call)

    def _check_refused(self, refused: UsageError, state: State, call: Call) -> None:
        assert self.pending is not call, refused
        assert (state, call) not in MAY_BE_CALLED or self.pending is not None, refused
        assert refused.facts["state"] == state.name
        assert self.manager.state is state

    def _make(self, call: Call) -> None:
        if call is Call.BEGIN:
            self.manager.begin()
            self.transaction += 1
        elif call is Call.SEND_OFFSETS:
            self.manager.add_offsets(ConsumerGroupMetadata("g"), {("in", 0): OffsetAndMetadata(1)}, FOREVER_MS)
        else:
            self.manager.start(call, FOREVER_MS)

    def _see_the_end(self, call: Call) -> None:
        try:
            self.manager.wait(call, 0, lambda: None)
        except TransactionTimeoutError:
            return
        except (TransactionAbortableError, TransactionError):
            pass
        else:
            if call is not Call.INIT:
                self.told[self.transaction] = call is Call.COMMIT
        self.pending = None

    @precondition(lambda self: self.manager.state is State.IN_TRANSACTION)
    @rule(partition=st.integers(0, 2))
    def send_and_drain(self, partition: int) -> None:
        self.send(partition)
        self.ask("answered")
        self.drain()

    @precondition(lambda self: self.manager.state is not State.UNINITIALIZED)
    @rule(partition=st.integers(0, 2))
    def send(self, partition: int) -> None:
        try:
            self.manager.check_may_send()
        except KafkaSinkError:
            assert self.manager.state is not State.IN_TRANSACTION
            return
        record = len(self.sent)
        self.sent[record] = self.transaction
        self.waiting.append((record, partition))

    # The sender's thread

    @rule()
    def drain(self) -> None:
        refused = self.manager.unsent_error()
        if refused is not None:
            self.refused |= {self.sent[record] for record, _ in self.waiting}
            self.waiting.clear()
        identity = self.manager.sends_as
        if identity is None:
            return
        for record, partition in list(self.waiting):
            if self.manager.may_drain(self.queues[partition]):
                self.waiting.remove((record, partition))
                self.manager.sending()
                self.on_wire.append((record, partition, identity))

    @precondition(lambda self: self.manager.state in (State.INITIALIZING, *ENDING))
    @rule(success=st.booleans())
    def run(self, success: bool) -> None:
        """All that is on its way comes back."""
        self.drain()
        while self.on_wire:
            self.produce(stored=True, acked=success)
        for _ in range(3):
            self.ask("answered")

    @precondition(lambda self: self.on_wire)
    @rule(stored=st.booleans(), acked=st.booleans())
    def produce(self, stored: bool, acked: bool) -> None:
        record, partition, identity = self.on_wire.pop(0)
        if stored or acked:
            acked = self.coordinator.written(identity, ("t", partition), record) and acked
        if not acked:
            self.refused.add(self.sent[record])
            self.manager.failed(BrokerError("refused"))

    @rule()
    def miss(self) -> None:
        """What waits is dropped. With nothing there it is somebody's who was too late for the transaction."""
        if self.waiting or self.on_wire or self.manager.state in ENDING:
            self.manager.missed(KafkaSinkError("dropped"))
            self.refused |= {self.sent[record] for record, _ in self.waiting}
            self.waiting.clear()

    @rule(fate=st.sampled_from(["answered", "answered", "answered", "answered", "answer lost", "lost"]))
    def ask(self, fate: str) -> None:
        request = self.manager.next_request(0, lambda: not (self.waiting or self.on_wire))
        if request is None or fate == "lost":
            return
        body = self.coordinator.answer(request)
        if fate == "answer lost":
            return
        what, code = gravest(request.api.key, request.codes(body))
        decided = reaction(request.api.key, code)
        if decided is Reaction.DONE:
            self.manager.done(request, body)
            return
        kind = ProducerFencedError if decided is Reaction.FENCED else TransactionError
        self.manager.refused(request, decided, kind(f"{request.api.name} {what} {code}", error_code=code))

    @precondition(lambda self: self.transaction > 1 and not self.fenced)
    @rule(really=st.integers(0, 5))
    def fence(self, really: int) -> None:
        if really == 5:
            self.fenced = True
            self.coordinator.fence()

    # What must hold

    @invariant()
    def what_was_told_is_what_happened(self) -> None:
        for record, transaction in self.sent.items():
            if transaction in self.told:
                assert not (self.told[transaction] and transaction in self.refused)
                outcome = self.coordinator.committed if self.told[transaction] else self.coordinator.aborted
                other = self.coordinator.aborted if self.told[transaction] else self.coordinator.committed
                assert record not in other, (record, transaction)
                if self.told[transaction]:
                    assert record in outcome, (record, transaction)

    @invariant()
    def nothing_is_committed_that_has_lost_a_record(self) -> None:
        assert not {self.sent[record] for record in self.coordinator.committed} & self.refused

    @invariant()
    def only_a_fence_is_fatal(self) -> None:
        assert self.fenced or self.manager.state is not State.FATAL_ERROR, self.manager._error

    def teardown(self) -> None:
        """Whatever has happened, it can be ended, or says that it is fenced."""
        for _ in range(20):
            while self.waiting or self.on_wire:
                self.drain()
                if self.on_wire:
                    self.produce(stored=True, acked=True)
                else:
                    self.ask("answered")
            for _ in range(4):
                self.ask("answered")
            if self.manager.state in (State.READY, State.FATAL_ERROR):
                return
            self._call(self.pending or (Call.INIT if self.manager.state is State.UNINITIALIZED else Call.ABORT))
        raise AssertionError(f"stuck in {self.manager.state}, waiting for {self.pending}")


TestTransactionManagerModel = TransactionManagerModel.TestCase
TestTransactionManagerModel.settings = settings(max_examples=examples(200), stateful_step_count=60, deadline=None)
