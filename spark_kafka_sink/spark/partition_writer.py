"""`df.foreachPartition(partition_writer(options))`: for code that has Row iterators. Rows cost more than columns do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Row

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.spark.metrics import DeliveryMetrics, Feed
from spark_kafka_sink.spark.options import SinkOptions, sink_options
from spark_kafka_sink.spark.rows import batches_of_rows
from spark_kafka_sink.spark.serialized_columns import serializers_by_column
from spark_kafka_sink.spark.task_writer import write_task


@dataclass(frozen=True, slots=True)
class PartitionWriter:
    """Delivers the Rows it is called with. Pickles to tasks."""

    options: SinkOptions
    feed: Feed

    def __call__(self, rows: Iterable[Row]) -> None:
        producer = self.options.producer
        serializers = serializers_by_column(producer)
        # Rows are serialized as they become columns: their producer has nothing left to do.
        options = replace(self.options, producer=replace(producer, key_serializer=None, value_serializer=None))
        try:
            write_task(batches_of_rows(rows, options.topic, serializers), options, self.feed)
        finally:
            for serializer in serializers.values():
                serializer.close()


def partition_writer(options: Mapping[str, object], metrics: DeliveryMetrics | None = None) -> PartitionWriter:
    """A function for foreachPartition of a DataFrame, which gives it Rows. Rows cost more than columns do.

    options: as for `format("kafka_sink")`. metrics: a handle of `register`, whose `live` counts what is delivered.

    Raises OptionError here, in the driver; SchemaError, RecordError and DeliveryError in tasks, with Spark's error around them.
    Needs no registration, so it works from any thread and session.
    """
    checked = sink_options(options)
    if checked.exactly_once is not None:
        raise OptionError(
            "option delivery.guarantee: foreachPartition has no commit, so there is no exactly-once; use publish(df, ...),"
            " foreach_batch or format('kafka_sink')",
            option="delivery.guarantee",
        )
    return PartitionWriter(checked, metrics.feed if metrics else Feed())
