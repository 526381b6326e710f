"""The driver's counts of what its sinks have delivered.

`live` comes through a Spark accumulator at the end of each successful task. `committed` comes from the commits of whole batches:
Spark's commit process sends their reports to a listener of the driver program. Tasks send their progress there while they run.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.accumulators import Accumulator

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.micro_batch import is_job
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.reports.report_html import reports_html, text_html
from spark_kafka_sink.spark.batch_report import BatchReport, warn_of_old_rows
from spark_kafka_sink.spark.driver.active_queries import QueryNames, active_queries
from spark_kafka_sink.spark.driver.event_queue import BatchListener, BatchListeners
from spark_kafka_sink.spark.driver.history import History, QueryHistory
from spark_kafka_sink.spark.driver.listener import Handler, LiveTasks, MetricsListener
from spark_kafka_sink.spark.driver.stopped_queries import StoppedQueries
from spark_kafka_sink.spark.driver.topic_history import history_from_topic
from spark_kafka_sink.spark.driver.views.watch import is_notebook, screen_of, table_for, watch
from spark_kafka_sink.spark.driver.views.watch_table import Reading
from spark_kafka_sink.spark.feed import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    PLANNED,
    REFUSED,
    WANTS_DETAILS,
    DeliveryReportParam,
    Feed,
    OldestParam,
    RunningTasks,
)
from spark_kafka_sink.spark.messages import total
from spark_kafka_sink.spark.open_transactions import MOST_QUERIES, Oldest, OpenTransaction, merged, owner, transaction_ages
from spark_kafka_sink.spark.python_workers import stderr_handler
from spark_kafka_sink.spark.query_totals import BATCH_JOBS, QueryTotals, TotalsByQuery
from spark_kafka_sink.spark.task.progress_sender import PROGRESS
from spark_kafka_sink.spark.write_events import WRITE, WriteListeners

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

DRIVER: Final = os.urandom(4).hex()
"""Tells apart the transactions of driver programs: see `TransactionalIds`."""


class DeliveryMetrics:
    """Counts of the records that the sinks of a driver have delivered. `register(spark)` returns it.

    closed: whether `close` was called.

    Spark Connect has no accumulators, so reading a count raises UsageError there.

    Threads: the listener's thread and callers of `batch_committed` add to `committed`, under the lock; PySpark's accumulator
    thread replaces `live`. Batch listeners have a thread of their own.
    """

    def __init__(
        self,
        context: SparkContext | None,
        on_refusal: Callable[[], None] = lambda: None,
        reason: str = "Spark Connect has no accumulators",
    ) -> None:
        """`context` is None if deliveries cannot be counted. Reading a count then raises an error with the `reason`.

        `on_refusal` is called in the listener's thread when a commit was refused because no task had written.
        """
        self.closed = False
        self._reason = reason
        self._lock = threading.Lock()
        self._committed: DeliveryReport | None = None
        self._history = History()
        self._names = QueryNames()
        self._totals = TotalsByQuery()
        self._batch_listeners = BatchListeners()
        self._accumulator: Accumulator[DeliveryReport | None] | None = None
        self._listener: MetricsListener | None = None
        self.live_tasks = LiveTasks()  # by the call that they belong to
        self._transactions: Accumulator[Oldest] | None = None
        self._committing: Oldest = {}
        self._ended: dict[str, int] = {}  # by owner: the last batch whose transactions have ended
        self.writes = WriteListeners()  # exporters
        self._stopped = StoppedQueries(DRIVER, self._left_open, self.batch_committed, self.batch_aborted)
        if context is not None:
            self._accumulator = context.accumulator(None, DeliveryReportParam())
            self._transactions = context.accumulator({}, OldestParam())
            self._listener = self._listening(context, on_refusal)

    def _listening(self, context: SparkContext, on_refusal: Callable[[], None]) -> MetricsListener:
        def committed(content: bytes) -> int | None:
            self.batch_committed(BatchReport.from_bytes(content))
            return WANTS_DETAILS if self.writes.is_wanted else None

        def refused(content: bytes) -> None:
            if content:
                raise ValueError("a refusal has no content")
            on_refusal()

        def aborted(content: bytes) -> None:
            query_id, number = content.decode().split()
            self.batch_aborted(query_id, int(number))

        def committing(content: bytes) -> None:
            commit = OpenTransaction.of(json.loads(content))
            with self._lock:
                self._committing = merged(self._committing, {"": commit})

        return listener_of(
            context,
            {
                COMMITTED: committed,
                REFUSED: refused,
                ABORTED: aborted,
                COMMITTING: committing,
                PLANNED: self._stopped.planned,
                PROGRESS: self.live_tasks.take,
                WRITE: self.writes.take,
            },
        )

    @property
    def available(self) -> bool:
        """Whether this session can count deliveries."""
        return self._accumulator is not None

    @property
    def reason(self) -> str:
        """Why deliveries cannot be counted, and what to do, if they cannot."""
        return f"{self._reason}, so deliveries are not counted; use publish(df, ...), which returns a report"

    @property
    def live(self) -> DeliveryReport | None:
        """The total of all successful tasks so far, including batches that are not committed yet.

        A batch that is written again counts again. None until something is reported, and if the sink was used in a session or
        thread where it is not registered.
        """
        self._check_available()
        assert self._accumulator is not None
        return self._accumulator.value

    @property
    def committed(self) -> DeliveryReport | None:
        """The total of all batches that Spark has committed. None until one is reported."""
        self._check_available()
        with self._lock:
            return self._committed

    def running(self, query: StreamingQuery | str | None = None) -> RunningTasks:
        """Returns what the tasks that run have delivered so far, which `live` does not count yet.

        A task reports it each second, but not in its first second, and only if its executor can reach the driver.

        Args:
            query: Only tasks of this streaming query, or of the query or batch job with this id.
        """
        self._check_available()
        tasks, counts = self.live_tasks.running(query if query is None or isinstance(query, str) else str(query.id))
        return RunningTasks(tasks, counts.records, counts.bytes, counts.retries)

    def of(self, query: StreamingQuery | str) -> QueryHistory:
        """Returns the history of a streaming query: a row of numbers for each micro-batch that was committed.

        The driver keeps the last 100,000 micro-batches and jobs of all queries together.

        Args:
            query: The query, or its id. A batch job's id begins with "job-" and is in `query_ids`.
        """
        self._check_available()
        if isinstance(query, str):
            return self._history.of(query, self.query_name(query))
        self._names.learn(str(query.id), query.name or "")
        return self._history.of(str(query.id), query.name or "")

    @staticmethod
    def from_topic(
        topic: str,
        query: StreamingQuery | str,
        *,
        n: int = 1000,
        bootstrap_servers: str | Sequence[str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> QueryHistory:
        """Returns the history of a query from the records of the option `report.topic`, also on Spark Connect.

        `seconds` are without the commit, and `commit_ms` and `transactions` are 0. It waits for 30 seconds at most: 10
        for the first answer.

        Args:
            topic: The topic.
            query: The query, its id, or its name. Of several with this name it is the one that committed last.
            n: How many of the topic's newest records are read, 1 to 10,000.
            bootstrap_servers: "host:port,host:port", or a sequence of "host:port".
            options: As for `format("kafka_sink")`.

        Raises:
            KafkaSinkError: An option is wrong, the topic cannot be read, or has no report of the query.
        """
        return history_from_topic(topic, query, n, bootstrap_servers, options)

    def query_ids(self) -> list[str]:
        """Returns the ids of the queries and batch jobs in the history, the one that committed last first."""
        self._check_available()
        return self._history.query_ids()

    def query_name(self, query_id: str, active: Container[str] | None = None) -> str:
        """Returns the name of a query; "" if it has none, if it is a batch job, or if it ended before anybody asked for its name.

        Args:
            query_id: Spark's id of the query.
            active: The ids of the queries that run, if they are known. Spark is not asked for a query that has ended.
        """
        return "" if query_id == BATCH_JOBS or is_job(query_id) else self._names.name(query_id, active)

    def add_batch_listener(self, listener: BatchListener) -> None:
        """Has `listener` called with the BatchReport of each micro-batch and batch job that is committed from now on.

        It is called in another thread, in the order of the commits, so a slow one does not delay the stream. Up to 1,000
        reports wait for it; after that the oldest are dropped, with one warning. If it raises, one warning is logged. At the
        end of the program the calls continue for at most 5 s.
        """
        self._check_available()
        self._batch_listeners.add(listener)

    def remove_batch_listener(self, listener: BatchListener) -> None:
        """Ends the calls of a listener. One that was not added is ignored.

        Waits, for at most 5 s, until the listener has received what was committed before.
        """
        self._batch_listeners.remove(listener)

    def log_batches(self) -> None:
        """Logs a line for each committed micro-batch and batch job from now on: at level INFO of `spark_kafka_sink.batches`.

        Unless the program configures logging, the lines go to stderr. Calling it again changes nothing.
        """
        if self._log_batch not in self._batch_listeners:
            self.add_batch_listener(self._log_batch)
        if not _batches.handlers:
            _batches.setLevel(logging.INFO)
            _batches.addHandler(stderr_handler())

    def _log_batch(self, batch: BatchReport) -> None:
        _batches.info("%s", batch.line(self.query_name(batch.query_id)))

    @property
    def feed(self) -> Feed:
        """The part that travels with a task, so that it can report to this object."""
        address = self._listener.address if self._listener else None
        return Feed(self._accumulator, address, transactions=self._transactions, driver=DRIVER)

    def batch_committed(self, batch: BatchReport) -> None:
        """Adds a commit to `committed` and to the history, and has the batch listeners called."""
        with self._lock:
            self._committed = total([batch.report] if self._committed is None else [self._committed, batch.report])
            self._totals.add(batch)
            self._set_ended(batch.query_id if is_job(batch.query_id) else owner(batch.query_id, batch.sink), batch.batch)
        self._history.add(batch)
        warn_of_old_rows(batch.query_id, batch.report.older_than_retention)
        self._batch_listeners.put(batch)

    def batch_aborted(self, query_id: str, batch: int) -> None:
        """Notes that none of a batch's transactions is open any more."""
        with self._lock:
            self._set_ended(query_id, batch)

    def _set_ended(self, of: str, batch: int) -> None:
        """Requires the lock. of: the transactions' owner, or a query with all of its sinks."""
        self._ended.pop(of, None)
        self._ended[of] = batch
        if len(self._ended) > MOST_QUERIES:
            del self._ended[next(iter(self._ended))]

    def transaction_ages(self) -> dict[str, tuple[float, float]]:
        """Returns the age of each query's oldest open transaction, and its time limit, in seconds: see `transaction_ages`."""
        self._check_available()
        assert self._transactions is not None
        with self._lock:
            ended = dict(self._ended)
        return transaction_ages(self._transactions.value, self.live_tasks.transactions(), ended, time.time())

    def committing_s(self) -> dict[str, float]:
        """Returns for how many seconds the commit of each query has waited since it ended its transactions; 0 if it is over.

        The commit says so if it waits for long, which is for their markers or for the commit log.
        """
        self._check_available()
        with self._lock:
            ages = transaction_ages(self._committing, (), self._ended, time.time())
        return {query: age for query, (age, _) in ages.items()}

    def totals(self) -> dict[str, QueryTotals]:
        """Returns sums by query id, of the 200 queries that committed last. `BATCH_JOBS` has those of all batch jobs."""
        self._check_available()
        with self._lock:
            return self._totals.all()

    def watch(self, *, interval: float = 1.0, timeout: float | None = None) -> None:
        """Shows the streaming queries of this driver, with their last micro-batches, until Ctrl+C.

        In a terminal and in a notebook a table is replaced in place. Elsewhere a line follows for each
        micro-batch. Ctrl+C ends the view only: the queries go on. In a notebook, interrupt the cell.

        Args:
            interval: The seconds between two looks.
            timeout: The seconds until the view ends by itself; None: it waits for Ctrl+C.

        Raises:
            UsageError: Deliveries are not counted, as on Spark Connect, or a number is not above 0.
        """
        self._check_available()
        for name, seconds in (("interval", interval), ("timeout", timeout)):
            if seconds is not None and not 0 < seconds < float("inf"):
                raise UsageError(f"watch: {name} must be a number of seconds above 0, and it is {seconds}")
        notebook = is_notebook()
        table = table_for(sys.stdout, notebook=notebook)
        for query in self.totals():
            history = self._history.of(query)
            table.seed(query, history.rows_per_second().tolist(), history.ends_s().tolist())
        watch(
            self._reading,
            table,
            screen_of(sys.stdout, sys.stderr, notebook=notebook),
            interval_s=interval,
            timeout_s=timeout,
        )

    def close(self) -> None:
        """Stops listening for commits. The counts stay readable, and the next `register` returns a new handle.

        It waits up to 5 s for the calls of batch listeners, and ends them. Transactions of stopped queries may take 15 s more.
        """
        self.closed = True
        if self._listener is not None:
            self._listener.stop()
        self._stopped.close()
        self._batch_listeners.stop()

    def _left_open(self) -> list[OpenTransaction]:
        """Returns a transaction of each query that finished tasks have left open, and that is not known to have ended."""
        self._check_available()
        assert self._transactions is not None
        with self._lock:
            ended, now = dict(self._ended), time.time()
        return [each for each in self._transactions.value.values() if not each.has_ended(ended) and not each.has_timed_out(now)]

    def _reading(self) -> Reading:
        """Returns what `watch` shows. A query whose tasks write has their rows so far in its state."""
        totals, active = self.totals(), active_queries()
        for query, state in (active or {}).items():
            self._names.learn(query, state.name)
        names = {query: self.query_name(query, active or ()) for query in (*totals, *(active or ()))}
        states = None if active is None else {query: self._state(query, state.text) for query, state in active.items()}
        return Reading(time.time(), totals, states, names, self.writes.failed())

    def _state(self, query: str, text: str) -> str:
        tasks, counts = self.live_tasks.running(query)
        if not tasks:
            return text
        return f"{counted(tasks, 'task')} {'writes' if tasks == 1 else 'write'}, {counted(counts.records, 'row')} so far"

    def _check_available(self) -> None:
        if not self.available:
            raise UsageError(self.reason)

    def __repr__(self) -> str:
        if not self.available:
            return f"DeliveryMetrics(not available: {self._reason})"
        live, committed = self.live, self.committed
        return "\n".join(
            f"{name}: {report.line() if report else 'nothing reported yet'}"
            for name, report in (("live", live), ("committed", committed))
        )

    def __str__(self) -> str:
        if not self.available:
            return repr(self)
        counts = (("committed", self.committed), ("live", self.live))
        return "\n\n".join(f"{name}:\n{report or 'nothing reported yet'}" for name, report in counts)

    def _repr_html_(self) -> str:
        if not self.available:
            return text_html(repr(self))
        return reports_html([("committed", self.committed), ("live", self.live)])


def listener_of(context: SparkContext, handlers: Mapping[bytes, Handler]) -> MetricsListener:
    """Starts a listener where the executors of this SparkContext can reach it, or else on the loopback interface.

    On a cluster it is the address where Spark's own driver listens, and for processes of the driver's machine, such as the one
    that commits, the loopback interface as well.
    """
    settings = context.getConf()
    if not str(context.master).startswith("local"):
        bound = settings.get("spark.driver.bindAddress") or settings.get("spark.driver.host")
        host = settings.get("spark.driver.host")
        try:
            if bound and host:
                return MetricsListener(handlers, bound, known_as=host)
        except OSError as error:
            logger.warning("cannot listen on %s, so that running tasks are not shown: %s", bound, error)
    return MetricsListener(handlers)


BATCHES_LOGGER: Final = "spark_kafka_sink.batches"
_batches = logging.getLogger(BATCHES_LOGGER)
