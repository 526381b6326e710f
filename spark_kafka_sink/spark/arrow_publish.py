"""A batch DataFrame through mapInArrow to Kafka, and each task's report back as a row: under publish() and foreach_batch()."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.metrics import DeliveryMetrics, Feed
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.report_json import report_from_json, report_to_json
from spark_kafka_sink.spark.schema import SinkSchema, sink_schema
from spark_kafka_sink.spark.serialized_columns import looked_at
from spark_kafka_sink.spark.task_writer import spark_partition, write_task

_RESULT_DDL = "spark_partition int, report string"


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one finished task delivered. spark_partition: the task's, from 0. report: its counts."""

    spark_partition: int
    report: DeliveryReport


@dataclass(frozen=True, slots=True)
class ArrowTask:
    """One task over Arrow batches. Pickles; gives a single row, the report as JSON."""

    schema: SinkSchema
    options: SinkOptions
    feed: Feed

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report = write_task(((self.schema, batch) for batch in batches), self.options, self.feed)
        yield pa.record_batch(
            [pa.array([spark_partition()], pa.int32()), pa.array([report_to_json(report)])], names=["spark_partition", "report"]
        )


def publish_dataframe(df: DataFrame, options: SinkOptions, metrics: DeliveryMetrics | None) -> list[TaskReport]:
    """Run the job and return its tasks' reports, by Spark partition; `metrics` counts them as live and as committed."""
    if df.isStreaming:
        raise UsageError("a streaming DataFrame cannot be published at once; use writeStream.format('kafka_sink')")
    with looked_at(options.producer) as serializers:
        schema = sink_schema(df.schema, options.topic, serializers)
    task = ArrowTask(schema, options, metrics.feed if metrics else Feed())
    rows = df.mapInArrow(task.run, _RESULT_DDL).collect()
    reports = sorted((TaskReport(row[0], report_from_json(row[1])) for row in rows), key=lambda one: one.spark_partition)
    if metrics is not None and metrics.available:
        for one in reports:
            metrics.add_committed(one.report)
    return reports
