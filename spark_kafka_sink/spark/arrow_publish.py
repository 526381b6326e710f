"""A batch DataFrame through mapInArrow to Kafka, and each task's report back as a row: under publish() and foreach_batch()."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, array_of_numbers
from spark_kafka_sink.spark.commits import abort_job, check_job, commit_shares
from spark_kafka_sink.spark.metrics import DeliveryMetrics, Feed
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.report_bytes import report_from_bytes, report_to_bytes
from spark_kafka_sink.spark.schema import SinkSchema, sink_schema
from spark_kafka_sink.spark.serialized_columns import looked_at
from spark_kafka_sink.spark.share_json import share_from_json, share_to_json
from spark_kafka_sink.spark.task_writer import spark_partition, write_task
from spark_kafka_sink.spark.transactional_task import write_in_transaction

_RESULT_DDL = "spark_partition int, report binary, share string"


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one finished task delivered. spark_partition: the task's, from 0. report: its counts."""

    spark_partition: int
    report: DeliveryReport


@dataclass(frozen=True, slots=True)
class ArrowTask:
    """One task over Arrow batches. Pickles; gives a single row, the report as JSON, and under exactly-once the open transaction.

    batch: what it writes a share of, under exactly-once.
    """

    schema: SinkSchema
    options: SinkOptions
    feed: Feed
    batch: MicroBatch | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = ((self.schema, batch) for batch in batches)
        if self.batch is None:
            report, text = write_task(rows, self.options, self.feed), None
        else:
            report, share = write_in_transaction(rows, self.options, self.feed, self.batch)
            text = share_to_json(share).encode()
        columns = [
            array_of_numbers(np.array([spark_partition()], np.int32)),
            array_of_bytes([report_to_bytes(report)]),
            array_of_bytes([text], pa.string()),
        ]
        yield pa.record_batch(columns, names=["spark_partition", "report", "share"])


def publish_job(df: DataFrame, options: SinkOptions, metrics: DeliveryMetrics | None) -> list[TaskReport]:
    """Run the job, under exactly-once with all its rows visible at its end, or none; its tasks' reports, by Spark partition."""
    job = None if options.exactly_once is None else MicroBatch.of_new_job()
    df, task = _planned(df, options, metrics, job)
    if job is not None:
        check_job(options, job)
    try:
        return _run(df, task, metrics)
    except BaseException:  # a notebook's interrupt, too
        if job is not None:
            abort_job(options, job)
        raise


def publish_dataframe(
    df: DataFrame, options: SinkOptions, metrics: DeliveryMetrics | None, batch: MicroBatch | None = None
) -> list[TaskReport]:
    """Run the job and return its tasks' reports, by Spark partition; `metrics` counts them as live and as committed.

    batch: what the rows are a part of, under exactly-once: they are committed as such. Where an earlier attempt's rows are the
    ones that are visible there are no reports: these are aborted.
    """
    return _run(*_planned(df, options, metrics, batch), metrics)


def _planned(
    df: DataFrame, options: SinkOptions, metrics: DeliveryMetrics | None, batch: MicroBatch | None
) -> tuple[DataFrame, ArrowTask]:
    """The record's columns alone, and the task for them. Raises for what cannot be written, before there is anything to abort."""
    if df.isStreaming:
        raise UsageError("a streaming DataFrame cannot be published at once; use writeStream.format('kafka_sink')")
    with looked_at(options.producer) as serializers:
        schema = sink_schema(df.schema, options.topic, serializers, case_sensitive=_is_case_sensitive(df))
    found = asdict(schema)
    used = [name for name, index in found.items() if index is not None]
    # A column that nobody writes may be of a type that Arrow has not, and costs the way to Python.
    selected = df.select(*(df.columns[found[name]] for name in used))
    schema = SinkSchema(**{name: place for place, name in enumerate(used)})
    return selected, ArrowTask(schema, options, metrics.feed if metrics else Feed(), batch)


def _is_case_sensitive(df: DataFrame) -> bool:
    return str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def _run(df: DataFrame, task: ArrowTask, metrics: DeliveryMetrics | None) -> list[TaskReport]:
    rows = df.mapInArrow(task.run, _RESULT_DDL).collect()
    reports = sorted((TaskReport(row[0], report_from_bytes(bytes(row[1]))) for row in rows), key=lambda one: one.spark_partition)
    committed = [one.report for one in reports]
    if task.batch is not None:
        shares = [share_from_json(row[2], task.batch) for row in rows]
        visible = commit_shares(task.options, task.batch, shares, committed)
        reports, committed = (reports if visible.own else []), visible.reports
    if metrics is not None and metrics.available:
        for report in committed:
            metrics.add_committed(report)
    return reports
