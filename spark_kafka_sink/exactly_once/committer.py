"""Commits micro-batches and batch jobs, and aborts jobs that failed."""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NoReturn

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import CommitError, DeadlineError, KafkaSinkError
from spark_kafka_sink.exactly_once import failpoints, recovery_rules
from spark_kafka_sink.exactly_once.commit_errors import RowVisibility, batch_aborted, commit_stopped, commit_timeout, rows_of
from spark_kafka_sink.exactly_once.commit_log import CommitLog, old_jobs
from spark_kafka_sink.exactly_once.commit_log_topic import CommitLogDeletedError, how_to_look, made_again
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction, State, TaskRows, with_rows
from spark_kafka_sink.exactly_once.commit_rules import (
    Done,
    GiveUp,
    Read,
    Step,
    Stop,
    View,
    asked_for,
    decide,
    key,
    prepares_first,
)
from spark_kafka_sink.exactly_once.execution import BestEffort, CommitCall, Execution, retry_on_claim_lost
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError
from spark_kafka_sink.exactly_once.micro_batch import NO_QUERY, MicroBatch, TransactionalIds
from spark_kafka_sink.exactly_once.proof import Proof
from spark_kafka_sink.exactly_once.recovery_rules import Refusal, Refused
from spark_kafka_sink.exactly_once.transaction_client import PREPARE_COMMIT, TransactionClient
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

logger = logging.getLogger(__name__)

OwnTransactions = tuple[PreparedTransaction, ...]
"""The transactions in which the tasks of one run have written a batch."""

_Run = tuple[str, int, tuple[str, int, int] | None]
"""One run of a batch: the query's id, the batch's number, and the key of a transaction; None of a run without any."""

# One job in sixteen, chosen by the end of its random id, because cleaning up reads the whole log.
_SWEEPING: Final = "0"
_FORGOTTEN_AT_ONCE: Final = 100
_REMEMBERED: Final = 1000
_STOP_S: Final = 10.0
"""For ending a stopped run's transactions: `query.stop()` waits for it, also if Kafka does not answer."""


# A broker that does not list open transactions must not delay rows.
_LIST_S: Final = 5.0
_BEST_EFFORT: Final = BestEffort(list_s=_LIST_S)


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The result of a commit.

    Attributes:
        rows: Number of rows that this commit made visible; 0 if an earlier one did.
        own: Whether these rows are exactly those that this run's tasks wrote. Otherwise all or some of them are of an earlier
            attempt, whose driver died after it had prepared them, or which was committed in part.
        committed, aborted: Number of transactions that were committed and aborted.
        visible_ms: Time from writing the prepared record to the end of the last transaction, in ms; 0 if the record existed.
        commit_ms: Duration of commit(), in ms.
        is_first: Whether this commit completed the batch; False if an earlier one did.
    """

    rows: int
    own: bool
    committed: int
    aborted: int
    visible_ms: int
    commit_ms: int
    is_first: bool = True


class Committer:
    """Commits the batches of a query. If a commit is interrupted, repeating the call completes it.

    One thread at a time may use it.
    """

    def __init__(
        self,
        log: CommitLog,
        transactions: TransactionClient,
        prefix: str,
        timeout_s: float,
        options: str = "",
        best_effort: BestEffort = _BEST_EFFORT,
    ) -> None:
        """prefix: prefix of transactional ids. timeout_s: limit of each call, in s. options: options of the suggested command."""
        self._log = log
        self._transactions = transactions
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._best_effort = best_effort
        self._options = options
        # Runs of batches whose record this process has written, or may have: Spark commits one once, other callers repeat it.
        self._prepared: deque[_Run] = deque(maxlen=_REMEMBERED)
        # The log's topic, by query and batch, in which a record of the batch was: a new topic does not have it.
        self._logged_in: dict[tuple[str, int], uuid.UUID] = {}
        self._is_checked = False

    def check(self, batch: MicroBatch, timeout_s: float) -> None:
        """Checks, before the tasks of a job or of a query's first batch write, that the commit log can be claimed for it, read
        and written to.

        Raises the error that prevents this, and UnsupportedVersionError for a broker that is too old. One job in sixteen also
        removes the records of old jobs.
        """
        deadline = time.monotonic() + timeout_s
        self._check_brokers(deadline)
        self._log.check(TransactionalIds(self._prefix, batch.query_id), deadline)
        if batch.is_job and batch.query_id.endswith(_SWEEPING):
            self._forget_old_jobs(deadline)

    def check_for_any(self, timeout_s: float) -> None:
        """Checks what does not depend on the query's id, before its first tasks write. Raises as `check` does."""
        deadline = time.monotonic() + timeout_s
        self._check_brokers(deadline)
        self._log.check_for_any(TransactionalIds(self._prefix, NO_QUERY), deadline)

    def _check_brokers(self, deadline: float) -> None:
        """Checks the brokers once; tasks also check each broker that they write to."""
        if not self._is_checked:
            self._transactions.check_brokers(deadline)
            self._is_checked = True

    def _forget_old_jobs(self, deadline: float) -> None:
        """Removes the records of old jobs. Failures are only logged."""
        now_ms = time.time_ns() // 1_000_000
        try:
            for record in old_jobs(self._log.last_records(deadline).records.values(), self._prefix, now_ms)[:_FORGOTTEN_AT_ONCE]:
                self._log.forget_job(TransactionalIds(self._prefix, record.query_id), record, deadline)
        except KafkaSinkError as error:
            logger.warning("old batch jobs stay in the commit log: %s", error)

    def commit(
        self,
        batch: MicroBatch,
        own: OwnTransactions,
        start: int | None = None,
        *,
        tasks: tuple[TaskRows, ...] = (),
        letters: str | None = None,
        refuse: Callable[[], None] | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> CommitReport:
        """Makes the rows of a batch visible, unless they already are.

        Args:
            batch: The batch.
            own: The transactions that its tasks have prepared.
            start: The batch at which the log may begin (commit.log.start).
            tasks: The rows that Spark passed to each task with rows; if empty, these are the rows in `own`.
            letters: The topic of dead letters, which does not tell batches apart.
            refuse: Raises an error if these rows must not become visible. It is not called for a batch that an earlier attempt
                has prepared: that one may be visible in part, so it is completed.
            ended: Called once the batch's transactions are committed; from there on the commit waits for their markers, or for
                the commit log. Attempts may repeat the call.

        Raises:
            CommitStoppedError: Continuing would lose or duplicate rows.
            BatchAbortedError: The transactions in `own` cannot be committed, so the batch must be written again.
            UnsupportedVersionError: A broker is too old.
            CommitTimeoutError: The cluster did not respond in time.
            KafkaSinkError: The commit log cannot be used.
        """
        failpoints.reach("commit.start", batch.number)
        begun = time.monotonic()
        # With commit.log.start a person says that the batch is to be written, after the log was deleted.
        call = self._call(batch, is_logged=start != batch.number)
        call.is_prepared_maybe = bool(own) and _run_of(batch, own) in self._prepared
        try:
            view = View(batch.number, own, start, letters=letters, tasks=tasks)
            is_own = retry_on_claim_lost(partial(self._attempt, batch, view, call, refuse, ended), call.deadline)
        except DeadlineError as error:
            visibility = self._visibility(batch, own, call)
            committing = self._committing(call)
            if committing:
                visibility = RowVisibility.COMMITTING
            raise commit_timeout(batch, own, self._timeout_s, error, visibility, self._options, committing, call.gone) from error
        except KafkaSinkError as error:
            if not isinstance(error, CommitError):
                is_invisible, is_deleted = _is_invisible(own, call), isinstance(error, CommitLogDeletedError)
                # Nothing read: an earlier attempt may have been committed. A job has no earlier attempt.
                may_be_earlier = (call.topic_id is None and not batch.is_job) or _key(batch) in self._logged_in
                is_gone = is_deleted and (not is_invisible or call.is_logged_maybe or may_be_earlier)
                how = how_to_look(error) if is_gone else None
                error.add_note(_what_is_known(batch, own, start, how, is_invisible=is_invisible))
            raise
        failpoints.reach("commit.end", batch.number)
        visible_s = call.visible - call.prepared if call.visible and call.prepared else 0.0
        commit_ms = round((time.monotonic() - begun) * 1000)
        is_first = call.visible is not None
        return CommitReport(call.rows, is_own, call.committed, call.aborted, round(visible_s * 1000), commit_ms, is_first)

    def _attempt(
        self, batch: MicroBatch, view: View, call: CommitCall, refuse: Callable[[], None] | None, ended: Callable[[], None]
    ) -> bool:
        """Commits once. Returns whether the visible rows are exactly those of the view's own transactions."""
        own = view.own
        execution = self._execution(batch, view, call)

        def step(view: View) -> Step:
            step = decide(view)
            if refuse is not None and prepares_first(view, step):
                refuse()
            if call.visible is not None:
                ended()
            return step

        try:
            self._check_brokers(call.deadline)
            end = execution.run(step)
        except (ClaimLostError, DeadlineError):
            raise
        except KafkaSinkError:
            # Unless the log may have them. If it is gone, those that it had may be committed.
            if _is_invisible(own, call) and Proof.COMMITTED in execution.abort(execution.view.own_handles):
                call.is_prepared_maybe = True
            raise
        finally:
            if call.is_prepared_maybe:
                self._prepared.append(_run_of(batch, own))
            self._remember(batch, call)
        assert isinstance(end, Done | GiveUp | Stop)
        is_committed = recovery_rules.has_committed(execution.view)
        if isinstance(end, GiveUp) and is_committed:  # what is open was prepared with it: it is not aborted
            self._raise_made_again(batch, own, call)
        is_committed |= Proof.COMMITTED in execution.abort(end.leftovers)
        if isinstance(end, GiveUp):
            if is_committed:
                self._raise_made_again(batch, own, call)
            raise batch_aborted(batch, own, end.ended, recovery_rules.kept(execution.view), call.replaced)
        view = execution.view
        if not isinstance(end, Done):
            is_invisible = _is_invisible(own, call) and not is_committed
            left = self._left_open(batch, view)
            raise commit_stopped(
                batch,
                view,
                end.reason,
                self._options,
                is_invisible=is_invisible,
                left_open=left,
                replaced=view.gone or call.replaced,
            )
        recorded = {key(each) for each in view.last.handles if each.records} if view.last is not None else set()
        # Brokers may reject all rows of a task or of the run, which then has fewer transactions than the record, or none.
        return recorded == {key(each.handle) for each in own if each.handle.records}

    def _left_open(self, batch: MicroBatch, view: View) -> tuple[TransactionHandle, ...]:
        """Returns what a dead driver has left open, for example of a newer batch: the stopped query has no commit to end it."""
        ids, deadline = TransactionalIds(self._prefix, batch.query_id), time.monotonic() + (self._best_effort.list_s or _LIST_S)
        try:
            found = self._transactions.open_handles(ids, deadline)
        except KafkaSinkError as error:
            logger.warning("%s: brokers did not list open transactions: %s", batch, error)
            return ()
        ended = {key(each) for each in view.own_handles} | (frozenset() if view.last is None else asked_for(view.last))
        return tuple(each for each in found if key(each) not in ended)

    def _raise_made_again(self, batch: MicroBatch, own: OwnTransactions, call: CommitCall) -> NoReturn:
        """Raises CommitLogDeletedError for own transactions that are committed by a record which is gone."""
        call.is_prepared_maybe = True
        self._prepared.append(_run_of(batch, own))
        self._remember(batch, call)
        raise made_again(self._log.topic)

    def _remember(self, batch: MicroBatch, call: CommitCall) -> None:
        """Remembers the log's topic for a repeated commit() and for abort_job, if the batch may have a record in it."""
        if call.topic_id is None or not call.is_logged_maybe:
            return
        self._logged_in.pop(_key(batch), None)  # so that it is the newest
        self._logged_in[_key(batch)] = call.topic_id
        if len(self._logged_in) > _REMEMBERED:
            del self._logged_in[next(iter(self._logged_in))]

    def _visibility(self, batch: MicroBatch, own: OwnTransactions, call: CommitCall) -> RowVisibility:
        """Returns what is known after a timeout. Aborts, within a separate time limit, transactions that cannot be committed."""
        is_invisible = _is_invisible(own, call)
        handles = tuple(each.handle for each in own)
        proofs = self._execution(batch, View(batch.number, own), call).abort(handles) if is_invisible else frozenset()
        if call.visible is not None:
            return RowVisibility.VISIBLE
        if Proof.COMMITTED in proofs:  # by a record which is gone
            return RowVisibility.UNKNOWN
        if is_invisible:
            return RowVisibility.OPEN if Proof.OPEN in proofs else RowVisibility.ABORTED
        is_prepared = call.prepared is not None or any(key(each.handle) in call.logged for each in own)
        return RowVisibility.PREPARED if is_prepared else RowVisibility.UNKNOWN

    def _committing(self, call: CommitCall) -> str:
        """Returns which of the batch's committed transactions lack markers, as text; empty if none does."""
        if call.visible is None:
            return ""
        seconds = time.monotonic() - call.visible
        try:
            described = self._transactions.describe(call.ended, time.monotonic() + self._best_effort.sweep_s)
        except KafkaSinkError as error:
            return f"Whether they have done so is not known: {error.message}"
        found = [each for each, said in described.items() if said.state == PREPARE_COMMIT]
        some = f"{counted(len(found), 'transaction has', 'transactions have')} been committing for {seconds:.0f} s, such as"
        return f"{some} {found[0]}" if found else ""

    def _call(self, batch: MicroBatch, *, is_logged: bool = True) -> CommitCall:
        """is_logged: whether the log must still be the topic in which this process has read or written the batch's record."""
        topic_id = self._logged_in.get(_key(batch)) if is_logged else None
        deadline = time.monotonic() + self._timeout_s
        return CommitCall(deadline, batch.checkpoint, batch.name, self._best_effort, topic_id=topic_id, writes_rows=True)

    def _execution(self, batch: MicroBatch, view: View, call: CommitCall, driver: str = "") -> Execution:
        return Execution(self._log, self._transactions, TransactionalIds(self._prefix, batch.query_id, driver), view, call)

    def abort_job(self, job: MicroBatch, own: OwnTransactions) -> Refused | bool:
        """Aborts the transactions of a batch job that failed, and those of its lost tasks.

        Returns:
            True if nothing of the job is open or visible; False if some transactions may be open until they time out. Refused,
            without any change, if the job is complete, or prepared and to be committed by `recover`. Refused also if
            transactions of `own` are committed, though the log, which was deleted, does not say so.

        Raises:
            DeadlineError: The cluster did not respond in time, so the job may be prepared.
            CommitLogDeletedError: The commit log in which this process prepared the job is gone, so rows may be visible.
            KafkaSinkError: The commit log cannot be used.
        """
        call = self._call(job)
        return retry_on_claim_lost(partial(self._abort, job, own, call), call.deadline)

    def end_stopped(self, batch: MicroBatch, driver: str, counted: Callable[[int, CommitReport], None]) -> Refused | bool:
        """Ends the transactions of a run that was stopped in a micro-batch: commits them if they are prepared, else aborts them.

        driver: whose transactions these are, as in `TransactionalIds`, because another driver may have taken over the query.
        counted: called with the batch that was committed, this one or the one before, and its report, if any was.

        Returns and raises as `abort_job` does. Refused also if the log is at a later batch, whose driver aborts these.
        """
        begun = time.monotonic()
        call = CommitCall(begun + _STOP_S, batch.checkpoint, batch.name)
        end = retry_on_claim_lost(partial(self._end_stopped, batch, driver, call), call.deadline)
        if call.visible is not None:  # not after an error: then the next run ends the batch, and counts it
            commit_ms = round((time.monotonic() - begun) * 1000)
            counted(call.batch, CommitReport(call.rows, False, call.committed, call.aborted, 0, commit_ms))
        return end

    def _end_stopped(self, batch: MicroBatch, driver: str, call: CommitCall) -> Refused | bool:
        execution = self._execution(batch, View(batch.number, ()), call, driver)
        execution.run(lambda view: None if view.read else Read())
        last = execution.view.last
        if last is not None and last.batch > batch.number:
            return Refused(Refusal.MOVED_ON)
        execution.view = replace(execution.view, batch=recovery_rules.batch_to_abort(last))
        end = execution.run(recovery_rules.end_stopped)
        if isinstance(end, Refused):
            return end
        assert isinstance(end, Done)
        return Proof.OPEN not in execution.abort(end.leftovers) and execution.is_listed

    def _abort(self, job: MicroBatch, own: OwnTransactions, call: CommitCall) -> Refused | bool:
        execution = self._execution(job, View(job.number, own), call)
        end = execution.run(recovery_rules.abort)
        if isinstance(end, Refused):
            if end.refusal is Refusal.COMPLETE and own:  # what its lost tasks left open is not in the record
                self._abort(job, (), call)
            if end.refusal is Refusal.COMMITTED:  # an earlier abort may have left a record
                execution.forget()
            return end
        assert isinstance(end, Done)
        proofs = execution.abort(end.leftovers)
        last = execution.view.last
        if last is not None and last.state is State.COMPLETE:
            return Refused(Refusal.COMPLETE)
        if Proof.COMMITTED in proofs:  # since they were looked at
            execution.forget()  # it says that no row is visible
            return Refused(Refusal.COMMITTED)
        is_all = Proof.OPEN not in proofs and execution.is_listed
        if is_all:  # otherwise the record stays, and keeps a running commit() from committing any of them
            execution.forget()
        return is_all


def _key(batch: MicroBatch) -> tuple[str, int]:
    return batch.query_id, batch.number


def _run_of(batch: MicroBatch, own: OwnTransactions) -> _Run:
    """Returns what tells this run of a batch from another one: one of its transactions, whatever their order.

    It is the same for a repeated commit() because that one has the whole run again.
    """
    return *_key(batch), min(map(key, with_rows(each.handle for each in own)), default=None)


def _what_is_known(batch: MicroBatch, own: OwnTransactions, start: int | None, how: str | None, *, is_invisible: bool) -> str:
    """Returns what is known about the rows of a commit that failed.

    start: commit.log.start. how: how to look into the topic, as `how_to_look` says, if the log that was deleted may have had a
    record to commit the batch; otherwise None.
    """
    invisible = f"{batch}: {rows_of(own, ' of this run is', ' of this run are')} not committed"
    if how is not None:
        again = f"set commit.log.start={batch.number}"
        if batch.is_job:
            again = "run the job again"
        elif batch.number == start:
            again = "start the query again"
        visible = (
            f"{invisible}, but rows of an earlier attempt"
            if is_invisible
            else f"{batch}: {rows_of(own)} of this run, or some of them,"
        )
        return (
            f"{visible} may be visible, and a new commit log does not say so. Look whether they are before you {again}, which"
            f" writes them again{how}."
        )
    if is_invisible:
        return f"{invisible}."
    return f"{batch}: {rows_of(own)} of this run, or some of them, may be committed; the next commit of the batch finds out."


def _is_invisible(own: OwnTransactions, call: CommitCall) -> bool:
    """Returns whether this run's rows cannot have been prepared, and therefore not committed."""
    return not call.is_prepared_maybe and not any(key(each.handle) in call.logged for each in own)
