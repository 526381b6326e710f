"""The writers of `format("kafka_sink")`, which Spark pickles. `write` runs in tasks, the rest in Spark's commit process.

Only commit messages carry state between the two. What writes or commits is imported where it is used, because Spark starts a
Python process for each of these steps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.installation import SameVersion
from spark_kafka_sink.options.guarantee_options import query_of
from spark_kafka_sink.spark.bad_row_limits import check_limits
from spark_kafka_sink.spark.batch_report import committed_now, warn_of_old_rows
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.local_variables import without_local_variables
from spark_kafka_sink.spark.messages import DeliveryMessage, Messages, began_of, check_clusters, reports_of, shares_of, total
from spark_kafka_sink.spark.python_workers import log_in_sparks_process
from spark_kafka_sink.spark.write_events import Destination, WriteBegan, WriteCommitted, WriteFailed, task_times

if TYPE_CHECKING:
    from spark_kafka_sink.options.sink_options import SinkOptions
    from spark_kafka_sink.spark.schema import SinkSchema

logger = logging.getLogger(__name__)

NOT_WRITTEN = (
    "trigger(continuous=...) is not supported, nor is real-time mode: Spark commits without ever calling this sink's tasks,"
    " so nothing is written; use trigger(processingTime=...) or trigger(availableNow=True)"
)


class KafkaSinkWriter(SameVersion, DataSourceArrowWriter):
    """The writer of a batch job, and the base of the stream's."""

    is_stream: ClassVar[bool] = False

    def __init__(self, schema: SinkSchema, options: SinkOptions, feed: Feed, where: Destination) -> None:
        self._schema = schema
        self._options = options
        self._feed = feed
        self._where = where
        self._job = MicroBatch.of_new_job()  # in the driver, once a job

    def begin(self) -> None:
        """Checks that the job can be committed, as far as this is known before its tasks write, and tells exporters of it."""
        if self._options.exactly_once is not None:
            from spark_kafka_sink.spark.plan.commits import check_job

            check_job(self._options, self._job)
        self._feed.tell(WriteBegan(self._job.query_id, 0, time.time(), self._where))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from spark_kafka_sink.spark.task.task import run_task, spark_partition, task_batch, task_query_id

        batches = ((self._schema, batch) for batch in iterator)
        batch = None if self._options.exactly_once is None else task_batch() if self.is_stream else self._job
        began = time.time()
        report, share = run_task(batches, self._options, self._feed, batch)
        return DeliveryMessage(spark_partition(), report, share, task_query_id(), began, time.time(), self._where.context)

    def commit(self, messages: Messages) -> None:
        self._commit(messages, self._job.query_id, 0)

    @without_local_variables
    def _commit(self, messages: Messages, query_id: str, batch: int) -> None:
        """Commits, and tells the driver program."""
        commit_began = time.time()
        self._check_complete(messages)
        reports = reports_of(messages)
        if self._options.exactly_once is not None:
            from spark_kafka_sink.spark.plan.commits import commit_job, commit_micro_batch

            if self.is_stream:
                reports = commit_micro_batch(self._options, batch, messages, self._feed)
            else:
                reports = commit_job(self._options, self._job, messages, self._feed)
        elif self._options.errors.tolerates:
            check_limits(self._options.errors, reports, is_visible=True)
        began = began_of(messages)
        report = committed_now(query_id, batch, began, reports)
        if self._options.report_topic is not None and self._options.exactly_once is None:
            from spark_kafka_sink.spark.plan.report_topic import write_report

            report.report.reports_lost += not write_report(self._options, report)
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
        self._abort(messages, self._job)

    def _abort(self, messages: Messages, batch: MicroBatch) -> None:
        log_in_sparks_process()
        try:
            if self._options.exactly_once is not None:
                self._end_transactions(messages, batch)
            elif stored := total(reports_of(messages)).records:
                logger.warning(
                    "the write was aborted after its finished tasks had stored %s in Kafka;"
                    " writing again stores them a second time",
                    counted(stored, "record"),
                )
            else:
                logger.warning("the write was aborted; no rows were stored in Kafka by finished tasks")
        finally:  # consumers wait for the transactions, and nobody for this
            where = self._written(messages)
            self._feed.tell(WriteFailed(batch.query_id, batch.number, time.time(), _ABORTED, destination=where))

    def _end_transactions(self, messages: Messages, batch: MicroBatch) -> None:
        from spark_kafka_sink.spark.plan.failed_writes import abort_job, abort_micro_batch

        # Spark passes None for each task that did not end. Only after all have ended it commits.
        is_commit_begun, feed = None not in messages, self._feed
        if self.is_stream:
            is_over = abort_micro_batch(self._options, batch, feed.driver, feed.committed, is_commit_begun=is_commit_begun)
        else:
            is_over = abort_job(self._options, batch, shares_of(messages), is_commit_begun=is_commit_begun).is_over
        if is_over:
            feed.aborted(batch)


_ABORTED = "Spark aborted the write. The exception that the program got from Spark, and Spark's log, have the reason."


# DataSourceStreamArrowWriter exists from Spark 4.1; these two parents get Arrow batches on 4.0 as well, where one parent alone
# would get a Row per record.
class KafkaSinkStreamWriter(KafkaSinkWriter, DataSourceStreamWriter):
    """A stream's writer. Spark creates one for each micro-batch."""

    is_stream = True

    def __init__(self, schema: SinkSchema, options: SinkOptions, feed: Feed, where: Destination, checkpoint: str) -> None:
        """checkpoint: as of `checkpoint_of`."""
        super().__init__(schema, options, feed, where)
        self._checkpoint = checkpoint

    def commit(self, messages: Messages, batchId: int) -> None:  # type: ignore[override]
        self._commit(messages, _query_id(messages), batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # type: ignore[override]
        self._abort(messages, MicroBatch(_query_id(messages) or query_of(self._checkpoint) or "", batchId))


def _query_id(messages: Messages) -> str:
    """Returns the query's id, which only its tasks know; empty if none has finished."""
    return next((each.query_id for each in messages if isinstance(each, DeliveryMessage)), "")
