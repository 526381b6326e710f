"""`publish(df, ...)` writes a DataFrame to Kafka and returns a report.

publish() and foreach_batch() run a batch DataFrame through mapInArrow. Each task returns its report as a row. Arrow data of other
libraries is one task, which runs in this process.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import OptionError, UsageError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.installation import SameVersion
from spark_kafka_sink.options.option import nearest
from spark_kafka_sink.options.sink_options import KAFKA_PREFIX, TOPIC, SinkOptions
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, array_of_numbers
from spark_kafka_sink.reports.delivery_report import DeliveryReport, Tabular
from spark_kafka_sink.reports.report_facts import Fact, run_facts
from spark_kafka_sink.reports.report_html import report_html
from spark_kafka_sink.reports.report_tables import task_table
from spark_kafka_sink.reports.report_text import report_text
from spark_kafka_sink.spark.bad_row_limits import check_limits
from spark_kafka_sink.spark.batch_report import BatchReport, committed_now, warn_of_old_rows
from spark_kafka_sink.spark.driver.arrow_input import ArrowInput, SupportsArrowStream
from spark_kafka_sink.spark.driver.explain import linked, plug_in_error, sink_error
from spark_kafka_sink.spark.driver.interrupts import without_pysparks_handler
from spark_kafka_sink.spark.driver.metrics import DRIVER, DeliveryMetrics
from spark_kafka_sink.spark.driver.spark_input import SparkInput
from spark_kafka_sink.spark.driver.views.progress_bar import CallProgress
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.messages import (
    DeliveryMessage,
    check_clusters,
    report_from_bytes,
    report_to_bytes,
    share_from_json,
    share_to_json,
    total,
)
from spark_kafka_sink.spark.plan.commits import check_batch, check_job, commit_shares
from spark_kafka_sink.spark.plan.exported_error import exported
from spark_kafka_sink.spark.plan.failed_writes import abort_job, abort_micro_batch
from spark_kafka_sink.spark.plan.first_contact import check_reachable, create_again
from spark_kafka_sink.spark.plan.report_topic import write_report
from spark_kafka_sink.spark.plugin_checks import checked_options
from spark_kafka_sink.spark.schema import SinkSchema
from spark_kafka_sink.spark.task.task import run_task, spark_partition
from spark_kafka_sink.spark.trace_header import with_batch_context, with_current_span
from spark_kafka_sink.spark.write_events import (
    Destination,
    WriteBegan,
    WriteCommitted,
    WriteFailed,
    destination,
    task_times,
)

if TYPE_CHECKING:
    from spark_kafka_sink.spark.task.refused_rows import SplitBatch

Resolve = Callable[[SinkOptions, SinkSchema, StructType], SinkOptions]
"""Returns the options with the schemas of keys and values: `resolved_schemas.resolved_options`, or an earlier result of it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Report of a finished task.

    Attributes:
        spark_partition: Number of the Spark partition that the task wrote, from 0.
        report: Counts of the task's records.
    """

    spark_partition: int
    report: DeliveryReport


@dataclass(frozen=True, slots=True)
class PublishReport(Tabular):
    """Report of what publish() delivered. It prints as text, and notebooks show it with charts.

    Attributes:
        total: Sums over all tasks.
        tasks: The report of each task, in the order of Spark's partitions.
        seconds: Duration of the call, including Spark's own work.
        throughput: Pairs of the seconds since the start and the rows per second at that time. Empty without a progress bar, and
            on Spark Connect.
    """

    total: DeliveryReport
    tasks: tuple[TaskReport, ...]
    seconds: float
    throughput: tuple[tuple[float, float], ...] = ()

    @property
    def rows_per_second(self) -> float:
        """Acknowledged records per second, over the whole duration."""
        return self.total.records / self.seconds if self.seconds else 0.0

    def __repr__(self) -> str:
        return report_text(self.total, self._facts(), self.throughput)

    def _repr_html_(self) -> str:
        return report_html(self.total, self._facts(), self.throughput)

    def _facts(self) -> list[Fact]:
        return run_facts(self.seconds, self.rows_per_second, [task.report.records for task in self.tasks])

    def to_arrow(self) -> pa.Table:
        """Returns a row for each task and topic-partition, sorted by `spark_partition`, `topic` and `partition`.

        The first column is `spark_partition` (int32, never null). The others are those of DeliveryReport.to_arrow.
        `report.total.to_arrow()` has the sums over all tasks.
        """
        return task_table([(task.spark_partition, task.report.partitions) for task in self.tasks])


def publish(
    df: DataFrame | SupportsArrowStream,
    *,
    topic: str | None = None,
    bootstrap_servers: str | Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    metrics: DeliveryMetrics | None = None,
    progress: bool | None = None,
    **unknown: object,
) -> PublishReport:
    """Writes all rows of a batch DataFrame to Kafka and returns when Kafka has acknowledged all of them.

    A task that Spark retries writes its rows again. With delivery.guarantee=exactly-once, publish() returns when every row is
    visible exactly once, and no row is visible after an error. The driver asks Kafka for the topic before the job starts, for
    at most 10 seconds by default, so a wrong address fails before any task.

    Args:
        df: A batch DataFrame of Spark with the columns of `format("kafka_sink")`. Or Arrow data with them: a DataFrame of
            Polars or pandas, a relation of DuckDB, a table of pyarrow, or what else has `__arrow_c_stream__`. This process writes
            it, without a Spark session.
        topic: The topic of all rows. None if the column `topic` names the topic of each row.
        bootstrap_servers: "host:port,host:port", or a sequence of "host:port".
        options: More options, as for `format("kafka_sink")`.
        metrics: A handle of `register` that also counts the rows.
        progress: Whether to draw a progress bar. None draws it in notebooks and terminals only. Arrow data has none.
        unknown: Nothing. Options belong into `options`, and an error says so.

    Raises:
        KafkaSinkError: Options or columns are wrong, no broker can be reached, or a task failed. The error is raised without
            Spark's stack traces, which stay in the log. `__context__` is Spark's exception.
    """
    for name in unknown:
        option = f"{KAFKA_PREFIX}{name.replace('_', '.')}"
        hint = nearest(name, ("topic", "bootstrap_servers", "options", "metrics", "progress"))
        hint = hint or f"; write options={{'{option}': ...}} if it is an option of the producer"
        raise UsageError(f"publish() has no argument {name}{hint}")
    handled = sys.exception()
    try:
        return _publish(df, topic, bootstrap_servers, options or {}, metrics, progress)
    except Exception as error:
        found = sink_error(error, is_certain=True, handled=handled)
        if found is None:
            raise
        raise linked(found) from plug_in_error(found)


def _publish(
    df: DataFrame | SupportsArrowStream,
    topic: str | None,
    bootstrap_servers: str | Sequence[str] | None,
    options: Mapping[str, object],
    metrics: DeliveryMetrics | None,
    progress: bool | None,
) -> PublishReport:
    if not isinstance(df, DataFrame) and not hasattr(df, "__arrow_c_stream__"):
        kind = f"{type(df).__module__.partition('.')[0]}.{type(df).__name__}"
        raise UsageError(
            f"publish() needs a DataFrame of Spark, or Arrow data, such as a DataFrame of Polars or pandas 2.2; not a {kind}."
            f" Write {'publish(frame.collect(), ...)' if hasattr(df, 'collect') else 'publish(spark.createDataFrame(...), ...)'},"
            " or make a table of pyarrow of it"
        )
    named = {TOPIC: topic, KAFKA_PREFIX + "bootstrap.servers": bootstrap_servers}
    given = {name: value for name, value in named.items() if value is not None}
    for name in options:
        if name.lower() in given:
            raise OptionError(f"option {name}: given as an argument too", option=name)
    checked = checked_options({**options, **given})
    start = time.monotonic()
    job = WriteState()
    rows = SparkInput(df) if isinstance(df, DataFrame) else ArrowInput(df)
    with without_pysparks_handler(), rows.followed(metrics, progress) as shown:
        try:
            tasks = _publish_job(rows, checked, metrics, shown.feed, job)
        except KeyboardInterrupt as error:  # the job is cancelled
            error.add_note(_when_interrupted(checked, shown, job))
            logger.warning("%s%s", _INTERRUPTED, "" if job.outcome else f". {error.__notes__[-1]}")  # the outcome is in the log
            raise
    took = time.monotonic() - start
    summed = replace(total(task.report for task in tasks), reports_lost=job.reports_lost)
    return PublishReport(summed, tuple(tasks), took, shown.throughput())


@dataclass(slots=True)
class WriteState:
    """How far a write has come, for its end if it fails, and for the note of an interrupt.

    has_begun: whether Spark got the job. where: the destination, once it is known. shares: those of all tasks, from the moment
    that the commit begins. outcome: of a job's transactions, once they are aborted. reports_lost: as in a DeliveryReport.
    """

    has_begun: bool = False
    where: Destination | None = None
    shares: list[TaskTransaction] = field(default_factory=list)
    outcome: str = ""
    reports_lost: int = 0


_INTERRUPTED: Final = "publish was interrupted"
_ABORT_INTERRUPTED: Final = (
    "The abort of its transactions was interrupted, too, so they may stay open until they time out."
    " `spark-kafka-sink transactions list` shows them."
)


def _when_interrupted(options: SinkOptions, progress: CallProgress, job: WriteState) -> str:
    if not job.has_begun:
        return "The job had not begun, so nothing was written."
    if options.exactly_once is not None:
        return f"{job.outcome}." if job.outcome else _ABORT_INTERRUPTED
    stays = "they stay in their topics, and another call writes them again."
    if not progress.is_counted:
        return f"It is not known how many rows Kafka has acknowledged; {stays}"
    records = progress.delivered().records
    if not records:
        return f"No task has reported rows that Kafka acknowledged. If Kafka has stored some, {stays}"
    return f"Kafka has acknowledged {counted(records, 'row')} or more; {stays}"


@dataclass(frozen=True, slots=True)
class ArrowTask(SameVersion):
    """One task over Arrow batches. Returns one row: its report, when it began and ended and, under exactly-once, its
    transaction.

    batch: the micro-batch that the task writes a share of, under exactly-once. is_reachable: whether the driver has asked Kafka;
    if not, the task does, with the same patience.
    """

    schema: SinkSchema
    options: SinkOptions
    feed: Feed
    batch: MicroBatch | None = None
    is_reachable: bool = True

    def run(self, batches: Iterator[pa.RecordBatch | SplitBatch]) -> Iterator[pa.RecordBatch]:
        if not self.is_reachable:
            check_reachable(self.options, who="Spark's task")
        rows = ((self.schema, batch) for batch in batches)
        began = time.time()
        report, share = run_task(rows, self.options, self.feed, self.batch)
        columns = [
            array_of_numbers(np.array([spark_partition()], np.int32)),
            array_of_bytes([report_to_bytes(report)]),
            array_of_bytes([None if share is None else share_to_json(share).encode()], pa.string()),
            array_of_numbers(np.array([began], np.float64)),
            array_of_numbers(np.array([time.time()], np.float64)),
        ]
        yield pa.record_batch(columns, names=["spark_partition", "report", "share", "began", "ended"])


def _publish_job(
    rows: SparkInput | ArrowInput, options: SinkOptions, metrics: DeliveryMetrics | None, feed: Feed, state: WriteState
) -> list[TaskReport]:
    """Runs the job of a call of `publish`, and returns its tasks' reports. Under exactly-once all rows become visible or none."""
    job = MicroBatch.of_new_job()
    written = None if options.exactly_once is None else job

    def abort() -> bool:
        end = abort_job(options, job, state.shares, is_commit_begun=bool(state.shares), tasks_may_run=rows.tasks_may_run)
        state.outcome = end.text
        return end.is_over

    with _ending_failed(metrics, job, state, None if written is None else abort):
        columns, options = rows.columns(options), with_current_span(options)
        asks = rows.asks_kafka or options.creation is not None
        if asks:
            check_reachable(options, has_timestamps=columns.timestamp is not None, who=rows.who)
        task = ArrowTask(columns.selected(), options, feed, written, is_reachable=asks)
        task = _planned(rows.schema, columns, task, state)
        if written is not None:
            check_job(options, written)
        with rows.cancelled_if_interrupted():
            return _run(rows, columns, task, metrics, job, state)


def publish_micro_batch(
    df: DataFrame,
    options: SinkOptions,
    metrics: DeliveryMetrics | None,
    batch: MicroBatch,
    *,
    is_reachable: bool,
    resolve: Resolve,
) -> list[TaskReport]:
    """Runs the job and returns its tasks' reports, by Spark partition. `metrics` counts them as live and as committed.

    batch: names the rows. Under exactly-once, if the rows of an earlier attempt are the visible ones, these rows are aborted and
    there are no reports. is_reachable: whether Kafka was reached before; if not, the driver asks it first. resolve: asks the
    registry if the options have schemas.
    """
    written = None if options.exactly_once is None else batch
    state = WriteState()

    def committed(report: BatchReport) -> None:
        if metrics is not None and metrics.available and options.exactly_once is not None:
            metrics.batch_committed(replace(report, sink=options.exactly_once.sink))

    def abort() -> bool:
        return abort_micro_batch(options, batch, DRIVER, committed, is_commit_begun=bool(state.shares))

    with _ending_failed(metrics, batch, state, None if written is None else abort):
        rows = SparkInput(df)
        columns = rows.columns(options)
        if not is_reachable:
            check_reachable(options, has_timestamps=columns.timestamp is not None)
            if written is not None:
                check_batch(options, written)
        elif options.creation is not None:
            create_again(options)
        task = ArrowTask(columns.selected(), options, Feed(driver=DRIVER) if metrics is None else metrics.feed, written)
        task = _planned(rows.schema, columns, task, state, resolve)
        return _run(rows, columns, task, metrics, batch, state)


@contextmanager
def _ending_failed(
    metrics: DeliveryMetrics | None, batch: MicroBatch, state: WriteState, abort: Callable[[], bool] | None
) -> Iterator[None]:
    """Counts a write that fails within this block, and aborts its transactions.

    abort: returns whether none of them is open any more; None: there are none.
    """
    try:
        yield
    except BaseException as error:  # a notebook's interrupt, too
        try:
            tell_failed(metrics, batch, error, state.where)
        finally:
            if abort is not None and state.has_begun and abort() and metrics is not None:
                metrics.batch_aborted(batch.query_id, batch.number)
        raise


def tell_failed(metrics: DeliveryMetrics | None, batch: MicroBatch, error: BaseException, where: Destination | None) -> None:
    """Counts a failed write, and tells exporters."""
    if metrics is None:
        return
    found = sink_error(error, is_certain=True) if isinstance(error, Exception) else None
    is_interrupt = isinstance(error, KeyboardInterrupt)
    # Another program's error may quote rows or passwords.
    message = _INTERRUPTED if is_interrupt else type(error).__name__ if found is None else exported(found)
    metrics.writes.tell(WriteFailed(batch.query_id, batch.number, time.time(), message, is_interrupt, where))


def _planned(
    rows: StructType, columns: SinkSchema, task: ArrowTask, state: WriteState, resolve: Resolve | None = None
) -> ArrowTask:
    """Returns the task with its final options. Sets the destination.

    It may register a schema, so Kafka is known to be reachable. Raises before there is anything to abort.
    """
    options = task.options
    if options.schemas is not None:
        from spark_kafka_sink.spark.plan.resolved_schemas import resolved_options  # 200 ms, and tasks load this module, too

        options = (resolve or resolved_options)(options, columns, rows)
    options = with_batch_context(options)
    state.where = destination(options, columns, rows)
    return replace(task, options=options)


def _run(
    rows: SparkInput | ArrowInput,
    columns: SinkSchema,
    task: ArrowTask,
    metrics: DeliveryMetrics | None,
    batch: MicroBatch,
    state: WriteState,
) -> list[TaskReport]:
    """batch: names the rows in the history, whether they are written in transactions or not."""
    if metrics is not None and metrics.writes.is_wanted:
        assert state.where is not None
        metrics.writes.tell(WriteBegan(batch.query_id, batch.number, time.time(), state.where))
    state.has_begun = True

    results = rows.run(task, columns)
    commit_began = time.time()
    reports = sorted(
        (TaskReport(row[0], report_from_bytes(bytes(row[1]))) for row in results), key=lambda one: one.spark_partition
    )
    committed = [one.report for one in reports]
    began = min((row[3] for row in results), default=commit_began)
    check_clusters(committed)
    if task.batch is None:
        check_limits(task.options.errors, committed, is_visible=True)
    else:
        state.shares += [share_from_json(row[2], task.batch) for row in results]
        visible = commit_shares(task.options, task.batch, state.shares, committed, task.feed, began)
        reports, committed = (reports if visible.own else []), visible.reports
    warn_of_old_rows(batch.query_id, sum(report.older_than_retention for report in committed))
    sink = (task.options.topic or "") if task.options.exactly_once is None else task.options.exactly_once.sink
    batch_report = committed_now(batch.query_id, batch.number, began, committed, sink)
    if task.batch is None and task.options.report_topic is not None:
        batch_report.report.reports_lost += not write_report(task.options, batch_report, batch.name)
    state.reports_lost = batch_report.report.reports_lost
    if metrics is not None and metrics.available:
        metrics.batch_committed(batch_report)
        if metrics.writes.is_wanted:
            tasks = [DeliveryMessage(row[0], report_from_bytes(bytes(row[1])), None, "", row[3], row[4]) for row in results]
            metrics.writes.tell(WriteCommitted(batch_report, commit_began, task_times(tasks), state.where))
    return reports
