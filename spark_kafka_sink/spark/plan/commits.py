"""Commits of exactly-once: in Spark's commit process for `format("kafka_sink")`, otherwise in the driver program.

Spark keeps its commit process over micro-batches (pyspark 4.0 and 4.3). So connections and the checked state of the commit log
stay there, and a commit sends its own requests only.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from threading import Lock, Timer
from typing import NamedTuple

from spark_kafka_sink.client.backoff import WARN_AFTER_S
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import (
    BrokerError,
    CommitTimeoutError,
    DeadlineError,
    OptionError,
    UnsupportedVersionError,
    UsageError,
)
from spark_kafka_sink.exactly_once.commit_errors import RowVisibility
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_rules import commit_timeout_ms
from spark_kafka_sink.exactly_once.committer import CommitReport, Committer, OwnTransactions
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import COMMIT_LOG_START, GUARANTEE, WITHOUT_TRANSACTIONS, ExactlyOnce, query_of
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.bad_row_limits import check_limits
from spark_kafka_sink.spark.batch_report import committed_now
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.messages import Messages, began_of, other_release, reports_of, shares_of
from spark_kafka_sink.spark.open_transactions import OpenTransaction, owner
from spark_kafka_sink.spark.plan.report_topic import prepare_report

logger = logging.getLogger(__name__)

# A driver may start one query after the other, each with its own checkpoint.
MOST_COMMITTERS = 32

# The cluster, the commit log, and the query; "" for all jobs.
_Key = tuple[ProducerConfig, ExactlyOnce, str]


@contextmanager
def _held(lock: Lock, batch: MicroBatch, timeout_s: float) -> Iterator[None]:
    if not lock.acquire(timeout=timeout_s):
        other, whose = ("other batch jobs", "its") if batch.is_job else ("an earlier run of the query", "this run's")
        text = (
            f"{batch}: timed out after {timeout_s:.0f} s while {other} in this process committed; none of {whose} rows are"
            " visible. Try again later. Its transactions stay open until then, or until kafka.transaction.timeout.ms has passed,"
            " and read_committed consumers wait for them"
        )
        raise CommitTimeoutError(text, query_id=batch.query_id, batch=batch.number, standing=RowVisibility.OPEN.name)
    try:
        yield
    finally:
        lock.release()


class Committers:
    """One Committer per query of this process, and one for its batch jobs, each with its own connections.

    So a query that waits, such as for a partition of the commit log behind a dead driver, does not delay another. Threads: any
    may call; one thread at a time uses a Committer. Processes: a forked child opens its own connections (ClusterClient).
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = Lock()
        self._made: dict[_Key, tuple[Committer, ClusterClient, Lock]] = {}
        self._users = Counter[_Key]()

    @contextmanager
    def of(self, options: SinkOptions, batch: MicroBatch) -> Iterator[Committer]:
        """Yields the batch's committer. Raises CommitTimeoutError if another job or run holds it for too long."""
        assert options.exactly_once is not None
        # Plug-in objects of tasks differ from process to process.
        producer = replace(
            options.producer, key_serializer=None, value_serializer=None, interceptor_classes=(), partitioner_class=None
        )
        key = producer, replace(options.exactly_once, start=None, checkpoint=""), "" if batch.is_job else batch.query_id
        with self._lock:
            if key not in self._made:
                self._close_one()
                names, client = options.exactly_once, ClusterClient(producer)
                log, prefix = CommitLog(client, names.commit_log), names.transactional_id_prefix
                ends = Committer(log, TransactionClient(client), prefix, _timeout_s(producer), cli_options(producer, names))
                self._made[key] = ends, client, Lock()
            self._users[key] += 1
            entry = self._made[key] = self._made.pop(key)  # moves it to the end: the first is the least recently used
        try:
            with _held(entry[2], batch, _timeout_s(producer)):
                yield entry[0]
        finally:
            with self._lock:
                self._users[key] -= 1

    def _close_one(self) -> None:
        """Closes the least recently used committer, which usually belongs to an ended query. One in use is never closed."""
        if len(self._made) < MOST_COMMITTERS:
            return
        key = next((key for key in self._made if not self._users[key]), None)
        if key is not None:
            self._made.pop(key)[1].close()
            del self._users[key]

    def close(self) -> None:
        """Closes the connections. The next use opens new ones."""
        with self._lock:
            made = list(self._made.values())
            self._made.clear()
        for _, client, lock in made:
            with lock:
                client.close()


def _timeout_s(producer: ProducerConfig) -> float:
    return commit_timeout_ms(producer.transaction_timeout_ms) / 1000


def cli_options(producer: ProducerConfig, names: ExactlyOnce) -> str:
    """Returns the options of `spark-kafka-sink transactions` for these settings."""
    default = ExactlyOnce()
    options = [f"--bootstrap-servers {','.join(producer.bootstrap_servers)}"]
    if names.transactional_id_prefix != default.transactional_id_prefix:
        options.append(f"--prefix {names.transactional_id_prefix}")
    if names.commit_log.topic != default.commit_log.topic:
        options.append(f"--commit-log-topic {names.commit_log.topic}")
    return " ".join(options)


committers = Committers()
atexit.register(committers.close)


def check_job(options: SinkOptions, job: MicroBatch) -> None:
    """Checks in the driver that a batch job can be committed, before its tasks write for hours.

    Raises OptionError for commit.log.start, and the error of a commit log that cannot be used.
    """
    assert options.exactly_once is not None
    if options.exactly_once.start is not None:
        text = f"option {COMMIT_LOG_START}: is for streaming queries; remove it, because a batch job has no earlier batches"
        raise OptionError(text, option=COMMIT_LOG_START)
    check_batch(options, job)


def check_batch(options: SinkOptions, batch: MicroBatch) -> None:
    """Checks in the driver, before tasks write, that a job or a query's first batch can be committed.

    Raises the error of a commit log that cannot be used, and of brokers that do not serve transactions.
    """
    with committers.of(options, batch) as committer, _naming_the_guarantee():
        committer.check(batch, options.producer.max_block_ms / 1000)


def check_query(options: SinkOptions) -> None:
    """Checks as `check_batch` does while Spark plans the first batch of a stream, and does not tell which query that is.

    The checkpoint names the query. Only Spark reads all kinds of file systems, so elsewhere than on this machine's disk what
    depends on the id is left to the commit.
    """
    assert options.exactly_once is not None
    query_id = query_of(options.exactly_once.checkpoint)
    if query_id is not None:
        check_batch(options, MicroBatch(query_id, 0))
        return
    with committers.of(options, MicroBatch.of_new_job()) as committer, _naming_the_guarantee():
        committer.check_for_any(options.producer.max_block_ms / 1000)


@contextmanager
def _naming_the_guarantee() -> Iterator[None]:
    """Adds the option to change to errors of brokers without transactions, or without the right to them.

    Some services answer UNSUPPORTED_VERSION or another code, others close the connection at each such request.
    """
    try:
        yield
    except (UnsupportedVersionError, BrokerError, DeadlineError) as error:
        concerns = isinstance(error, UnsupportedVersionError | DeadlineError) or "transactional_id" in error.facts
        if concerns and GUARANTEE not in error.message:
            raise type(error)(f"{error.message}. {WITHOUT_TRANSACTIONS}", **error.facts) from error
        raise


def commit_micro_batch(options: SinkOptions, batch_id: int, messages: Messages, feed: Feed) -> list[DeliveryReport]:
    """Makes a micro-batch's rows visible and reports them. Raises UsageError for messages of another batch."""
    shares = shares_of(messages)
    batches = {share.batch for share in shares}
    if len(shares) != len(messages) or len(batches) != 1 or next(iter(batches)).number != batch_id:
        found = ", ".join(sorted(map(str, batches))) or "no query"
        raise UsageError(
            f"commit of micro-batch {batch_id}: Spark passed {counted(len(messages), 'message')}, of {found};"
            " nothing is committed"
        )
    return commit_shares(options, batches.pop(), shares, reports_of(messages), feed, began_of(messages)).reports


def commit_job(options: SinkOptions, job: MicroBatch, messages: Messages, feed: Feed) -> list[DeliveryReport]:
    """Makes all rows of a batch job visible and reports them. Raises UsageError for messages of another job."""
    shares = shares_of(messages)
    if len(shares) != len(messages) or any(share.batch != job for share in shares):
        raise UsageError(
            f"commit of {job}: Spark passed {counted(len(messages), 'message')}, some of another job; nothing is committed"
        )
    return commit_shares(options, job, shares, reports_of(messages), feed, began_of(messages)).reports


class Committed(NamedTuple):
    """Result of a commit.

    own: whether the visible rows are exactly those of the shares. reports: of the rows made visible.
    """

    own: bool
    reports: list[DeliveryReport]


def commit_shares(
    options: SinkOptions,
    batch: MicroBatch,
    shares: Sequence[TaskTransaction],
    reports: list[DeliveryReport],
    feed: Feed,
    began: float,
) -> Committed:
    """Commits the shares of a batch, and its report. The feed tells the driver program if it waits for long.

    began: when the first task began, in seconds since the epoch.

    Raises like `Committer.commit`. Raises UsageError for shares of another release, and TooManyBadRowsError, after the shares
    are aborted, unless an earlier attempt has prepared the batch.
    """
    assert options.exactly_once is not None
    own = transactions_of(shares)
    _check_release(batch, own)
    report = None
    if options.report_topic is not None:
        of_tasks = committed_now(batch.query_id, batch.number, began, reports, options.exactly_once.sink)
        report = prepare_report(options, of_tasks, feed.driver, batch.name)
    prepared = own if report is None else (*own, report)
    checkpoint = options.exactly_once.checkpoint
    if checkpoint and options.topic:
        # A query with another topic is another query, even if both have the same path as their checkpoint on different machines.
        checkpoint = f"{checkpoint} (topic {options.topic})"
    with committers.of(options, batch) as committer, _told_if_slow(options, batch, feed) as ended:
        commit = committer.commit(
            replace(batch, checkpoint=checkpoint, name=batch.name or options.query_name),
            prepared,
            options.exactly_once.start,
            tasks=tuple(share.rows for share in shares if share.rows is not None),
            letters=options.errors.topic,
            refuse=partial(check_limits, options.errors, reports, is_visible=False),
            ended=ended,
        )
    found = counted_reports(commit, reports)
    if options.report_topic is not None and report is None:
        found.append(DeliveryReport(reports_lost=1))
    return Committed(commit.own, found)


@contextmanager
def _told_if_slow(options: SinkOptions, batch: MicroBatch, feed: Feed) -> Iterator[Callable[[], None]]:
    """Yields a function for the commit to call when its transactions are ended; the commit may then wait for their markers."""
    assert options.exactly_once is not None
    of, timers = owner(batch.query_id, options.exactly_once.sink), list[Timer]()

    def ended() -> None:
        if not timers:
            commit = OpenTransaction(of, batch.number, time.time(), _timeout_s(options.producer))
            timers.append(Timer(WARN_AFTER_S, feed.committing, (commit,)))
            timers[0].daemon = True
            with suppress(RuntimeError):  # the machine has no thread left
                timers[0].start()

    try:
        yield ended
    finally:
        for timer in timers:
            timer.cancel()


def counted_reports(commit: CommitReport, reports: list[DeliveryReport]) -> list[DeliveryReport]:
    """Returns the reports of what a commit made visible. reports: of this run's rows."""
    if not commit.is_first:  # rows that an earlier commit made visible were counted with it
        visible = []
    else:  # of an earlier attempt's rows only the number is known
        visible = reports if commit.own else [DeliveryReport(records=commit.rows)]
    of_commit = DeliveryReport(
        commits=1,
        transactions_committed=commit.committed,
        transactions_aborted=commit.aborted,
        prepare_to_visible_ms=commit.visible_ms,
        commit_ms=commit.commit_ms,
    )
    return [*visible, of_commit]


def transactions_of(shares: Iterable[TaskTransaction]) -> OwnTransactions:
    return tuple(share.transaction for share in shares if share.transaction is not None)


def _check_release(batch: MicroBatch, own: OwnTransactions) -> None:
    """Raises UsageError for handles of an older release, which hold EndTxn's version, 4 or 5, in this field.

    Read as a transaction version, 4 would end a transaction of version 1 as if it had version 2.
    """
    strange = sorted({each.handle.transaction_version for each in own} - {1, 2})
    if strange:
        found = ", ".join(map(str, strange))
        raise other_release(batch, f"tasks report transactions of version {found}, but only 1 and 2 are known")
