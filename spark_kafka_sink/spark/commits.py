"""Commits of exactly-once as Spark asks for them: in its commit process for `format("kafka_sink")`, else in the driver program.

Spark keeps its commit process over micro-batches (pyspark 4.0 and 4.3), so connections and what was checked of the commit log
are kept there: a commit needs no more than its own requests.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import NamedTuple

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import CommitTimeoutError, KafkaSinkError, OptionError, UsageError
from spark_kafka_sink.exactly_once.commit_errors import RowVisibility
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.committer import Committer, OwnTransactions
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.exactly_once.resolving import Refusal, Refused
from spark_kafka_sink.exactly_once.rules import commit_timeout_ms
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.guarantee import COMMIT_LOG_START, ExactlyOnce
from spark_kafka_sink.spark.messages import Messages, reports_of, shares_of
from spark_kafka_sink.spark.options import SinkOptions

logger = logging.getLogger(__name__)

# Of a driver that starts one query after the other, each with a checkpoint of its own.
MOST_COMMITTERS = 32
# A killed task's Python worker may go on for spark.python.task.killTimeout, 2 s, and begin a transaction meanwhile.
KILL_TIMEOUT_S = 2.5


# The cluster, the commit log, and the query; "" for all jobs.
_Key = tuple[ProducerConfig, ExactlyOnce, str]


@contextmanager
def _held(lock: Lock, batch: MicroBatch, timeout_s: float) -> Iterator[None]:
    if not lock.acquire(timeout=timeout_s):
        who = "other batch jobs of this process" if batch.is_job else "an earlier run of the query, in this process,"
        text = (
            f"{batch}: not committed within {timeout_s:.0f} s, as {who} commit: nothing of it is visible; try again later."
            " Its transactions are open until then, or until kafka.transaction.timeout.ms has passed, and consumers that read"
            " committed wait for them"
        )
        raise CommitTimeoutError(text, query_id=batch.query_id, batch=batch.number, standing=RowVisibility.OPEN.name)
    try:
        yield
    finally:
        lock.release()


class Committers:
    """A Committer for each query that this process has met, and one for its batch jobs, with its connections: what holds one
    query back (a partition of the commit log behind a dead driver) holds no other.

    Threads: any may call; a Committer is one thread's at a time. Processes: connections are not inherited (ClusterClient).
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
        """CommitTimeoutError where another one commits for as long as this may take: a job, or an earlier run of the query."""
        assert options.exactly_once is not None
        # Objects that tasks use would be others in each process, and each time.
        producer = replace(
            options.producer, key_serializer=None, value_serializer=None, interceptor_classes=(), partitioner_class=None
        )
        key = producer, replace(options.exactly_once, start=None, checkpoint=""), "" if batch.is_job else batch.query_id
        with self._lock:
            if key not in self._made:
                self._close_one()
                client = ClusterClient(producer)
                self._made[key] = _committer(client, producer, options.exactly_once), client, Lock()
            self._users[key] += 1
            entry = self._made[key] = self._made.pop(key)  # to the end: the first is the one not used for longest
        try:
            with _held(entry[2], batch, _timeout_s(producer)):
                yield entry[0]
        finally:
            with self._lock:
                self._users[key] -= 1

    def _close_one(self) -> None:
        """Closes the committer that was not used for longest, usually of an ended query. One in use is never closed."""
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


def _committer(client: ClusterClient, producer: ProducerConfig, names: ExactlyOnce) -> Committer:
    log, prefix = CommitLog(client, names.commit_log), names.transactional_id_prefix
    return Committer(log, TransactionClient(client), prefix, _timeout_s(producer), _options(producer, names))


def _options(producer: ProducerConfig, names: ExactlyOnce) -> str:
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
        text = f"option {COMMIT_LOG_START}: is for streaming queries; a batch job has no batches before it, so leave it out"
        raise OptionError(text, option=COMMIT_LOG_START)
    with committers.of(options, job) as committer:
        committer.check(job, options.producer.max_block_ms / 1000)


def commit_micro_batch(options: SinkOptions, batch_id: int, messages: Messages) -> list[DeliveryReport]:
    """Makes a micro-batch's rows visible and reports them. Raises UsageError for messages of another batch."""
    shares = shares_of(messages)
    batches = {share.batch for share in shares}
    if len(shares) != len(messages) or len(batches) != 1 or next(iter(batches)).number != batch_id:
        found = ", ".join(sorted(map(str, batches))) or "no query"
        raise UsageError(
            f"commit of micro-batch {batch_id}: Spark gave {len(messages)} messages, of {found}; nothing is committed"
        )
    return commit_shares(options, batches.pop(), shares, reports_of(messages)).reports


def commit_job(options: SinkOptions, job: MicroBatch, messages: Messages) -> list[DeliveryReport]:
    """Makes all rows of a batch job visible and reports them. Raises UsageError for messages of another job."""
    shares = shares_of(messages)
    if len(shares) != len(messages) or any(share.batch != job for share in shares):
        raise UsageError(f"commit of {job}: Spark gave {len(messages)} messages, not all of it; nothing is committed")
    return commit_shares(options, job, shares, reports_of(messages)).reports


class Committed(NamedTuple):
    """own: whether the rows that are visible are those of the shares, and not those of an earlier attempt. reports: of what the
    commit made visible."""

    own: bool
    reports: list[DeliveryReport]


def commit_shares(
    options: SinkOptions, batch: MicroBatch, shares: Iterable[TaskTransaction], reports: list[DeliveryReport]
) -> Committed:
    """Raises as `Committer.commit`; UsageError for shares of another release of this package."""
    assert options.exactly_once is not None
    own = _transactions(shares)
    _check_release(batch, own)
    checkpoint = options.exactly_once.checkpoint
    if checkpoint and options.topic:
        # Unless rows say their topic: another topic is another query, wherever their machines have their checkpoints.
        checkpoint = f"{checkpoint} (topic {options.topic})"
    with committers.of(options, batch) as committer:
        commit = committer.commit(replace(batch, checkpoint=checkpoint), own, options.exactly_once.start)
    if not commit.rows:  # those that an earlier commit made visible are counted with that one
        visible = []
    else:  # of rows that an earlier attempt has written nobody knows more than how many they are
        visible = reports if commit.own else [DeliveryReport(records=commit.rows)]
    of_commit = DeliveryReport(
        commits=1,
        transactions_committed=commit.committed,
        transactions_aborted=commit.aborted,
        prepare_to_visible_ms=commit.visible_ms,
        commit_ms=commit.commit_ms,
    )
    return Committed(commit.own, [*visible, of_commit])


def _transactions(shares: Iterable[TaskTransaction]) -> OwnTransactions:
    return tuple(share.transaction for share in shares if share.transaction is not None)


def _check_release(batch: MicroBatch, own: OwnTransactions) -> None:
    """Raises UsageError for handles of an older release, which have EndTxn's version in this place: 4 or 5.

    Taken for a transaction version, 4 would end a transaction of version 1 as if it were one of version 2.
    """
    strange = sorted({each.handle.transaction_version for each in own} - {1, 2})
    if strange:
        found = ", ".join(map(str, strange))
        raise UsageError(
            f"{batch}: tasks report transactions of version {found}, and 1 and 2 are known: executors run another release of"
            " spark-kafka-sink than the driver, so nothing is committed. Install the same release everywhere",
            query_id=batch.query_id,
            batch=batch.number,
        )


_ABORTED = "{job} was aborted: nothing of it is visible, nor open"
_STILL_OPEN = (
    "{job} was aborted, but some of its transactions may be open: those time out, or `{command} abort {of}` ends them now"
)
_COMPLETE = "{job} is complete: all of its rows are visible, whatever its error says; do not run it again"
_TO_RECOVER = "`{command} recover {of}` ends it, and says what became of it: run the job again only where that says so"
_PREPARED = f"{{job}} failed while it was committed: rows of it may be visible; {_TO_RECOVER}"
_UNKNOWN = f"{{job}} could not be aborted, and it is not known whether it is prepared: {_TO_RECOVER}: {{error}}"


def abort_job(options: SinkOptions, job: MicroBatch, messages: Messages = ()) -> None:
    """Leave nothing of a failed job open, unless it is in the commit log already. What became of it is logged: the job has
    failed, and for another reason, and open transactions end by themselves."""
    assert options.exactly_once is not None
    text, error = _aborted(options, job, _transactions(shares_of(messages)))
    of = f"--query {job.query_id} {_options(options.producer, options.exactly_once)}"
    logger.warning("%s", text.format(job=job, command="spark-kafka-sink transactions", of=of, error=error))


def _aborted(options: SinkOptions, job: MicroBatch, own: OwnTransactions) -> tuple[str, KafkaSinkError | None]:
    """Returns what is to be said."""
    try:
        end = _abort_once(options, job, own)
        if not isinstance(end, Refused):
            time.sleep(KILL_TIMEOUT_S)
            end = _abort_once(options, job, own)
    except KafkaSinkError as error:
        return _UNKNOWN, error
    if isinstance(end, Refused):
        return (_COMPLETE if end.refusal is Refusal.COMPLETE else _PREPARED), None
    return (_ABORTED if end else _STILL_OPEN), None


def _abort_once(options: SinkOptions, job: MicroBatch, own: OwnTransactions) -> Refused | bool:
    with committers.of(options, job) as committer:
        return committer.abort_job(job, own)
