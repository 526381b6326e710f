"""`format("kafka_sink")`: Spark's Python data source over `run_task`.

Constructors have no effects, because Spark calls them again in the process that commits. Only commit messages carry state there.
What plans, writes or commits is imported where it is used, because Spark starts a Python process for each of these steps, and the
first micro-batch waits for all of their imports.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import KafkaSinkError, OptionError, UsageError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.installation import SameVersion, check_same_version
from spark_kafka_sink.options.secret import HiddenValues
from spark_kafka_sink.spark.batch_report import BatchReport, warn_of_old_rows
from spark_kafka_sink.spark.destination import Destination, destination
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.messages import DeliveryMessage, Messages, check_clusters, reports_of, shares_of, total
from spark_kafka_sink.spark.python_workers import log_in_sparks_process
from spark_kafka_sink.spark.write_events import WriteBegan, WriteCommitted, WriteFailed, task_times
from spark_kafka_sink.version import __version__

if TYPE_CHECKING:
    from spark_kafka_sink.options.sink_options import SinkOptions
    from spark_kafka_sink.reports.delivery_report import DeliveryReport
    from spark_kafka_sink.spark.schema import SinkSchema

logger = logging.getLogger(__name__)

NAME = "kafka_sink"
SERVERS: Final = "kafka.bootstrap.servers"
IN_SQL: Final = (
    f"In SQL, Spark does not hand on the OPTIONS of a table: write INSERT INTO t WITH ('{SERVERS}' = 'host:port', 'topic' ="
    " 'events') SELECT ..., or set them in register(spark, options=...)"
)

NO_OPTIONS: Mapping[str, object] = HiddenValues()

NOT_WRITTEN = (
    "trigger(continuous=...) is not supported, nor is real-time mode: Spark commits without ever calling this sink's tasks,"
    " so nothing is written; use trigger(processingTime=...) or trigger(availableNow=True)"
)


class KafkaSinkDataSource(DataSource):
    """The class that Spark looks up. It checks options and schema before any task starts."""

    feed: ClassVar[Feed] = Feed()
    session_options: ClassVar[Mapping[str, object]] = NO_OPTIONS
    driver_version: ClassVar[str | None] = None  # None: it was not pickled by a driver

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        with self._telling_failures(lambda: MicroBatch.of_new_job().query_id):
            return self._writer(schema, overwrite=overwrite)

    def _writer(self, schema: StructType, *, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise UsageError("mode overwrite: a topic cannot be overwritten; use mode('append')")
        from spark_kafka_sink.spark.trace_header import with_batch_context

        columns, options = self._checked(schema)
        _check_reachable(options, is_stream=False, has_timestamps=columns.timestamp is not None)
        if options.schemas is not None:
            from spark_kafka_sink.spark.plan.resolved_schemas import resolved_options

            options = resolved_options(options, columns, schema)
        options = with_batch_context(options)
        writer = KafkaSinkWriter(columns, options, self.feed, destination(options, columns, schema))
        writer.check()
        writer.tell_begun()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """`overwrite` means complete mode: each batch appends the whole result again, as with Spark's own Kafka sink."""
        from spark_kafka_sink.options.guarantee_options import checkpoint_of, query_of

        checkpoint = checkpoint_of(self.options)
        with self._telling_failures(lambda: query_of(checkpoint) or ""):
            return self._stream_writer(schema, checkpoint)

    def _stream_writer(self, schema: StructType, checkpoint: str) -> DataSourceStreamWriter:
        from spark_kafka_sink.spark.trace_header import with_batch_context

        columns, options = self._checked(schema)
        _check_reachable(options, is_stream=True, has_timestamps=columns.timestamp is not None)
        if options.schemas is not None:
            from spark_kafka_sink.spark.plan.resolved_schemas import resolved_for_stream

            options = resolved_for_stream(options, columns, schema, self.options)
        options = with_batch_context(options)  # Spark plans each micro-batch
        where = destination(options, columns, schema)
        feed = self.feed
        if options.exactly_once is not None:
            feed = feed.planned({**self.session_options, **self.options})
        return KafkaSinkStreamWriter(columns, options, feed, where, checkpoint)

    @contextmanager
    def _telling_failures(self, query_id: Callable[[], str]) -> Iterator[None]:
        """Tells the driver program of a write that fails while Spark plans it: then Spark aborts nothing."""
        try:
            yield
        except KafkaSinkError as error:
            from spark_kafka_sink.spark.plan.exported_error import exported

            self.feed.tell(WriteFailed(query_id(), 0, time.time(), exported(error)))
            raise

    def schema(self) -> NoReturn:
        raise UsageError(f"{NAME} only writes; read a topic with format('kafka')")

    def _checked(self, schema: StructType) -> tuple[SinkSchema, SinkOptions]:
        if self.driver_version is not None:
            check_same_version(self.driver_version)
        from spark_kafka_sink.spark.plugin_checks import checked_options, looked_at
        from spark_kafka_sink.spark.schema import check_arrow, sink_schema

        log_in_sparks_process()
        given = {**self.session_options, **self.options}  # both with lower-cased names
        try:
            options = checked_options(given)
        except OptionError as error:
            if error.facts.get("option") == SERVERS and SERVERS not in given:
                raise OptionError(f"{error.message}. {IN_SQL}", option=SERVERS) from None
            raise
        check_arrow(schema)
        with looked_at(options.producer) as serializers:
            columns = sink_schema(schema, options.topic, serializers, record=options.record, formats=options.formats)
            return columns, options


def _check_reachable(options: SinkOptions, *, is_stream: bool, has_timestamps: bool) -> None:
    """Checks Kafka while Spark plans a write, and creates the topic if `topic.create.*` is set.

    Under exactly-once, a stream's first batch also checks the commit log, as each batch job does (`KafkaSinkWriter.check`).

    For a stream it does so only until it has succeeded once. Spark plans each micro-batch of a stream, often in a new process. A
    running stream must survive an outage of Kafka, so a file in Spark's folder for temporary files records that the topic was
    reached once in this application. Then a topic that was deleted meanwhile is created again if `topic.create.*` is set.
    """
    # Spark sets it for processes that plan and commit, and removes the folders when the application ends.
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not folder:
        return
    commit_log = options.exactly_once if is_stream else None  # with the checkpoint: each query has its own records there
    named = repr((options.producer.bootstrap_servers, options.topic, options.creation, options.errors.topic, commit_log))
    mark = Path(folder) / f"kafka-sink-reached-{sha256(named.encode()).hexdigest()[:16]}"
    is_known = is_stream and mark.exists()
    if is_known and options.creation is None:
        return
    from spark_kafka_sink.spark.plan.first_contact import check_reachable, create_again

    if is_known:
        create_again(options)
        return

    # Made first: a stream must not ask if it cannot record the answer. A check that fails leaves the mark of an earlier one.
    asking = mark.with_name(f"{mark.name}-{os.getpid()}")
    try:
        asking.touch()
    except OSError:
        if not is_stream:
            check_reachable(options, has_timestamps=has_timestamps)
        return
    try:
        check_reachable(options, has_timestamps=has_timestamps)
        if commit_log is not None:
            from spark_kafka_sink.spark.plan.commits import check_query

            check_query(options)
        asking.replace(mark)
    finally:
        asking.unlink(missing_ok=True)


def reporting_to(feed: Feed, options: Mapping[str, object] = NO_OPTIONS) -> type[KafkaSinkDataSource]:
    """Returns a data source class bound to a metrics handle and a session's options.

    It is a class because Spark creates the instances itself. Spark gets it pickled, so it shows none of the options.
    """

    from spark_kafka_sink.options.record_options import check_header_names

    check_header_names(list(options))

    class ReportingKafkaSinkDataSource(KafkaSinkDataSource):
        pass

    # The class is pickled by value, without attributes that are its base's. The base comes from the process that unpickles it.
    ReportingKafkaSinkDataSource.driver_version = __version__
    ReportingKafkaSinkDataSource.feed = feed
    ReportingKafkaSinkDataSource.session_options = HiddenValues({name.lower(): value for name, value in options.items()})
    return ReportingKafkaSinkDataSource


class KafkaSinkWriter(SameVersion, DataSourceArrowWriter):
    """The writer of a batch job, and the base of the stream's. `write` runs in tasks, the rest in Spark's commit process."""

    def __init__(self, schema: SinkSchema, options: SinkOptions, feed: Feed, where: Destination) -> None:
        self._schema = schema
        self._options = options
        self._feed = feed
        self._where = where
        self._job = MicroBatch.of_new_job()  # in the driver, once a job

    def check(self) -> None:
        """Checks that the job can be committed, as far as this is known before its tasks write."""
        if self._options.exactly_once is not None:
            from spark_kafka_sink.spark.plan.commits import check_job

            check_job(self._options, self._job)

    def tell_begun(self) -> None:
        """Tells exporters that the job begins."""
        self._feed.tell(WriteBegan(self._job.query_id, 0, time.time(), self._where))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from spark_kafka_sink.spark.task.task import run_task, spark_partition, task_query_id

        batches = ((self._schema, batch) for batch in iterator)
        batch = None if self._options.exactly_once is None else self._batch()
        began = time.time()
        report, share = run_task(batches, self._options, self._feed, batch)
        return DeliveryMessage(spark_partition(), report, share, task_query_id(), began, time.time(), self._where.context)

    def _batch(self) -> MicroBatch:
        """Returns the batch that a task writes a share of."""
        return self._job

    def commit(self, messages: Messages) -> None:
        commit_began = time.time()
        self._check_complete(messages)
        if self._options.exactly_once is None:
            reports = self._commit_at_least_once(messages)
        else:
            from spark_kafka_sink.spark.plan.commits import commit_job

            reports = commit_job(self._options, self._job, messages, self._feed)
        self._committed(self._job.query_id, 0, messages, reports, commit_began)

    def _commit_at_least_once(self, messages: Messages) -> list[DeliveryReport]:
        """Returns what the tasks wrote, which is in Kafka already. Raises TooManyBadRowsError."""
        if self._options.errors.tolerates:
            from spark_kafka_sink.spark.task.bad_row_limits import check_limits

            check_limits(self._options.errors, reports_of(messages), is_visible=True)
        return reports_of(messages)

    def _committed(
        self, query_id: str, batch: int, messages: Messages, reports: Iterable[DeliveryReport], commit_began: float
    ) -> None:
        """Tells the driver program."""
        now = time.time()
        began = min((each.began for each in messages if isinstance(each, DeliveryMessage)), default=now)
        report = BatchReport(query_id, batch, began, max(now - began, 0.0), total(reports))
        self._feed.committed(report, lambda: WriteCommitted(report, commit_began, task_times(messages), self._written(messages)))
        if self._feed.listener is None:
            warn_of_old_rows(query_id, report.report.older_than_retention)

    def _written(self, messages: Messages) -> Destination:
        """Returns the destination with the trace of the tasks. For a stream, Spark makes another writer for the commit."""
        context = next((each.context for each in messages if isinstance(each, DeliveryMessage)), self._where.context)
        return replace(self._where, context=context)

    def _check_complete(self, messages: Messages) -> None:
        """Refuses to commit what no task wrote, or tasks wrote to several clusters.

        Spark accepts Trigger.Continuous for a Python sink, never calls write() and commits [None, ...]: a silent loss.
        """
        log_in_sparks_process()
        if any(message is None for message in messages):
            self._feed.refused()
            raise UsageError(NOT_WRITTEN)
        check_clusters(reports_of(messages))

    def abort(self, messages: Messages) -> None:
        log_in_sparks_process()
        try:
            self._abort(messages)
        finally:  # consumers wait for the transactions, and nobody for this
            self._feed.tell(WriteFailed(self._job.query_id, 0, time.time(), _ABORTED, destination=self._written(messages)))

    def _abort(self, messages: Messages) -> None:
        if self._options.exactly_once is not None:
            from spark_kafka_sink.spark.plan.aborts import abort_job

            # Spark passes None for each task that did not end. Only after all have ended it commits.
            if abort_job(self._options, self._job, shares_of(messages), is_commit_begun=None not in messages).is_over:
                self._feed.aborted(self._job)
            return
        stored = total(reports_of(messages)).records
        if not stored:
            logger.warning("the write was aborted; no rows were stored in Kafka by finished tasks")
            return
        logger.warning(
            "the write was aborted after its finished tasks had stored %s in Kafka; writing again stores them a second time",
            counted(stored, "record"),
        )


_ABORTED = "Spark aborted the write. The exception that the program got from Spark, and Spark's log, have the reason."


# DataSourceStreamArrowWriter exists from Spark 4.1; these two parents get Arrow batches on 4.0 as well, where one parent alone
# would get a Row per record.
class KafkaSinkStreamWriter(KafkaSinkWriter, DataSourceStreamWriter):
    """A stream's writer. Spark creates one for each micro-batch."""

    def __init__(self, schema: SinkSchema, options: SinkOptions, feed: Feed, where: Destination, checkpoint: str) -> None:
        """checkpoint: as of `checkpoint_of`."""
        super().__init__(schema, options, feed, where)
        self._checkpoint = checkpoint

    def _batch(self) -> MicroBatch:
        from spark_kafka_sink.spark.task.task import task_batch

        return task_batch()

    def commit(self, messages: Messages, batchId: int) -> None:  # type: ignore[override]
        commit_began = time.time()
        self._check_complete(messages)
        if self._options.exactly_once is None:
            reports = self._commit_at_least_once(messages)
        else:
            from spark_kafka_sink.spark.plan.commits import commit_micro_batch

            reports = commit_micro_batch(self._options, batchId, messages, self._feed)
        self._committed(_query_id(messages), batchId, messages, reports, commit_began)

    def abort(self, messages: Messages, batchId: int) -> None:  # type: ignore[override]
        from spark_kafka_sink.options.guarantee_options import query_of

        log_in_sparks_process()
        where = self._written(messages)
        query_id = _query_id(messages) or query_of(self._checkpoint) or ""
        try:
            if self._options.exactly_once is None:
                self._abort(messages)
                return
            from spark_kafka_sink.spark.plan.aborts import abort_micro_batch

            batch = MicroBatch(query_id, batchId)
            now = time.time()

            def count(number: int, reports: list[DeliveryReport]) -> None:
                self._feed.committed(BatchReport(query_id, number, now, time.time() - now, total(reports)))

            if abort_micro_batch(self._options, batch, self._feed.driver, count, is_commit_begun=None not in messages):
                self._feed.aborted(batch)
        finally:  # consumers wait for the transactions, and nobody for this
            self._feed.tell(WriteFailed(query_id, batchId, time.time(), _ABORTED, destination=where))


def _query_id(messages: Messages) -> str:
    """Returns the query's id, which only its tasks know; empty if none has finished."""
    return next((each.query_id for each in messages if isinstance(each, DeliveryMessage)), "")
