"""`writeStream.foreachBatch(foreach_batch(options))`: the way for update mode, which Spark refuses to Python data sources."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from spark_kafka_sink.spark.arrow_publish import TaskReport, publish_dataframe
from spark_kafka_sink.spark.metrics import DeliveryMetrics
from spark_kafka_sink.spark.options import SinkOptions, sink_options


class ForeachBatch:
    """Publishes each micro-batch it is called with. `reports`: what the tasks of the last one delivered.

    Spark calls it from a thread of its own, one micro-batch at a time.
    """

    def __init__(self, options: SinkOptions, metrics: DeliveryMetrics | None) -> None:
        self.reports: list[TaskReport] = []
        self._options = options
        # On Spark Connect this object is pickled to the server, and a handle that cannot count has no business there.
        self._metrics = metrics if metrics is not None and metrics.available else None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.reports = publish_dataframe(df, self._options, self._metrics)


def foreach_batch(options: Mapping[str, object], metrics: DeliveryMetrics | None = None) -> ForeachBatch:
    """A function for foreachBatch, whose `reports` are those of the last micro-batch's tasks (TaskReport).

    options: as for `format("kafka_sink")`. metrics: a handle of `register` that counts what is delivered.

    At least once: a micro-batch that is replayed is written again. Raises OptionError here; a wrong column ends the query.
    """
    return ForeachBatch(sink_options(options), metrics)
