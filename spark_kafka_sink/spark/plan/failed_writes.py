"""Ends the transactions of jobs and micro-batches that failed or were stopped, under exactly-once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.exactly_once.commit_log_topic import HOW_TO_LOOK, CommitLogDeletedError, how_to_look
from spark_kafka_sink.exactly_once.committer import CommitReport
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.exactly_once.recovery_rules import Refusal, Refused
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.spark.batch_report import BatchReport, committed_now
from spark_kafka_sink.spark.plan.commits import cli_options, committers, counted_reports, transactions_of

logger = logging.getLogger(__name__)

# The Python worker of a killed task runs on, and may start a transaction. Spark looks every 2 s whether the task was killed, and
# ends the worker after spark.python.task.killTimeout, 2 s more (PythonRunner.MonitorThread).
KILL_TIMEOUT_S = 4.5

_ABORTED = "{job} was aborted: none of its rows are visible, and none of its transactions are open"
_STILL_OPEN = (
    "{job} was aborted, but some of its transactions may still be open. They will time out; run `{command} abort {of}` to end"
    " them now"
)
_COMPLETE = "{job} is complete: its rows are visible, except for those that its error calls gone. Do not run it again"
_TO_RECOVER = "Run `{command} recover {of}` to end it, and run the job again only if that command says so"
_PREPARED = f"{{job}} failed while it was being committed, so some of its rows may be visible. {_TO_RECOVER}"
_COMMITTED = (
    "{job} was not aborted: some of its transactions are committed, though the commit log, which was deleted, does not say so."
    " All or some of its rows are visible, and others may be in open transactions until they time out. Look whether all are"
    f" visible before you run the job again: {HOW_TO_LOOK}"
)
_LOG_DELETED = (
    "{job} could not be aborted, because the commit log was deleted ({error}). Its rows, or some of them, may be visible. Look"
    " whether they are before you run the job again{how}"
)
_LOG_DELETED_BEFORE = (
    "{job} could not be aborted, because the commit log was deleted ({error}). None of its rows are visible, because its commit"
    " had not begun; its transactions may stay open until they time out"
)
_UNKNOWN_BEFORE = (
    "{job} could not be aborted ({error}). None of its rows are visible, because its commit had not begun. Its transactions may"
    " stay open until they time out; run `{command} abort {of}` to end them now"
)
_UNKNOWN = f"{{job}} could not be aborted, and it is not known whether it is prepared ({{error}}). {_TO_RECOVER}"

_REFUSED = {Refusal.COMPLETE: _COMPLETE, Refusal.COMMITTED: _COMMITTED}


class JobEnd(NamedTuple):
    """Outcome of an abort.

    is_over: whether none of the job's transactions is open any more, as far as is known. text: the outcome, for the user.
    """

    is_over: bool
    text: str


def abort_job(
    options: SinkOptions,
    job: MicroBatch,
    shares: Sequence[TaskTransaction] = (),
    *,
    is_commit_begun: bool = True,
    tasks_may_run: bool = True,
) -> JobEnd:
    """Aborts the transactions of a failed job, unless the commit log already has it. Logs the outcome and returns it.

    It raises nothing, because the job has failed for another reason and open transactions time out.

    Args:
        options: of the job.
        job: The job.
        shares: Those of its tasks that are known here. Brokers list the transactions of the others.
        is_commit_begun: Whether its rows may be visible if the commit log does not say.
        tasks_may_run: Whether Spark may have killed tasks, whose workers run on for a while.
    """
    assert options.exactly_once is not None
    own = transactions_of(shares)
    error: KafkaSinkError | None = None

    def abort_once() -> Refused | bool:
        with committers.of(options, job) as committer:  # not while it waits: other jobs commit with the same one
            return committer.abort_job(job, own)

    try:
        end = _ended(abort_once, tasks_may_run=tasks_may_run)
        text = _REFUSED.get(end.refusal, _PREPARED) if isinstance(end, Refused) else _ABORTED if end else _STILL_OPEN
    except CommitLogDeletedError as deleted:
        text, error = (_LOG_DELETED if is_commit_begun else _LOG_DELETED_BEFORE), deleted
    except KafkaSinkError as unknown:
        text, error = (_UNKNOWN if is_commit_begun else _UNKNOWN_BEFORE), unknown
    of = f"--query {job.query_id} {cli_options(options.producer, options.exactly_once)}"
    told = text.format(
        job=job, command="spark-kafka-sink transactions", of=of, error=error, how="" if error is None else how_to_look(error)
    )
    logger.warning("%s", told)
    return JobEnd(text in (_ABORTED, _COMPLETE), told)


_MICRO_BATCH_ENDED = "{batch} was stopped, and none of its transactions are open. The query goes on with it when it starts again"
_MICRO_BATCH_OPEN = (
    "{batch} was stopped, and some of its transactions may be open until {until}, when brokers abort them. Until then consumers"
    " that read committed wait for them, unless the query starts again or you run `spark-kafka-sink transactions {command}`{why}"
)


def abort_micro_batch(
    options: SinkOptions,
    batch: MicroBatch,
    driver: str,
    committed: Callable[[BatchReport], None],
    *,
    is_commit_begun: bool,
) -> bool:
    """Ends the transactions of a micro-batch that failed or was stopped, so that readers need not wait for the query's next run.

    Args:
        options: of the query.
        batch: The micro-batch. query_id: "" if it is not known.
        driver: As of `Feed`. Without it, or without the query, nothing is touched, because others' transactions may be found.
        committed: Called with what was committed, because it was prepared: the batch, which may be the one before. Of its rows
            only the number is known.
        is_commit_begun: Whether all tasks had ended.

    Returns:
        Whether none of them is open any more. The outcome is logged. Nothing is raised, because the query has ended already.
    """
    assert options.exactly_once is not None
    began = time.time()
    until = began + options.producer.transaction_timeout_ms / 1000
    why, is_over = "", False
    if batch.query_id and driver:

        def counted(number: int, commit: CommitReport) -> None:
            committed(committed_now(batch.query_id, number, began, counted_reports(commit, [])))

        try:
            with committers.of(options, batch) as committer:
                end = _ended(partial(committer.end_stopped, batch, driver, counted), tasks_may_run=not is_commit_begun)
            is_over = end is True
            why = f" ({end.refusal.value})" if isinstance(end, Refused) else ""
        except KafkaSinkError as error:
            why = f" ({error})"
    found = f"abort --query {batch.query_id}" if batch.query_id else "list"
    told = (_MICRO_BATCH_ENDED if is_over else _MICRO_BATCH_OPEN).format(
        batch=batch if batch.query_id else f"micro-batch {batch.number}",
        until=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until)),
        command=f"{found} {cli_options(options.producer, options.exactly_once)}",
        why=why,
    )
    logger.warning("%s", told)
    return is_over


def _ended(end: Callable[[], Refused | bool], *, tasks_may_run: bool) -> Refused | bool:
    """Ends transactions, and then those that killed tasks have begun meanwhile."""
    found = end()
    if tasks_may_run and not isinstance(found, Refused):
        time.sleep(KILL_TIMEOUT_S)
        found = end()
    return found
