"""df.writeStream with format("kafka_sink") and with foreachBatch, against real Kafka."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.errors import SchemaError
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.spark.frames import expected, numbers, options, parquet_stream, read_records, read_values, records, run

pytestmark = pytest.mark.spark


def words(records_read: list[Any]) -> list[str]:
    return [record.value.decode() for record in records_read]


@pytest.mark.smoke
def test_a_stream_reaches_kafka_as_it_was(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, metrics: sks.DeliveryMetrics, tmp_path: Path
) -> None:
    topic = new_topic(3)
    df = parquet_stream(spark, records(spark, 300, 3), tmp_path)
    run(df.writeStream.format("kafka_sink").queryName("named").options(**options(kafka, topic=topic)), tmp_path)
    assert read_records(kafka, topic) == expected(300, 3)
    assert metrics.live is not None
    assert metrics.live.records == 300
    assert metrics.committed == metrics.live


def test_update_mode_without_foreach_batch_is_refused_by_spark_in_words_that_explain_knows(
    spark: SparkSession, tmp_path: Path
) -> None:
    counts = parquet_stream(spark, numbers(spark, 10), tmp_path).groupBy("key").count().selectExpr("key AS value")
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    with pytest.raises(StreamingQueryException) as caught:
        run(counts.writeStream.outputMode("update").format("kafka_sink").options(**nowhere), tmp_path)
    assert "df.writeStream.outputMode('update').foreachBatch(foreach_batch(options))" in str(sks.explain(caught.value))


def test_foreach_batch_keeps_the_reports_of_the_last_batch(spark: SparkSession, kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    write = sks.foreach_batch(options(kafka, topic=topic))
    write(numbers(spark, 7), 0)
    write(numbers(spark, 100, tasks=3), 1)
    assert [(one.spark_partition, one.report.records) for one in write.reports] == [(0, 33), (1, 33), (2, 34)]


def test_foreach_batch_checks_options_at_once_and_columns_with_the_first_batch(spark: SparkSession, kafka: Kafka) -> None:
    with pytest.raises(sks.KafkaSinkError, match="unknown option topics; did you mean topic"):
        sks.foreach_batch(options(kafka, topics="t"))
    with pytest.raises(SchemaError, match=r"column value: is int"):
        sks.foreach_batch(options(kafka, topic="t"))(numbers(spark, 1, 1).selectExpr("int(key) AS value"), 0)


@pytest.mark.smoke
def test_a_restarted_query_goes_on_where_it_was(spark: SparkSession, kafka: Kafka, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    df = parquet_stream(spark, numbers(spark, 10), tmp_path)
    for start in (10, 20):
        run(df.writeStream.format("kafka_sink").options(**options(kafka, topic=topic)), tmp_path)
        spark.range(start, start + 10, 1, 1).selectExpr("string(id) key", "string(id) value").write.mode("append").parquet(
            str(tmp_path / "input")
        )
    assert Counter(read_values(kafka, topic)) == Counter(range(20))
