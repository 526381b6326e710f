"""Commits micro-batches and batch jobs, and aborts jobs that failed."""

from __future__ import annotations

import logging
import time
from collections import deque
from functools import partial
from typing import Final

from spark_kafka_sink.errors import CommitError, DeadlineError, KafkaSinkError
from spark_kafka_sink.exactly_once import resolving
from spark_kafka_sink.exactly_once.claim_lost import ClaimLostError
from spark_kafka_sink.exactly_once.commit_errors import Standing, batch_aborted, commit_stopped, commit_timeout, rows_of
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction, State
from spark_kafka_sink.exactly_once.commit_report import CommitReport
from spark_kafka_sink.exactly_once.execution import SWEEP_S, Execution, Progress, until_it_keeps_its_claim
from spark_kafka_sink.exactly_once.old_jobs import forget, old_jobs
from spark_kafka_sink.exactly_once.resolving import Refusal, Refused
from spark_kafka_sink.exactly_once.rules import Done, GiveUp, Stop, View, decide, key
from spark_kafka_sink.exactly_once.share import Batch
from spark_kafka_sink.exactly_once.steps import step
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds

logger = logging.getLogger(__name__)

Own = tuple[PreparedTransaction, ...]

# One job of sixteen, by the end of its id, which is random: it reads the whole log for that.
_SWEEPING: Final = "0"
_FORGOTTEN_AT_ONCE: Final = 100
_REMEMBERED: Final = 1000
# The list only serves to abort what lost tasks have left open: a broker that does not answer must not hold rows back.
_LIST_S: Final = 5.0


class Committer:
    """Whatever a commit is interrupted by, the same call again does what is left. For one thread at a time."""

    def __init__(
        self,
        log: CommitLog,
        transactions: TransactionClient,
        prefix: str,
        timeout_s: float,
        options: str = "",
        *,
        sweep_s: float = SWEEP_S,
        list_s: float = _LIST_S,
    ) -> None:
        """prefix: of transactional ids. timeout_s: bounds each call. options: of the command that resolves what stops here.

        sweep_s: how long, beyond that, to try to abort what cannot be committed. list_s: how long a commit waits for the list of
        open transactions, in which it looks for those of lost tasks.
        """
        self._log = log
        self._transactions = transactions
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._sweep_s = sweep_s
        self._list_s = list_s
        self._options = options
        # Batches whose record this process has written, or maybe: Spark gives it a batch once, others may again.
        self._prepared: deque[tuple[str, int]] = deque(maxlen=_REMEMBERED)
        self._is_checked = False

    def check(self, job: Batch, timeout_s: float) -> None:
        """Before the tasks of a job write: raises what keeps the commit log from being claimed and read for it, and
        UnsupportedVersionError for a broker that is too old.

        Here records of old jobs are removed, now and then.
        """
        deadline = time.monotonic() + timeout_s
        self._check_brokers(deadline)
        self._log.claim(TransactionalIds(self._prefix, job.query_id), deadline)
        if job.query_id.endswith(_SWEEPING):
            self._forget_old_jobs(deadline)

    def _check_brokers(self, deadline: float) -> None:
        """Once: tasks look at each broker that they write to, too."""
        if not self._is_checked:
            self._transactions.check_brokers(deadline)
            self._is_checked = True

    def _forget_old_jobs(self, deadline: float) -> None:
        """What goes wrong here is no reason to end a job."""
        now_ms = time.time_ns() // 1_000_000
        try:
            for record in old_jobs(self._log.last_records(deadline).records.values(), self._prefix, now_ms)[:_FORGOTTEN_AT_ONCE]:
                forget(self._log, self._prefix, record, deadline)
        except KafkaSinkError as error:
            logger.warning("old batch jobs stay in the commit log: %s", error)

    def commit(self, batch: Batch, own: Own, start: int | None = None) -> CommitReport:
        """Make the rows of a batch visible, unless they are.

        own: the transactions that its tasks have prepared. start: the batch at which the log may begin (commit.log.start).

        Raises CommitStoppedError where going on would lose or double rows; BatchAbortedError where the batch has to be written
        again, as what `own` holds cannot be committed; UnsupportedVersionError where a broker is too old; CommitTimeoutError
        where the cluster did not answer in time; and what the commit log raises for a topic that cannot be one.
        """
        step("commit.start", batch.number)
        begun = time.monotonic()
        done = Progress()
        attempt = partial(self._attempt, batch, own, start, begun + self._timeout_s, done)
        try:
            is_own = until_it_keeps_its_claim(attempt, begun + self._timeout_s)
        except DeadlineError as error:
            standing = self._standing(batch, own, done)
            raise commit_timeout(batch, own, self._timeout_s, error, standing, self._options) from error
        except KafkaSinkError as error:
            if not isinstance(error, CommitError):
                error.add_note(_what_is_known(batch, own, is_invisible=self._is_invisible(batch, own, done)))
            raise
        step("commit.end", batch.number)
        visible_s = done.visible - done.prepared if done.visible and done.prepared else 0.0
        commit_ms = round((time.monotonic() - begun) * 1000)
        return CommitReport(done.rows, is_own, done.committed, done.aborted, round(visible_s * 1000), commit_ms)

    def _attempt(self, batch: Batch, own: Own, start: int | None, deadline: float, done: Progress) -> bool:
        """Whether the rows that are visible are those of `own`."""
        execution = self._execution(batch, View(batch.number, own, start), deadline, done, self._list_s)
        try:
            self._check_brokers(deadline)
            end = execution.run(decide)
        except (ClaimLostError, DeadlineError):
            raise
        except KafkaSinkError:
            if self._is_invisible(batch, own, done):  # else they may be in the log
                execution.abort(execution.view.own_handles)
            raise
        finally:
            if done.is_prepared_maybe:
                self._prepared.append((batch.query_id, batch.number))
        assert isinstance(end, Done | GiveUp | Stop)
        execution.abort(end.leftovers)
        if isinstance(end, GiveUp):
            raise batch_aborted(batch, own, end.ended)
        view = execution.view
        if not isinstance(end, Done):
            is_invisible = self._is_invisible(batch, own, done)
            raise commit_stopped(batch, view, end.reason, self._options, is_invisible=is_invisible)
        recorded = {key(each) for each in view.last.handles} if view.last is not None else set()
        return all(key(each.handle) in recorded for each in own)

    def _is_invisible(self, batch: Batch, own: Own, done: Progress) -> bool:
        """Nobody can have prepared the rows of this run, and so nobody have committed them."""
        is_logged = any(key(each.handle) in done.logged for each in own)
        return not is_logged and not done.is_prepared_maybe and (batch.query_id, batch.number) not in self._prepared

    def _standing(self, batch: Batch, own: Own, done: Progress) -> Standing:
        """What is known when the time is over. What nobody can commit is aborted, in a time of its own."""
        is_invisible = self._is_invisible(batch, own, done)
        handles = tuple(each.handle for each in own)
        is_ended = is_invisible and self._execution(batch, View(batch.number, own), time.monotonic(), done).abort(handles)
        if done.visible is not None:
            return Standing.VISIBLE
        if is_invisible:
            return Standing.ABORTED if is_ended else Standing.OPEN
        is_prepared = done.prepared is not None or any(key(each.handle) in done.logged for each in own)
        return Standing.PREPARED if is_prepared else Standing.UNKNOWN

    def _execution(self, batch: Batch, view: View, deadline: float, done: Progress, list_s: float | None = None) -> Execution:
        ids = TransactionalIds(self._prefix, batch.query_id)
        sweep_s = self._sweep_s
        return Execution(
            self._log, self._transactions, ids, view, deadline, done, batch.checkpoint, sweep_s=sweep_s, list_s=list_s
        )

    def abort_job(self, job: Batch, own: Own) -> Refused | bool:
        """Abort the transactions of a batch job that failed, those of its lost tasks too. True: nothing of it is open or visible;
        False: some may be open until they time out.

        Refused: it is prepared, and to be committed by `recover`, or it is complete; nothing is touched then. Raises
        DeadlineError where the cluster did not answer in time, so that it may be prepared; and what the commit log raises.
        """
        deadline = time.monotonic() + self._timeout_s
        return until_it_keeps_its_claim(partial(self._abort, job, own, deadline), deadline)

    def _abort(self, job: Batch, own: Own, deadline: float) -> Refused | bool:
        execution = self._execution(job, View(job.number, own), deadline, Progress())
        end = execution.run(resolving.abort)
        if isinstance(end, Refused):
            return end
        assert isinstance(end, Done)
        is_all = execution.abort(end.leftovers)
        last = execution.view.last
        if last is not None and last.state is State.COMPLETE:
            return Refused(Refusal.COMPLETE)
        if is_all:  # else the record stays, and keeps a commit() that still runs from any of them
            execution.forget()
        return is_all


def _what_is_known(batch: Batch, own: Own, *, is_invisible: bool) -> str:
    if is_invisible:
        return f"{batch}: {rows_of(own)} of this run are not committed."
    return f"{batch}: it may be that {rows_of(own)} of this run are committed, or some; the next commit of the batch finds out."
