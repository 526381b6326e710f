"""What a task does, whichever way Spark calls it: append all rows, wait until they are acked, report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext

from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.spark.columns import TopicRecords, records_by_topic
from spark_kafka_sink.spark.gathering import Gatherer
from spark_kafka_sink.spark.metrics import Feed
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.process_log import log_in_sparks_process
from spark_kafka_sink.spark.producer_cache import cache
from spark_kafka_sink.spark.report_text import errors_text
from spark_kafka_sink.spark.schema import SinkSchema

SchemaAndBatch = tuple[SinkSchema, pa.RecordBatch]

# Entries of a task's report. Those of 1,000 take 5 to 7 KB in the task's result, and as much in its accumulator: with 10,000
# entries, tasks of a large job would exceed spark.driver.maxResultSize (1 GiB) after all their rows are written.
MOST_PARTITIONS = 1000


def spark_partition() -> int:
    """The partition of the Spark task that this is; -1 outside of one."""
    context = TaskContext.get()
    return -1 if context is None else context.partitionId()


def write_task(batches: Iterable[SchemaAndBatch], options: SinkOptions, feed: Feed) -> DeliveryReport:
    """Deliver every row and report it. A failure carries what the attempt knows in its text, because nothing else of it stays.

    All that was acked is acked when this returns: Spark kills workers without `finally` and `atexit`, so later is too late.
    """
    log_in_sparks_process()
    iterator = iter(batches)
    first = next(iterator, None)
    # Many tasks of a small DataFrame have no rows: they need no connection.
    report = DeliveryReport() if first is None else _deliver(chain([first], iterator), options)
    feed.task_done(report)
    return report


def _deliver(batches: Iterable[SchemaAndBatch], options: SinkOptions) -> DeliveryReport:
    with cache.scope(options.producer) as scope:
        try:
            append_all(batches, options, scope)
            scope.flush()
        except Exception as error:
            error.add_note(_what_is_known(scope.report()))
            raise
        return report_of_task(scope)


def report_of_task(scope: SendScope) -> DeliveryReport:
    return scope.report().summed(MOST_PARTITIONS)


def append_all(
    batches: Iterable[SchemaAndBatch], options: SinkOptions, scope: SendScope, seen: Callable[[TopicRecords], None] | None = None
) -> None:
    """Give all rows to the scope; `seen` is called with them before that, in their order."""
    gatherer = Gatherer(scope, options.producer.linger_ms)
    first_row = 0
    for schema, batch in batches:
        for records in records_by_topic(batch, schema, options.topic, first_row=first_row):
            if seen is not None:
                seen(records)
            gatherer.add(records, first_row)
        first_row += batch.num_rows
    gatherer.finish()


def _what_is_known(report: DeliveryReport) -> str:
    context = TaskContext.get()
    task = "" if context is None else f" of Spark partition {context.partitionId()}, attempt {context.attemptNumber()}"
    return (
        f"Kafka has acked {report.records:,} rows{task}; they stay in their topics, and another attempt writes them again."
        f"{errors_text(report, ' Refused batches by error: ')}"
    )
