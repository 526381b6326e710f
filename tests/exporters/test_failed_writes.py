"""A write that fails is counted, whichever way it goes, also if no exporter listens to events of writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics

pytestmark = pytest.mark.spark

LARGE = "repeat('x', 2000000)"


@pytest.fixture
def counted(spark: SparkSession) -> Iterator[DeliveryMetrics]:
    sks.register(spark).close()
    made = sks.register(spark)
    yield made
    made.close()


@pytest.fixture
def options() -> Iterator[dict[str, str]]:
    with EmbeddedBroker() as broker:
        broker.create_topic("events", partitions=1)
        limit = {"kafka.max.request.size": "5000000"}  # so that the broker refuses the record, and not the producer
        yield {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events", **limit}


@pytest.mark.whole("failed jobs; tests/spark/plan/test_data_source.py counts such a write")
def test_batch_writes_that_fail_are_counted(spark: SparkSession, counted: DeliveryMetrics, options: dict[str, str]) -> None:
    rows = spark.range(1).selectExpr(f"{LARGE} as value")
    with pytest.raises(KafkaSinkError):
        sks.publish(rows, options=options, metrics=counted, progress=False)
    assert counted.writes.failed() == {"batch-jobs": 1}
    with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
        rows.write.format("kafka_sink").options(**options).mode("append").save()
    assert counted.writes.failed() == {"batch-jobs": 2}


@pytest.mark.whole("a stream; failed writes of publish(), which sends the batch, and of the data source's streams stay")
def test_a_micro_batch_that_fails_is_counted(
    spark: SparkSession, counted: DeliveryMetrics, options: dict[str, str], tmp_path: Path
) -> None:
    spark.range(1).write.parquet(str(tmp_path / "input"))
    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "input")).selectExpr(f"{LARGE} as value")
    query = (
        rows.writeStream.foreachBatch(sks.foreach_batch(options, counted))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
        query.awaitTermination()
    assert counted.writes.failed() == {query.id: 1}


def test_a_micro_batch_of_the_data_source_is_counted_for_its_query_although_no_task_finished(
    spark: SparkSession, counted: DeliveryMetrics, options: dict[str, str], tmp_path: Path
) -> None:
    spark.range(1).coalesce(1).write.parquet(str(tmp_path / "input"))
    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "input")).selectExpr(f"{LARGE} as value")
    stream = rows.writeStream.format("kafka_sink").options(**options).trigger(availableNow=True)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
        query.awaitTermination()
    assert counted.writes.failed() == {query.id: 1}
