"""Carries out the steps that the rules of a commit, or of resolving one, decide on."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from spark_kafka_sink.client.backoff import ExponentialBackoff, ResponseWaiter
from spark_kafka_sink.errors import DeadlineError, KafkaSinkError, OptionError
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.commit_errors import checkpoint_deleted
from spark_kafka_sink.exactly_once.commit_log import Claim, CommitLog
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.failpoints import Failpoint
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError, RecordRefusedError
from spark_kafka_sink.exactly_once.micro_batch import is_job
from spark_kafka_sink.exactly_once.proof import Outcome, Proof, proof_of
from spark_kafka_sink.exactly_once.rules import Commit, Look, Read, View, Write, asked_for, ms_to_prepare
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds, foreign_prefix
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# Two drivers that take the log from each other must not do so at the same pace; the back-off has a random part.
_BACKOFF: Final = ExponentialBackoff(20, 1000)
_FAILPOINTS: Final[Mapping[State, tuple[Failpoint, Failpoint]]] = {
    State.PREPARED: ("prepared.before", "prepared.after"),
    State.COMPLETE: ("complete.before", "complete.after"),
}


@dataclass(frozen=True, slots=True)
class BestEffort:
    """How long to try what a commit can do without.

    Attributes:
        sweep_s: aborting transactions that nobody will commit: their coordinators do so anyway, later.
        list_s: listing open transactions, to abort those of lost tasks; None where what is decided depends on the list.
    """

    sweep_s: float = 10.0
    list_s: float | None = None


@dataclass(slots=True)
class CommitCall:
    """One call of commit(), or of a command, over all of its attempts: its bounds, and what it has done so far.

    Attributes:
        deadline: on time.monotonic's clock.
        checkpoint: the query's, "" where it is not known.
        rows: made visible.
        is_prepared_maybe: unless it is set, nobody can have prepared what this commit() was given.
        logged: transactions that the record of the batch, as last read, asks for.
        prepared, visible: when, on time.monotonic's clock.
    """

    deadline: float
    checkpoint: str = ""
    best_effort: BestEffort = BestEffort()
    rows: int = 0
    committed: int = 0
    aborted: int = 0
    is_prepared_maybe: bool = False
    logged: frozenset[tuple[str, int, int]] = frozenset()
    prepared: float | None = None
    visible: float | None = None


def retry_on_claim_lost(attempt: Callable[[], Result], deadline: float) -> Result:
    """Calls `attempt` again when it loses its claim to the log, because its new owner may have written anything."""
    waiting = ResponseWaiter(deadline, _BACKOFF)
    while True:
        try:
            return attempt()
        except ClaimLostError as error:
            waiting.note("the commit log", error.message)
            waiting.again()


class Execution:
    """One attempt, from the first look at the log to an end. `retry_on_claim_lost` makes the next one.

    Raises OptionError where the query's records are under another prefix, or in another partition; CommitStoppedError where its
    checkpoint was another query's; ClaimLostError where somebody else has the log, or nobody knows what became of a record.

    Attributes:
        view: what is known of the batch.
        is_listed: False once brokers did not list the open transactions in time.
    """

    def __init__(
        self,
        log: CommitLog,
        transactions: TransactionClient,
        ids: TransactionalIds,
        view: View,
        call: CommitCall,
    ) -> None:
        """view: of the batch, with nothing known."""
        self.view = view
        self.is_listed = True
        self._log = log
        self._claim: Claim | None = None
        self._transactions = transactions
        self._ids = ids
        self._call = call
        self._looked = 0.0

    def run(self, decide: Callable[[View], object]) -> object:
        """Carries out the steps that `decide` returns; returns the first value of it that is no step, which is the end."""
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
        """Aborts transactions that nobody will commit, because open ones hold readers back until they time out.

        It never raises; it returns whether none of them is open.
        """
        if not handles:
            return True
        self._reach("sweep.before")
        deadline = time.monotonic() + self._call.best_effort.sweep_s
        try:
            ended = self._transactions.end(handles, False, deadline)
            left = [each for each in handles if ended[each.transactional_id].outcome is not Outcome.ABORTED]
            self._call.aborted += len(handles) - len(left)
            # The answer to an EndTxn(abort) of one that timed out just before proves nothing: what is open now does.
            described = self._transactions.describe([each.transactional_id for each in left], deadline) if left else {}
        except KafkaSinkError as error:
            logger.warning(
                "batch %s of %s: transactions may stay open until they time out: %s", self.view.batch, self._ids.query_id, error
            )
            return False
        self._reach("sweep.after")
        return not any(proof_of(each, described.get(each.transactional_id)) is Proof.OPEN for each in left)

    def forget(self) -> None:
        """Removes the records of a job that nobody will ask for again. That they stay does no harm, so errors are only logged."""
        assert self._claim is not None
        try:
            self._claim.forget(self._call.deadline)
        except KafkaSinkError as error:
            logger.warning("%s stays in the commit log: %s", self._ids.query_id, error)

    def _read(self) -> None:
        self._reach("log.before")
        self._claim = self._log.claim(self._ids, self._call.deadline)
        self._reach("log.after")
        last = self._claim.last
        if last is not None:
            self._check_prefix(last)
            if last.batch == self.view.batch:
                self._call.logged = asked_for(last)
        # Closed: somebody has ended what was left of it before anything was committed. A job's id is new.
        is_first = (last is None or last.state is State.CLOSED) and self.view.batch in (0, self.view.start)
        if is_first and not is_job(self._ids.query_id):
            self._check_others()
        self.view = self.view.with_read(self._claim.last)

    def _check_prefix(self, last: CommitRecord) -> None:
        """Raises OptionError for another prefix: a claim does not fence who runs under that one and could overwrite records."""
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
        """Checks, for a query without a record in its partition, what the log's other partitions say.

        What this version cannot read of another query is no reason to stop this one.
        """
        logged = self._log.last_records(self._call.deadline)
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
        if self._call.checkpoint and self.view.batch != self.view.start:
            for other in (each.record for each in logged.records.values()):
                if other.checkpoint == self._call.checkpoint and other.query_id != self._ids.query_id:
                    # It is that query, started over.
                    raise checkpoint_deleted(self._ids.query_id, self.view, other)

    def _look(self) -> None:
        described = self._transactions.describe([each.transactional_id for each in self.view.own_handles], self._call.deadline)
        listed = self._listed()
        self._looked = time.monotonic()
        self.view = self.view.with_look(described, listed, time.time_ns() // 1_000_000)

    def _listed(self) -> tuple[TransactionHandle, ...]:
        list_s = self._call.best_effort.list_s
        if list_s is None:
            return self._transactions.open_handles(self._ids, self._call.deadline)
        try:
            return self._transactions.open_handles(self._ids, min(self._call.deadline, time.monotonic() + list_s))
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
        before, after = _FAILPOINTS.get(write.state, (None, None))
        record = CommitRecord(
            self._ids.query_id,
            self.view.batch,
            write.state,
            os.urandom(8).hex(),
            write.rows,
            write.transactions,
            write.committed,
            write.aborted,
            self._call.checkpoint or ("" if self.view.last is None else self.view.last.checkpoint),
        )
        assert self._claim is not None  # whoever decides to write has read
        self._reach(before)
        was_prepared_maybe = self._call.is_prepared_maybe
        self._call.is_prepared_maybe |= is_prepared
        left_ms = ms_to_prepare(self.view, write) if is_prepared else None
        deadline = self._call.deadline if left_ms is None else min(self._call.deadline, self._looked + left_ms / 1000)
        try:
            self._claim.write(record, deadline)
        except RecordRefusedError:
            self._call.is_prepared_maybe = was_prepared_maybe
            raise
        except DeadlineError as error:
            # Its EndTxn was not sent, so it is not in the log, nor will it be.
            self._call.is_prepared_maybe = was_prepared_maybe
            if deadline == self._call.deadline:
                raise
            # At the top it is found that too little time is left.
            raise ClaimLostError(f"the record could not be written in time: {error.message}", **error.facts) from error
        if write.state is not State.COMPLETE:
            self._call.prepared = time.monotonic() if is_prepared else None
        self._reach(after)
        self.view = self.view.with_written(record)

    def _commit(self, handles: tuple[TransactionHandle, ...]) -> None:
        ended = self._transactions.commit(handles, self._call.deadline, self.view.batch)
        self.view = self.view.with_outcomes({each: end.outcome for each, end in ended.items()})
        if all(end.outcome is Outcome.COMMITTED for end in ended.values()):
            assert self.view.last is not None
            self._call.rows, self._call.committed, self._call.visible = self.view.last.rows, len(handles), time.monotonic()

    def _reach(self, name: Failpoint | None) -> None:
        if name is not None:
            failpoints.reach(name, self.view.batch)
