"""`writeStream.foreachBatch(foreach_batch(options))`: the way for update mode, which Spark refuses to Python data sources."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.share import Batch
from spark_kafka_sink.spark.arrow_publish import TaskReport, publish_dataframe
from spark_kafka_sink.spark.metrics import DeliveryMetrics
from spark_kafka_sink.spark.options import SinkOptions, sink_options
from spark_kafka_sink.spark.task_batch import QUERY_ID, RUN_ID


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
        batch = None if self._options.exactly_once is None else self._batch(df, batch_id)
        self.reports = publish_dataframe(df, self._options, self._metrics, batch)

    def _batch(self, df: DataFrame, batch_id: int) -> Batch:
        """UsageError where another sink has this batch of the query in the same commit log: what is complete there is not written
        again, so of equally many rows the second's would be lost."""
        assert self._options.exactly_once is not None
        query_id, run_id = _query_and_run(df)
        log = self._options.producer.bootstrap_servers, self._options.exactly_once.commit_log.topic, query_id
        run, batch, sink = _last_calls.get(log, (run_id, batch_id, self))
        if (run, batch) == (run_id, batch_id) and sink is not self:
            raise UsageError(
                f"batch {batch_id}: two sinks of one foreachBatch have the same commit log; give each a commit.log.topic and a"
                " transactional.id.prefix of its own"
            )
        _last_calls[log] = run_id, batch_id, self
        return Batch(query_id, batch_id)


# By cluster, commit log and query: the run, the batch and the sink that was called last.
_last_calls: dict[tuple[tuple[str, ...], str, str], tuple[str, int, ForeachBatch]] = {}


def _query_and_run(df: DataFrame) -> tuple[str, str]:
    """Ids of the query whose thread this is, and of this start of it."""
    try:
        context = df.sparkSession.sparkContext
        found, run_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(RUN_ID)
    except AttributeError:  # PySparkAttributeError
        raise UsageError(
            "delivery.guarantee=exactly-once: Spark Connect does not tell foreachBatch which query it is; use"
            " writeStream.format('kafka_sink'), which does not need it"
        ) from None
    if found is None:
        raise UsageError(
            "delivery.guarantee=exactly-once: this is not called by a streaming query's foreachBatch; use publish(df, ...)"
        )
    return str(found), str(run_id)


def foreach_batch(options: Mapping[str, object], metrics: DeliveryMetrics | None = None) -> ForeachBatch:
    """A function for foreachBatch, whose `reports` are those of the last micro-batch's tasks (TaskReport).

    options: as for `format("kafka_sink")`. metrics: a handle of `register` that counts what is delivered.

    At least once: a micro-batch that is replayed is written again, unless delivery.guarantee=exactly-once; then a batch is
    written by one call, and of several sinks in one foreachBatch each needs a commit.log.topic and a transactional.id.prefix of
    its own. Raises OptionError here; a wrong column ends the query.
    """
    return ForeachBatch(sink_options(options), metrics)
