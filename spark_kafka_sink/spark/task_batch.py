"""Which micro-batch of which query a task belongs to, by what Spark tells its tasks."""

from __future__ import annotations

from pyspark import TaskContext

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch

# StreamExecution.QUERY_ID_KEY and MicroBatchExecution.BATCH_ID_KEY
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
# StreamExecution sets the job group to the run's id.
JOB_GROUP = "spark.jobGroup.id"


def task_batch() -> MicroBatch:
    """Of the micro-batch's task that this is. UsageError elsewhere."""
    context = TaskContext.get()
    query_id = context.getLocalProperty(QUERY_ID) if context else None
    batch = context.getLocalProperty(BATCH_ID) if context else None
    if query_id is None or batch is None:
        raise UsageError(
            "delivery.guarantee=exactly-once: Spark has not told this task which micro-batch of which query it writes"
        )
    return MicroBatch(query_id, int(batch))
