"""A streaming query that ended between its tasks and its commit, so that Spark could not call the sink."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

import spark_kafka_sink as sks
from spark_kafka_sink.producer.serializers.text import StringSerializer
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.plan.data_source import reporting_to
from spark_kafka_sink.spark.plan.writers import KafkaSinkStreamWriter
from tests.faults.exactly_once.open_transactions import held_back
from tests.kafka.kafka import Kafka
from tests.spark.session import setting
from tests.waiting import wait_until

pytestmark = pytest.mark.spark

SCHEMA = StructType([StructField("value", StringType())])
ROWS = pa.RecordBatch.from_pydict({"value": ["a", "b", "c"]})
PROPERTIES = "sql.streaming.queryId", "streaming.sql.batchId"

NewTopic = Callable[..., str]


def run_tasks(
    spark: SparkSession, feed: Feed, options: dict[str, str], query: str, session_options: dict[str, object] | None = None
) -> KafkaSinkStreamWriter:
    """Plans a query's first micro-batch and runs its task, as Spark does, without a commit or an abort."""
    writer = reporting_to(feed, session_options or {})(options).streamWriter(SCHEMA, False)
    assert isinstance(writer, KafkaSinkStreamWriter)
    context = spark.sparkContext
    for name, value in zip(PROPERTIES, (query, "0"), strict=True):
        context.setLocalProperty(name, value)
    try:
        context.parallelize(range(1), 1).mapPartitions(lambda _: [writer.write(iter([ROWS]))]).count()
    finally:
        for name in PROPERTIES:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]
    return writer


def options_for(kafka: Kafka, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "delivery.guarantee": "exactly-once",
        "kafka.transaction.timeout.ms": "600000",
    }


@pytest.mark.fault("spark", "a query is stopped between its tasks and its commit")
def test_the_driver_aborts_what_the_query_left_open_and_readers_go_on(
    spark: SparkSession, metrics: sks.DeliveryMetrics, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic, query = new_topic(partitions=2), str(uuid.uuid4())
    run_tasks(spark, metrics.feed, options_for(kafka, topic), query)
    assert metrics.transaction_ages()[query]
    wait_until(lambda: not held_back(kafka, topic), "readers go on")
    wait_until(lambda: metrics.transaction_ages()[query][0] == 0, "the driver knows that none is open")
    assert metrics.committed is None


def test_a_query_that_is_stopped_while_its_tasks_write_leaves_nothing_open(
    spark: SparkSession, metrics: sks.DeliveryMetrics, kafka: Kafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    # Rows of 10 KB, so that Spark hands each Arrow batch on at once.
    slowly = rows.selectExpr("repeat(nvl2(java_method('java.lang.Thread', 'sleep', 20L), 'a', 'b'), 10000) AS value")
    settings = options_for(kafka, topic) | {"checkpointLocation": str(tmp_path), "kafka.linger.ms": "0"}
    with setting(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", "10"):
        query = slowly.writeStream.format("kafka_sink").options(**settings).start()
        try:
            wait_until(lambda: bool(held_back(kafka, topic)), "a transaction is open")
        finally:
            query.stop()
    wait_until(lambda: not held_back(kafka, topic), "readers go on")


def test_a_program_that_ends_right_after_the_query_has_ended_its_transactions(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    sks.register(spark).close()
    metrics = sks.register(spark)
    run_tasks(spark, metrics.feed, options_for(kafka, topic), str(uuid.uuid4()))
    metrics.close()
    wait_until(lambda: not held_back(kafka, topic), "readers go on")  # EndTxn is answered before its markers are written


def test_of_two_queries_one_whose_options_cannot_be_read_does_not_keep_the_other_open(
    spark: SparkSession,
    metrics: sks.DeliveryMetrics,
    kafka: Kafka,
    new_topic: NewTopic,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other has a serializer that is an object."""
    first, second = new_topic(partitions=2), new_topic(partitions=2)
    monkeypatch.setenv("KAFKA_SINK_TESTED", "tested")
    unknown = {"kafka.client.id": "${env:KAFKA_SINK_TESTED}"}
    query = str(uuid.uuid4())
    run_tasks(spark, metrics.feed, {**options_for(kafka, first), **unknown}, query)
    monkeypatch.delenv("KAFKA_SINK_TESTED")
    run_tasks(spark, metrics.feed, options_for(kafka, second), str(uuid.uuid4()), {"kafka.value.serializer": StringSerializer()})
    wait_until(lambda: not held_back(kafka, second), "readers go on")
    wait_until(lambda: query in caplog.text, "a warning names the query")
