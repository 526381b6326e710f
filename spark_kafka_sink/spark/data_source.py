"""`format("kafka_sink")`: Spark's Python data source over the task writer.

Constructors have no effects: Spark calls them again in the process that commits. Only commit messages carry state there.
What commits is imported there alone: in each of the Python processes that Spark starts for a query it doubles the time that
imports take (390 ms of CPU against 180, on a busy machine).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import ClassVar, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.spark.messages import DeliveryMessage, check_complete, reports_of, total
from spark_kafka_sink.spark.metrics import Feed
from spark_kafka_sink.spark.options import SinkOptions, sink_options
from spark_kafka_sink.spark.process_log import log_in_sparks_process
from spark_kafka_sink.spark.schema import SinkSchema, check_arrow, sink_schema
from spark_kafka_sink.spark.serialized_columns import looked_at
from spark_kafka_sink.spark.task_batch import task_batch
from spark_kafka_sink.spark.task_writer import spark_partition, write_task
from spark_kafka_sink.spark.transactional_task import write_in_transaction

logger = logging.getLogger(__name__)

NAME = "kafka_sink"

Messages = Sequence[WriterCommitMessage | None]


class KafkaSinkDataSource(DataSource):
    """The sink as Spark looks it up. Options and schema are checked here, before any task starts."""

    feed: ClassVar[Feed] = Feed()

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise UsageError("mode overwrite: a topic cannot be overwritten; use mode('append')")
        writer = KafkaSinkWriter(*self._checked(schema), self.feed)
        writer.check()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """`overwrite` is complete mode: as with Spark's own Kafka sink, each batch appends the whole result again."""
        return KafkaSinkStreamWriter(*self._checked(schema), self.feed)

    def schema(self) -> NoReturn:
        raise UsageError(f"{NAME} only writes; read a topic with format('kafka')")

    def _checked(self, schema: StructType) -> tuple[SinkSchema, SinkOptions]:
        log_in_sparks_process()
        options = sink_options(dict(self.options))
        check_arrow(schema)
        with looked_at(options.producer) as serializers:
            return sink_schema(schema, options.topic, serializers), options


def reporting_to(feed: Feed) -> type[KafkaSinkDataSource]:
    """The data source bound to a handle: a class of its own, because Spark makes the instances, so only a class can carry it."""

    class ReportingKafkaSinkDataSource(KafkaSinkDataSource):
        pass

    ReportingKafkaSinkDataSource.feed = feed
    return ReportingKafkaSinkDataSource


class KafkaSinkWriter(DataSourceArrowWriter):
    """A batch job's writer, and what the stream's shares with it: `write` runs in tasks, the rest in Spark's commit process."""

    def __init__(self, schema: SinkSchema, options: SinkOptions, feed: Feed) -> None:
        self._schema = schema
        self._options = options
        self._feed = feed
        self._job = MicroBatch.of_new_job()  # in the driver, once a job

    def check(self) -> None:
        """Raise what keeps the job from being committed, as far as it can be known before its tasks write."""
        if self._options.exactly_once is not None:
            from spark_kafka_sink.spark.commits import check_job

            check_job(self._options, self._job)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batches = ((self._schema, batch) for batch in iterator)
        if self._options.exactly_once is None:
            return DeliveryMessage(spark_partition(), write_task(batches, self._options, self._feed))
        report, share = write_in_transaction(batches, self._options, self._feed, self._batch())
        return DeliveryMessage(spark_partition(), report, share)

    def _batch(self) -> MicroBatch:
        """What a task writes a share of."""
        return self._job

    def commit(self, messages: Messages) -> None:
        self._check_complete(messages)
        if self._options.exactly_once is None:
            self._feed.committed(reports_of(messages))
        else:
            from spark_kafka_sink.spark.commits import commit_job

            self._feed.committed(commit_job(self._options, self._job, messages))

    def _check_complete(self, messages: Messages) -> None:
        log_in_sparks_process()
        try:
            check_complete(messages)
        except UsageError:
            self._feed.refused()
            raise

    def abort(self, messages: Messages) -> None:
        log_in_sparks_process()
        if self._options.exactly_once is not None:
            from spark_kafka_sink.spark.commits import abort_job

            abort_job(self._options, self._job, messages)
            return
        acked = total(reports_of(messages)).records
        logger.warning(
            "the write was aborted; %s records of its finished tasks are in Kafka, and writing again repeats them", f"{acked:,}"
        )


# DataSourceStreamArrowWriter exists from Spark 4.1; these two parents get Arrow batches on 4.0 as well, where one parent alone
# would get a Row per record.
class KafkaSinkStreamWriter(KafkaSinkWriter, DataSourceStreamWriter):
    """A stream's writer, made anew for each micro-batch."""

    def _batch(self) -> MicroBatch:
        return task_batch()

    def commit(self, messages: Messages, batchId: int) -> None:  # type: ignore[override]
        self._check_complete(messages)
        if self._options.exactly_once is None:
            self._feed.committed(reports_of(messages))
        else:
            from spark_kafka_sink.spark.commits import commit_micro_batch

            self._feed.committed(commit_micro_batch(self._options, batchId, messages))

    def abort(self, messages: Messages, batchId: int) -> None:  # type: ignore[override]
        log_in_sparks_process()
        if self._options.exactly_once is None:
            super().abort(messages)
        else:
            # An interrupted commit may still run in another process, and what it has begun must be finished.
            logger.warning(
                "micro-batch %s was aborted; its transactions are not touched: if they are in the commit log, they will be"
                " committed when the query starts again, else it writes the batch again and ends what is left open",
                batchId,
            )
