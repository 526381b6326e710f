"""df.write, df.writeStream and foreachBatch against real Kafka, read back by another client."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.errors import MetadataTimeoutError, SchemaError
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.ports import free_ports
from tests.spark.conftest import FINDS_SOURCES_ITSELF
from tests.spark.frames import expected, numbers, options, parquet_stream, read_records, read_values, records, run, save
from tests.spark.session import setting
from tests.spark.test_exactly_once import forget_commit

pytestmark = pytest.mark.spark


def refused(df: DataFrame, settings: dict[str, str], mode: str = "append") -> str:
    return str(failure(df, settings, mode))


def failure(df: DataFrame, settings: dict[str, str], mode: str = "append") -> PySparkException:
    with pytest.raises(PySparkException) as caught:
        save(df, settings, mode)
    return caught.value


@pytest.mark.smoke
def test_every_column_reaches_kafka_as_it_was(spark: SparkSession, kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    with setting(spark, "spark.sql.execution.arrow.useLargeVarTypes", "true"):  # streams and publish() have the default
        save(records(spark, 500, 3), options(kafka, topic=topic))
    assert read_records(kafka, topic) == expected(500, 3)


@pytest.mark.smoke
def test_counts_come_back_to_the_driver(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, metrics: sks.DeliveryMetrics
) -> None:
    assert repr(metrics) == "live: nothing reported yet\ncommitted: nothing reported yet"
    assert str(metrics) == "committed:\nnothing reported yet\n\nlive:\nnothing reported yet"
    topic = new_topic(4)
    save(numbers(spark, 1000, tasks=3), options(kafka, topic=topic))
    live = metrics.live
    assert live is not None
    assert live.records == 1000
    assert set(live.partitions) == {(topic, partition) for partition in range(4)}
    assert sum(one.last_offset - one.first_offset + 1 for one in live.partitions.values()) == 1000
    assert sum(live.ack_latency[topic]) == live.batches
    assert metrics.committed == live
    save(numbers(spark, 10), options(kafka, topic=topic))
    assert metrics.committed is not None
    assert metrics.committed.records == 1010
    assert repr(metrics).startswith("live: 1,010 records")
    assert str(metrics) == f"committed:\n{metrics.committed}\n\nlive:\n{metrics.live}"
    html = metrics._repr_html_()
    assert '<details open="open"><summary><b>committed</b>: 1,010 records</summary>' in html
    assert "<summary><b>live</b>: 1,010 records</summary>" in html


@pytest.mark.parametrize("guarantee", ["none", "at-least-once"])
def test_without_transactions_a_batch_that_runs_again_is_written_again(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, tmp_path: Path, guarantee: str
) -> None:
    topic = new_topic()
    settings = options(kafka, topic=topic, delivery__guarantee=guarantee)
    df = parquet_stream(spark, numbers(spark, 10), tmp_path)
    for written in (1, 2):
        run(df.writeStream.format("kafka_sink").options(**settings), tmp_path)
        found = Counter(read_values(kafka, topic))
        assert found.keys() == set(range(10))
        assert found.total() > 10 * (written - 1)
        forget_commit(tmp_path, max(int(each.name) for each in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")))


def test_registering_again_gives_the_same_handle(spark: SparkSession, metrics: sks.DeliveryMetrics) -> None:
    assert sks.register(spark) is metrics
    try:
        assert sks.register(spark.newSession()) is metrics
    finally:
        sks.register(spark)


@pytest.mark.smoke
def test_another_session_writes_without_registering_from_spark_4_1_on(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic()
    session = spark.newSession()
    if not FINDS_SOURCES_ITSELF:
        with pytest.raises(PySparkException, match="DATA_SOURCE_NOT_EXIST"):
            save(numbers(session, 1), options(kafka, topic=topic))
        sks.register(session)
    try:
        save(numbers(session, 10), options(kafka, topic=topic))
    finally:
        sks.register(spark)
    assert read_values(kafka, topic) == list(range(10))


def test_reading_is_refused(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"\[USAGE\] kafka_sink only writes"):
        spark.read.format("kafka_sink").load()


def test_a_wrong_column_ends_in_one_clear_error(spark: SparkSession, kafka: Kafka) -> None:
    text = "[SCHEMA] column value: is int, must be string or binary; use cast(value as string)"
    assert text in refused(spark.sql("SELECT int(1) AS value"), options(kafka, topic="t"))


@pytest.mark.smoke
def test_a_wrong_option_ends_in_one_clear_error(spark: SparkSession, kafka: Kafka) -> None:
    df = numbers(spark, 1)
    assert "[OPTION] unknown option topics; did you mean topic?" in refused(df, options(kafka, topics="t"))
    sasl = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    text = refused(df, options(kafka, topic="t", **sasl, **{"kafka.sasl.jaas.config": "password=hunter2"}))
    assert "[OPTION] option kafka.sasl.jaas.config: " in text
    assert "hunter2" not in text


@pytest.mark.smoke
def test_unreachable_brokers_are_named_before_any_task_starts(spark: SparkSession) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {"kafka.bootstrap.servers": address, "kafka.max.block.ms": "1500", "topic": "events"}
    error = failure(numbers(spark, 1, 1), settings)
    assert "Job aborted" not in str(error)
    found = sks.explain(error)
    assert type(found.error) is MetadataTimeoutError
    assert found.message.startswith(
        f"topic events: no broker of bootstrap.servers {address} answered the Spark driver within 1.5 s"
    )
    assert found.facts["broker"] == address


def test_a_column_in_another_case_is_written_and_one_that_python_cannot_read_is_named(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic()
    df = numbers(spark, 10).selectExpr("key AS `Key`", "value AS `VALUE`", "make_ym_interval(1, 2) AS extra")
    write = options(kafka, topic=topic)
    with pytest.raises(PySparkException, match=r"\[SCHEMA\] column extra: is interval year to month, which Spark cannot hand"):
        df.write.format("kafka_sink").options(**write).mode("append").save()
    df.select("Key", "VALUE").write.format("kafka_sink").options(**write).mode("append").save()
    assert sorted(int(record[1]) for record in read_records(kafka, topic)) == list(range(10))


# df.writeStream with format("kafka_sink") and with foreachBatch, against real Kafka


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
