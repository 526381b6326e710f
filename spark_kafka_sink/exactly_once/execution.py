"""Carries out the steps that the rules of a commit, or of resolving one, choose."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from spark_kafka_sink.client.backoff import ExponentialBackoff, ResponseWaiter
from spark_kafka_sink.client.topics import records_are_gone
from spark_kafka_sink.errors import DeadlineError, KafkaSinkError, OptionError
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.commit_errors import checkpoint_deleted
from spark_kafka_sink.exactly_once.commit_log import Claim, CommitLog
from spark_kafka_sink.exactly_once.commit_log_topic import HOW_TO_LOOK, made_again, without_record
from spark_kafka_sink.exactly_once.commit_record import NO_ID, CommitRecord, State, with_rows
from spark_kafka_sink.exactly_once.commit_rules import Commit, Look, Read, View, Write, asked_for, ms_to_prepare
from spark_kafka_sink.exactly_once.failpoints import Failpoint
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds, foreign_prefix, is_job
from spark_kafka_sink.exactly_once.proof import Outcome, Proof, TransactionDescription, proof_of
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# Two drivers that take the log from each other must not do so at the same pace; the back-off has a random part.
_BACKOFF: Final = ExponentialBackoff(20, 1000)
_REPORT_S: Final = 5.0
"""For the end of a report's transaction, once the rows of its batch are committed."""
_SWEEP_S_EACH: Final = 0.002
"""On a busy machine one broker ended 10,000 transactions in 13 s, on an idle one in under 4 s."""
_FAILPOINTS: Final[Mapping[State, tuple[Failpoint, Failpoint]]] = {
    State.PREPARED: ("prepared.before", "prepared.after"),
    State.COMPLETE: ("complete.before", "complete.after"),
}


@dataclass(frozen=True, slots=True)
class BestEffort:
    """Time limits of the optional parts of a commit.

    Attributes:
        sweep_s: Limit for aborting abandoned transactions, in s, to which 2 ms are added for each. Their coordinators abort them
            later anyway.
        list_s: Limit for listing open transactions, in s, to abort those of lost tasks; None if the decision needs the list.
    """

    sweep_s: float = 10.0
    list_s: float | None = None


@dataclass(slots=True)
class CommitCall:
    """One call of commit() or of a command over all its attempts: its limits and its progress.

    Attributes:
        deadline: On time.monotonic's clock.
        checkpoint: Checkpoint location of the query; "" if unknown.
        name: Name of the query; "" if unknown.
        batch: The batch whose rows were made visible; -1 before that.
        rows: Number of rows made visible, without transactions that have rows in a topic of `gone`.
        is_prepared_maybe: Whether the transactions of this commit() may have been prepared.
        logged: Transactions that the last record read for the batch asks to commit.
        topic_id: Id of the commit log's topic as the first attempt read it, or an earlier call; None before that.
        writes_rows: Whether this is a commit(), which must not write rows twice; the commands only end transactions.
        is_committed_before: Whether transactions of an earlier attempt are committed by a record which is gone.
        replaced: The topics that were deleted before the commit, and perhaps created again.
        gone: As in View, over all attempts.
        prepared, visible: When the batch was prepared and committed, on time.monotonic's clock.
        ended: Ids of the transactions that were committed. Their rows are visible once the brokers have written the markers.
    """

    deadline: float
    checkpoint: str = ""
    name: str = ""
    best_effort: BestEffort = BestEffort()
    batch: int = -1
    rows: int = 0
    committed: int = 0
    aborted: int = 0
    is_prepared_maybe: bool = False
    logged: frozenset[tuple[str, int, int]] = frozenset()
    topic_id: uuid.UUID | None = None
    writes_rows: bool = False
    is_committed_before: bool = False
    replaced: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    prepared: float | None = None
    visible: float | None = None
    ended: tuple[str, ...] = ()

    @property
    def is_logged_maybe(self) -> bool:
        """Whether the log may have had a record to commit the batch, of this run or of an earlier one."""
        return bool(self.logged) or self.is_prepared_maybe or self.is_committed_before or self.visible is not None


def retry_on_claim_lost(attempt: Callable[[], Result], deadline: float) -> Result:
    """Calls `attempt` again whenever it loses its claim to the log, because the new owner may have written anything."""
    waiting = ResponseWaiter(deadline, _BACKOFF)
    while True:
        try:
            with waiting.told_as_well():
                return attempt()
        except ClaimLostError as error:
            waiting.note("the commit log", error.message)
            waiting.again()


class Execution:
    """One attempt, from the first read of the log to an end. `retry_on_claim_lost` starts the next one.

    Raises OptionError if the query's records are under another prefix or in another partition, CommitStoppedError if its
    checkpoint belonged to another query, and ClaimLostError if another process has the log or a write has an unknown outcome.

    Attributes:
        view: The knowledge about the batch.
        is_listed: False once brokers failed to list the open transactions in time.
    """

    def __init__(
        self, log: CommitLog, transactions: TransactionClient, ids: TransactionalIds, view: View, call: CommitCall
    ) -> None:
        """view: an empty view of the batch."""
        self.view = view.with_gone(call.gone)
        self.is_listed = True
        self._log = log
        self._claim: Claim | None = None
        self._transactions = transactions
        self._ids = ids
        self._call = call
        self._looked = 0.0

    def run(self, decide: Callable[[View], object]) -> object:
        """Carries out the steps that `decide` returns. Returns its first result that is not a step, which is the end."""
        while True:
            self._call.gone = self.view.gone
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

    def abort(self, handles: tuple[TransactionHandle, ...]) -> frozenset[Proof]:
        """Aborts abandoned transactions, because open ones block readers until they time out.

        Never raises. Returns what is proved of those whose abort was not confirmed: with OPEN, some may still be open, and with
        COMMITTED, some were committed before, so their rows are visible.
        """
        if not handles:
            return frozenset()
        self._reach("sweep.before")
        deadline = time.monotonic() + self._call.best_effort.sweep_s + len(handles) * _SWEEP_S_EACH
        try:
            ended = self._transactions.end(handles, False, deadline)
            left = [each for each in handles if ended[each.transactional_id].outcome is not Outcome.ABORTED]
            self._call.aborted += len(handles) - len(left)
            # The answer to an EndTxn(abort) of a transaction that has just timed out proves nothing; the open ones do.
            described = self._transactions.describe([each.transactional_id for each in left], deadline) if left else {}
        except KafkaSinkError as error:
            logger.warning(
                "batch %s of %s: transactions may stay open until they time out: %s", self.view.batch, self._ids.query_id, error
            )
            return frozenset({Proof.OPEN})
        self._reach("sweep.after")
        return frozenset(proof_of(each, described.get(each.transactional_id)) for each in left)

    def forget(self) -> None:
        """Removes the records of a job that is no longer needed. Errors are only logged: leftover records do no harm."""
        assert self._claim is not None
        try:
            self._claim.forget(self._call.deadline)
        except KafkaSinkError as error:
            logger.warning("%s stays in the commit log: %s", self._ids.query_id, error)

    def _read(self) -> None:
        self._reach("log.before")
        try:
            self._claim = self._log.claim(self._ids, self._call.deadline)
        except OptionError as error:  # the new topic is not suitable either, but what was written is what matters first
            if self._log.is_other(self._call.topic_id):
                raise made_again(self._log.topic) from error
            raise
        self._reach("log.after")
        last = self._claim.last
        # An empty log says that nothing is prepared, though this call may have committed what the one before listed.
        is_other = self._call.topic_id is not None and self._claim.topic_id != self._call.topic_id
        if is_other:
            if not self._is_written_again(last):
                raise made_again(self._log.topic)
            logger.warning(
                "batch %s of %s: the commit log was made again, and another driver has written the batch since. Rows of an"
                " earlier attempt may be visible as well. Look whether they are: %s",
                self.view.batch,
                self._ids.query_id,
                HOW_TO_LOOK,
            )
        self._call.topic_id = self._claim.topic_id
        if last is not None:
            self._check_prefix(last)
            if last.batch == self.view.batch:
                self._call.logged = asked_for(last)
        # Closed: the remaining transactions were ended before anything was committed. A job's id is new.
        is_first = (last is None or last.state is State.CLOSED) and self.view.batch in (0, self.view.start)
        if is_first and not is_job(self._ids.query_id):
            self._check_others()
            if self._call.writes_rows and self.view.batch != self.view.start:
                self._check_not_committed(last)
        self.view = self.view.with_read(self._claim.last)

    def _is_written_again(self, last: CommitRecord | None) -> bool:
        """Returns whether a new log has the batch, written by another driver, and this run was never prepared in the old one."""
        if last is None or self._call.is_logged_maybe:
            return False
        return last.batch == self.view.batch and last.state in (State.PREPARED, State.COMPLETE)

    def _check_prefix(self, last: CommitRecord) -> None:
        """Raises OptionError for another prefix: a claim does not fence drivers with that prefix, so they could overwrite it."""
        other = foreign_prefix(self._ids.prefix, last)
        if other is None:
            return
        raise OptionError(
            f"option transactional.id.prefix: the commit log has batch {last.batch} of {last.query_id} with the prefix {other};"
            " set the option to that prefix. If one query has two sinks, give each its own commit.log.topic as well",
            option="transactional.id.prefix",
            query_id=last.query_id,
        )

    def _check_others(self) -> None:
        """Checks the log's other partitions for a query without a record in its own partition.

        Unreadable records of other queries do not stop this one.
        """
        logged = self._log.last_records(self._call.deadline)
        for error in logged.unreadable:
            if error.facts.get("query_id") == self._ids.query_id:
                raise error
            logger.warning(
                "query %s: could not check whether its checkpoint belonged to another query: %s", self._ids.query_id, error
            )
        own = logged.records.get(self._ids.query_id)
        if own is not None and own.partition != self._log.partition_of(self._ids.query_id):
            raise OptionError(
                f"option commit.log.partitions: the commit log has batch {own.record.batch} of {self._ids.query_id} in partition"
                f" {own.partition}, which does not match this number of partitions; set it to the previous value",
                option="commit.log.partitions",
                query_id=self._ids.query_id,
            )
        if self._call.checkpoint and self.view.batch != self.view.start:
            for other in (each.record for each in logged.records.values()):
                if other.checkpoint == self._call.checkpoint and other.query_id != self._ids.query_id:
                    # It is the same query, restarted.
                    raise checkpoint_deleted(self._ids.query_id, self.view, other)

    def _check_not_committed(self, last: CommitRecord | None) -> None:
        """Raises CommitLogDeletedError if the query's transactions are committed, which only a record can have led to.

        If this run's own are among them, the commit finds that by itself, and must not abort the others.
        """
        committed = self._committed()
        if not committed or not committed.isdisjoint(each.transactional_id for each in self.view.own_handles):
            return
        self._claim = self._log.claim(self._ids, self._call.deadline)
        if (again := self._claim.last) is not None and (last is None or again.record_id != last.record_id):
            raise ClaimLostError(f"another driver has written batch {again.batch} of {self._ids.query_id} in the meantime")
        self._call.is_committed_before = True
        raise without_record(self._log.topic, self._ids.query_id, len(committed))

    def _committed(self) -> frozenset[str]:
        """Returns the ids of this query's committed transactions; none if brokers do not list them in time."""
        try:
            return frozenset(self._transactions.list_committed(self._ids, self._listing_deadline()))
        except KafkaSinkError as error:
            logger.warning(
                "batch %s of %s: brokers did not list committed transactions, so it is not known whether the commit log was"
                " deleted after the batch had been written: %s",
                self.view.batch,
                self._ids.query_id,
                error,
            )
            return frozenset()

    def _listing_deadline(self) -> float:
        list_s = self._call.best_effort.list_s
        return self._call.deadline if list_s is None else min(self._call.deadline, time.monotonic() + list_s)

    def _look(self) -> None:
        described = self._transactions.describe([each.transactional_id for each in self.view.own_handles], self._call.deadline)
        listed = self._listed(described)
        replaced = self._replaced(each for handle in self.view.own_handles for each in handle.topic_ids)
        self._looked = time.monotonic()
        self.view = self.view.with_look(described, listed, time.time_ns() // 1_000_000, replaced)

    def _listed(self, described: Mapping[str, TransactionDescription]) -> tuple[TransactionHandle, ...]:
        if self._call.best_effort.list_s is None:
            return self._transactions.open_handles(self._ids, self._call.deadline, described)
        try:
            return self._transactions.open_handles(self._ids, self._listing_deadline(), described)
        except KafkaSinkError as error:
            logger.warning(
                "batch %s of %s: brokers did not list open transactions, so those of lost tasks are not aborted now. They stay"
                " open until a later commit aborts them or they time out: %s",
                self.view.batch,
                self._ids.query_id,
                error,
            )
            self.is_listed = False
            return ()

    def _write(self, write: Write) -> None:
        last = self.view.last
        is_prepared = write.state is State.PREPARED and (last is None or last.state is not State.PREPARED)
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
            self._call.checkpoint or ("" if last is None else last.checkpoint),
            write.tasks,
            write.topic_ids,
            self._call.name or ("" if last is None else last.name),
        )
        assert self._claim is not None  # a decision to write follows a read
        self._reach(before)
        was_prepared_maybe = self._call.is_prepared_maybe
        self._call.is_prepared_maybe |= is_prepared
        left_ms = ms_to_prepare(self.view, write) if is_prepared else None
        deadline = self._call.deadline if left_ms is None else min(self._call.deadline, self._looked + left_ms / 1000)
        try:
            self._claim.write(record, deadline)
        except BaseException as error:
            if not self._claim.is_end_asked:  # the record is not in the log and never will be
                self._call.is_prepared_maybe = was_prepared_maybe
            if isinstance(error, DeadlineError) and deadline != self._call.deadline:
                # The next attempt finds that too little time is left.
                raise ClaimLostError(f"the record could not be written in time: {error.message}", **error.facts) from error
            raise
        if is_prepared or write.state not in (State.PREPARED, State.COMPLETE):
            self._call.prepared = time.monotonic() if is_prepared else None
        self._reach(after)
        self.view = self.view.with_written(record)

    def _commit(self, handles: tuple[TransactionHandle, ...]) -> None:
        last = self.view.last
        assert last is not None
        is_commit = True
        if gone := self._replaced(each for each in last.topic_ids if each[1] != NO_ID):
            described = self._transactions.describe([each.transactional_id for each in handles], self._call.deadline)
            left = [each for each in handles if proof_of(each, described.get(each.transactional_id)) is not Proof.COMMITTED]
            gone &= {topic for each in left for topic, _ in each.partitions}
            is_commit = not gone
            if gone and len(left) < len(handles):
                logger.warning("batch %s of %s: %s", self.view.batch, self._ids.query_id, records_are_gone(gone))
                self.view = self.view.with_gone(gone)
                return
        rows = with_rows(handles)
        ended = self._transactions.end_surely(rows, is_commit, self._call.deadline, self.view.batch)
        is_committed = all(end.outcome is Outcome.COMMITTED for end in ended.values())
        if is_committed and (report := [each for each in handles if each not in rows]):
            with suppress(DeadlineError):  # which is no reason to fail a batch that is committed
                deadline = min(self._call.deadline, time.monotonic() + _REPORT_S)
                ended |= self._transactions.end_surely(tuple(report), True, deadline, self.view.batch)
        self.view = self.view.with_outcomes({each: end.outcome for each, end in ended.items()})
        if is_committed:
            whole = (each for each in last.handles if last.gone.isdisjoint(topic for topic, _ in each.partitions))
            self._call.rows = sum(each.records for each in whole)
            self._call.batch, self._call.committed, self._call.visible = last.batch, len(handles), time.monotonic()
            self._call.ended = tuple(ended)

    def _replaced(self, topic_ids: Iterable[tuple[str, str]]) -> frozenset[str]:
        """Returns the topics that no longer have the id under which rows were acknowledged: a commit could not show those."""
        found = self._transactions.replaced(topic_ids, self._call.deadline)
        self._call.replaced |= found
        return found

    def _reach(self, name: Failpoint | None) -> None:
        if name is not None:
            failpoints.reach(name, self.view.batch)
