"""Commits micro-batches and batch jobs, and aborts jobs that failed."""

from __future__ import annotations

import logging
import time
from functools import partial

from spark_kafka_sink.errors import DeadlineError
from spark_kafka_sink.exactly_once import resolving
from spark_kafka_sink.exactly_once.commit_errors import batch_aborted, commit_stopped, commit_timeout
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.commit_report import CommitReport
from spark_kafka_sink.exactly_once.execution import Execution, Progress, until_it_keeps_its_claim
from spark_kafka_sink.exactly_once.resolving import Refused
from spark_kafka_sink.exactly_once.rules import Done, GiveUp, Stop, View, decide, key
from spark_kafka_sink.exactly_once.share import Batch
from spark_kafka_sink.exactly_once.steps import step
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds

logger = logging.getLogger(__name__)

Own = tuple[PreparedTransaction, ...]


class Committer:
    """Whatever a commit is interrupted by, the same call again does what is left. For one thread at a time."""

    def __init__(self, log: CommitLog, transactions: TransactionClient, prefix: str, timeout_s: float, options: str = "") -> None:
        """prefix: of transactional ids. timeout_s: bounds each call. options: of the command that resolves what stops here."""
        self._log = log
        self._transactions = transactions
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._options = options

    def commit(self, batch: Batch, own: Own, start: int | None = None) -> CommitReport:
        """Make the rows of a batch visible, unless they are. Of a job that is complete nothing stays in the log.

        own: the transactions that its tasks have prepared. start: the batch at which the log may begin (commit.log.start).

        Raises CommitStoppedError where going on would lose or double rows; BatchAbortedError where nothing of the batch is
        visible and it has to be written again; CommitTimeoutError where the cluster did not answer in time; and what the commit
        log raises for a topic that cannot be one.
        """
        step("commit.start", batch.number)
        begun = time.monotonic()
        done = Progress()
        attempt = partial(self._attempt, batch, own, start, begun + self._timeout_s, done)
        try:
            is_own = until_it_keeps_its_claim(attempt, begun + self._timeout_s)
        except DeadlineError as error:
            raise commit_timeout(batch, own, self._timeout_s, error, self._options) from error
        step("commit.end", batch.number)
        visible_s = done.visible - done.preparing if done.visible and done.preparing else 0.0
        commit_ms = round((time.monotonic() - begun) * 1000)
        return CommitReport(done.rows, is_own, done.committed, done.aborted, round(visible_s * 1000), commit_ms)

    def _attempt(self, batch: Batch, own: Own, start: int | None, deadline: float, done: Progress) -> bool:
        """Whether the rows that are visible are those of `own`."""
        execution = self._execution(batch, View(batch.number, own, start), deadline, done)
        end = execution.run(decide)
        assert isinstance(end, Done | GiveUp | Stop)
        execution.abort(end.leftovers)
        if isinstance(end, GiveUp):
            raise batch_aborted(batch, own, end.ended)
        view = execution.view
        if not isinstance(end, Done):
            raise commit_stopped(batch, view, end.reason, self._options)
        if batch.is_job:
            execution.forget()
        recorded = {key(each) for each in view.last.handles} if view.last is not None else set()
        return all(key(each.handle) in recorded for each in own)

    def _execution(self, batch: Batch, view: View, deadline: float, done: Progress) -> Execution:
        ids = TransactionalIds(self._prefix, batch.query_id)
        return Execution(self._log, self._transactions, ids, view, deadline, done, batch.checkpoint)

    def abort_job(self, job: Batch, own: Own) -> Refused | None:
        """Abort the transactions of a batch job that failed, those of its lost tasks too; None: nothing of it is open or visible.

        Refused: it is prepared, and to be committed by `recover`, or it is complete; nothing is touched then. Raises as `commit`.
        """
        deadline = time.monotonic() + self._timeout_s
        try:
            return until_it_keeps_its_claim(partial(self._abort, job, own, deadline), deadline)
        except DeadlineError as error:
            raise commit_timeout(job, own, self._timeout_s, error, self._options) from error

    def _abort(self, job: Batch, own: Own, deadline: float) -> Refused | None:
        execution = self._execution(job, View(job.number, own), deadline, Progress())
        end = execution.run(resolving.abort)
        if isinstance(end, Refused):
            return end
        assert isinstance(end, Done)
        if execution.abort(end.leftovers):  # else the record stays, and keeps a commit() that still runs from any of them
            execution.forget()
        return None
