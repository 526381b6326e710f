"""trigger(continuous=...), for which Spark never calls the sink's tasks: the query ends with an error, and only that one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.spark.driver.register import end_continuous_queries

WHAT_IS_WRONG = (
    r"\[USAGE\] trigger\(continuous=\.\.\.\) is not supported.*"
    r"use trigger\(processingTime=\.\.\.\) or trigger\(availableNow=True\)"
)


@pytest.fixture(scope="module")
def settings() -> Iterator[dict[str, str]]:
    """Options of a topic that exists: the driver asks for it before Spark runs anything."""
    with EmbeddedBroker() as broker:
        yield {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": broker.create_topic("t", 1)}


@contextmanager
def started(writer: Any, checkpoint: Path) -> Iterator[StreamingQuery]:
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


def continuous(spark: SparkSession, name: str, settings: dict[str, str]) -> Any:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).option("numPartitions", 1).load()
    values = rows.selectExpr("CAST(value AS STRING) AS value")
    return values.writeStream.format(name).options(**settings).trigger(continuous="1 second")


def ends_with_one_clear_error(query: StreamingQuery) -> None:
    with pytest.raises(StreamingQueryException, match=WHAT_IS_WRONG):
        query.awaitTermination(120)
    assert not query.isActive
    assert "trigger(continuous=...) is not supported" in str(query.exception())


@pytest.mark.spark
def test_a_continuous_query_ends_with_one_clear_error(
    spark: SparkSession, settings: dict[str, str], metrics: sks.DeliveryMetrics, tmp_path: Path
) -> None:
    with started(continuous(spark, "Kafka_Sink", settings), tmp_path) as query:
        ends_with_one_clear_error(query)
    assert metrics.committed is None


@pytest.mark.spark
@pytest.mark.whole("a session of its own")
def test_one_of_another_session_of_the_context_ends_as_well(
    spark: SparkSession, settings: dict[str, str], metrics: sks.DeliveryMetrics, tmp_path: Path
) -> None:
    other = spark.newSession()
    try:
        assert sks.register(other) is metrics
        with started(continuous(other, "kafka_sink", settings), tmp_path) as query:
            ends_with_one_clear_error(query)
    finally:
        sks.register(spark)  # is this thread's active session again


@pytest.mark.spark
def test_other_queries_go_on(spark: SparkSession, settings: dict[str, str], metrics: sks.DeliveryMetrics, tmp_path: Path) -> None:
    """One of micro-batches into this sink, which waits for files, and a continuous one into another."""
    files = tmp_path / "files"
    files.mkdir()
    batches = spark.readStream.text(str(files)).writeStream.format("kafka_sink").options(**settings)
    with (
        started(batches, tmp_path / "batches") as good,
        started(continuous(spark, "noop", settings), tmp_path / "noop") as elsewhere,
        started(continuous(spark, "kafka_sink", settings), tmp_path / "refused") as refused,
    ):
        ends_with_one_clear_error(refused)
        assert good.isActive
        assert elsewhere.isActive


def test_what_fails_while_a_query_is_ended_is_logged_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    end_continuous_queries(None)
    assert "a continuous query, which writes nothing, could not be ended: AttributeError" in caplog.text
