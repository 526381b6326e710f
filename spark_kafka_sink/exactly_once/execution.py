"""Carries out, against a cluster, the steps that the rules of a commit, or of resolving one, say."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from spark_kafka_sink.client.backoff import ExponentialBackoff, ResponseWaiter
from spark_kafka_sink.errors import DeadlineError, KafkaSinkError, OptionError
from spark_kafka_sink.exactly_once.claim_lost import ClaimLostError
from spark_kafka_sink.exactly_once.commit_errors import checkpoint_deleted
from spark_kafka_sink.exactly_once.commit_log import Claim, CommitLog
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.evidence import Outcome
from spark_kafka_sink.exactly_once.foreign_prefix import foreign_prefix
from spark_kafka_sink.exactly_once.log_writer import RecordRefusedError
from spark_kafka_sink.exactly_once.proof import Proof, proof_of
from spark_kafka_sink.exactly_once.rules import Commit, Look, Read, View, Write, asked_for, ms_to_prepare
from spark_kafka_sink.exactly_once.share import is_job
from spark_kafka_sink.exactly_once.steps import Step as StepName
from spark_kafka_sink.exactly_once.steps import is_watched, step
from spark_kafka_sink.exactly_once.transaction_client import Ended, TransactionClient
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# Two drivers that take the log from each other must not do so at the same pace; the back-off has a random part.
_BACKOFF: Final = ExponentialBackoff(20, 1000)
SWEEP_S: Final = 10.0
"""How long to try to abort what nobody will commit: its coordinator does so anyway, later."""
_STEPS: Final[Mapping[State, tuple[StepName, StepName]]] = {
    State.PREPARED: ("prepared.before", "prepared.after"),
    State.COMPLETE: ("complete.before", "complete.after"),
}


@dataclass(slots=True)
class Progress:
    """What was done so far, over all attempts. rows: made visible. is_prepared_maybe: else nobody can have prepared what this
    commit() was given. logged: transactions that the record of the batch, as last read, asks for. prepared, visible: when,
    on time.monotonic's clock."""

    rows: int = 0
    committed: int = 0
    aborted: int = 0
    is_prepared_maybe: bool = False
    logged: frozenset[tuple[str, int, int]] = frozenset()
    prepared: float | None = None
    visible: float | None = None


def until_it_keeps_its_claim(attempt: Callable[[], Result], deadline: float) -> Result:
    """Call `attempt` again when it loses its claim to the log: whoever has it now may have written anything."""
    waiting = ResponseWaiter(deadline, _BACKOFF)
    while True:
        try:
            return attempt()
        except ClaimLostError as error:
            waiting.note("the commit log", error.message)
            waiting.again()


class Execution:
    """One attempt, from the first look at the log to an end. Deadlines are on time.monotonic's clock.

    OptionError: the query's records are under another prefix, or in another partition. CommitStoppedError: its checkpoint was
    another's.

    ClaimLostError: somebody else has the log, or nobody knows what became of a record: a new attempt begins at the top.
    """

    def __init__(
        self,
        log: CommitLog,
        transactions: TransactionClient,
        ids: TransactionalIds,
        view: View,
        deadline: float,
        done: Progress,
        checkpoint: str = "",
        *,
        sweep_s: float = SWEEP_S,
        list_s: float | None = None,
    ) -> None:
        """view: of the batch, with nothing known. checkpoint: the query's, "" where it is not known. sweep_s: of `abort`. list_s:
        after how long to go on without the list of open transactions; None where what is decided depends on it."""
        self.view = view
        self.is_listed = True  # until the list of open transactions was not to be had in time
        self._log = log
        self._claim: Claim | None = None
        self._transactions = transactions
        self._ids = ids
        self._deadline = deadline
        self._done = done
        self._checkpoint = checkpoint
        self._sweep_s = sweep_s
        self._list_s = list_s
        self._looked = 0.0

    def run(self, decide: Callable[[View], object]) -> object:
        """Do what `decide` says until it says something else, which is returned."""
        while True:
            match decide(self.view):
                case Read():
                    self._read()
                case Look():
                    self._look()
                case Write() as write:
                    self._write(write)
                case Commit(handles):
                    self._commit(handles)
                case end:
                    return end

    def abort(self, handles: tuple[TransactionHandle, ...]) -> bool:
        """End what nobody will commit: open, it holds readers back until it times out. Whether none is open; never raises."""
        if not handles:
            return True
        self._step("sweep.before")
        try:
            is_all = self._sweep(handles, time.monotonic() + self._sweep_s)
        except KafkaSinkError as error:
            logger.warning(
                "batch %s of %s: transactions may stay open until they time out: %s", self.view.batch, self._ids.query_id, error
            )
            return False
        self._step("sweep.after")
        return is_all

    def _sweep(self, handles: tuple[TransactionHandle, ...], deadline: float) -> bool:
        ended = self._transactions.end(handles, False, deadline)
        left = [each for each in handles if ended[each.transactional_id].outcome is not Outcome.ABORTED]
        self._done.aborted += len(handles) - len(left)
        # The answer to an EndTxn(abort) of one that timed out just before proves nothing: what is open now does.
        described = self._transactions.describe([each.transactional_id for each in left], deadline) if left else {}
        return not any(proof_of(each, described.get(each.transactional_id)) is Proof.OPEN for each in left)

    def forget(self) -> None:
        """Remove the records, of which nobody will ask again. That they stay is no harm: what goes wrong is logged."""
        assert self._claim is not None
        try:
            self._claim.forget(self._deadline)
        except KafkaSinkError as error:
            logger.warning("%s stays in the commit log: %s", self._ids.query_id, error)

    def _read(self) -> None:
        self._step("log.before")
        self._claim = self._log.claim(self._ids, self._deadline)
        self._step("log.after")
        last = self._claim.last
        if last is not None:
            self._check_prefix(last)
            if last.batch == self.view.batch:
                self._done.logged = asked_for(last)
        # Closed: somebody has ended what was left of it before anything was committed. A job's id is new.
        is_first = (last is None or last.state is State.CLOSED) and self.view.batch in (0, self.view.start)
        if is_first and not is_job(self._ids.query_id):
            self._check_others()
        self.view = self.view.with_read(self._claim.last)

    def _check_prefix(self, last: CommitRecord) -> None:
        """Under another prefix a claim fences nobody: who runs under that one could write over what is written here."""
        other = foreign_prefix(self._ids.prefix, last)
        if other is None:
            return
        raise OptionError(
            f"option transactional.id.prefix: the commit log has batch {last.batch} of {last.query_id} with the prefix {other};"
            " set it as it was. Of two sinks of one query, give each a commit.log.topic of its own as well",
            option="transactional.id.prefix",
            query_id=last.query_id,
        )

    def _check_others(self) -> None:
        """Of a query that nothing was committed of, as far as is known where it was looked for. What this version cannot read of
        another's is no reason to end it."""
        logged = self._log.last_records(self._deadline)
        for error in logged.unreadable:
            if error.facts.get("query_id") == self._ids.query_id:
                raise error
            logger.warning("query %s: whether its checkpoint was another's is not known: %s", self._ids.query_id, error)
        own = logged.records.get(self._ids.query_id)
        if own is not None and own.partition != self._log.partition_of(self._ids.query_id):
            raise OptionError(
                f"option commit.log.partitions: the commit log has batch {own.record.batch} of {self._ids.query_id} in partition"
                f" {own.partition}, where it would not be with this number; set it as it was",
                option="commit.log.partitions",
                query_id=self._ids.query_id,
            )
        if self._checkpoint and self.view.batch != self.view.start:
            self._check_checkpoint(each.record for each in logged.records.values())

    def _check_checkpoint(self, records: Iterable[CommitRecord]) -> None:
        """A query that begins where another one had its checkpoint is that one, without what it remembered."""
        for other in records:
            if other.checkpoint == self._checkpoint and other.query_id != self._ids.query_id:
                raise checkpoint_deleted(self._ids.query_id, self.view, other)

    def _look(self) -> None:
        described = self._transactions.describe([each.transactional_id for each in self.view.own_handles], self._deadline)
        listed = self._listed()
        self._looked = time.monotonic()
        self.view = self.view.with_look(described, listed, time.time_ns() // 1_000_000)

    def _listed(self) -> tuple[TransactionHandle, ...]:
        if self._list_s is None:
            return self._transactions.open_handles(self._ids, self._deadline)
        try:
            return self._transactions.open_handles(self._ids, min(self._deadline, time.monotonic() + self._list_s))
        except KafkaSinkError as error:
            logger.warning(
                "batch %s of %s: brokers do not list what is open, so what lost tasks may have left open is not aborted now. It"
                " stays so until a later commit aborts it, or until it times out: %s",
                self.view.batch,
                self._ids.query_id,
                error,
            )
            self.is_listed = False
            return ()

    def _write(self, write: Write) -> None:
        is_prepared = write.state is State.PREPARED
        before, after = _STEPS.get(write.state, (None, None))
        record = CommitRecord(
            self._ids.query_id,
            self.view.batch,
            write.state,
            os.urandom(8).hex(),
            write.rows,
            write.transactions,
            write.committed,
            write.aborted,
            self._checkpoint or ("" if self.view.last is None else self.view.last.checkpoint),
        )
        assert self._claim is not None  # whoever decides to write has read
        self._step(before)
        was_prepared_maybe = self._done.is_prepared_maybe
        self._done.is_prepared_maybe |= is_prepared
        deadline = self._deadline_of(write)
        try:
            self._claim.write(record, deadline)
        except RecordRefusedError:
            self._done.is_prepared_maybe = was_prepared_maybe
            raise
        except DeadlineError as error:
            # Its EndTxn was not sent, so it is not in the log, nor will it be.
            self._done.is_prepared_maybe = was_prepared_maybe
            if deadline == self._deadline:
                raise
            # At the top it is found that too little time is left.
            raise ClaimLostError(f"the record could not be written in time: {error.message}", **error.facts) from error
        if write.state is not State.COMPLETE:
            self._done.prepared = time.monotonic() if is_prepared else None
        self._step(after)
        self.view = self.view.with_written(record)

    def _deadline_of(self, write: Write) -> float:
        left_ms = ms_to_prepare(self.view, write) if write.state is State.PREPARED else None
        return self._deadline if left_ms is None else min(self._deadline, self._looked + left_ms / 1000)

    def _commit(self, handles: tuple[TransactionHandle, ...]) -> None:
        ended = dict[str, Ended]()
        for some in [(each,) for each in handles] if is_watched() else [handles]:
            self._step("end.before")
            ended |= self._transactions.commit(some, self._deadline)
            self._step("end.after")
        self.view = self.view.with_outcomes({each: end.outcome for each, end in ended.items()})
        if all(end.outcome is Outcome.COMMITTED for end in ended.values()):
            assert self.view.last is not None
            self._done.rows, self._done.committed, self._done.visible = self.view.last.rows, len(handles), time.monotonic()

    def _step(self, name: StepName | None) -> None:
        if name is not None:
            step(name, self.view.batch)
