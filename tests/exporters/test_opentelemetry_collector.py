"""A stream goes on whatever the collector does, and OpenTelemetry's own exporter reports it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from pyspark.sql import SparkSession

from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.exporters.opentelemetry import export_opentelemetry
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from tests.exporters.collector import accepted, collector
from tests.exporters.reports import batch
from tests.kafka.witness import read_topic


@contextmanager
def exporting(metrics: DeliveryMetrics, url: str, timeout_s: float = 2) -> Iterator[MeterProvider]:
    """Exports to a collector every 50 ms."""
    exporter = OTLPMetricExporter(url, timeout=timeout_s)
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, 50)])
    try:
        export_opentelemetry(metrics, provider)
        yield provider
    finally:
        provider.shutdown()


def test_a_collector_gets_what_was_committed(metrics: DeliveryMetrics) -> None:
    query = ("kafka_sink.query.id", "q"), ("kafka_sink.query.name", "q"), ("messaging.system", "kafka")
    with collector() as made, exporting(metrics, made.url):
        metrics.batch_committed(batch())
        made.wait_for(lambda: made.last("kafka_sink.batches") == {query: 1})
        assert made.last("kafka_sink.last_batch_duration") == {query: 2.5}


def failing(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(503, "down for maintenance")


def garbage(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x00\xff no HTTP at all\r\n\r\n")
    handler.close_connection = True


BAD = {"503": failing, "garbage": garbage}


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
@pytest.mark.whole("OpenTelemetry's own SDK counts; a collector that is away stays")
def test_a_collector_that_recovers_gets_all_counts(
    metrics: DeliveryMetrics, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with collector(answer) as made, exporting(metrics, made.url):
        metrics.batch_committed(batch())
        made.wait_for(lambda: len(made.received) >= 3)  # a lost connection is tried twice before anything is logged
        made.answer = accepted
        metrics.batch_committed(batch())
        made.wait_for(lambda: made.last("kafka_sink.retries") == {(("messaging.system", "kafka"),): 2})
    assert caplog.records
    assert {record.name.partition(".")[0] for record in caplog.records} == {"opentelemetry"}


@pytest.mark.whole("a stream; the metrics are exported by a thread that no write waits for")
@pytest.mark.spark
def test_a_stream_goes_on_with_a_collector_that_hangs(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import spark_kafka_sink as sks

    sks.register(spark).close()
    metrics = sks.register(spark)
    released = threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        released.wait(60)

    with EmbeddedBroker() as broker, collector(slow) as made:
        broker.create_topic("events", partitions=2)
        with exporting(metrics, made.url, timeout_s=1):
            wrote = stream(spark, broker, tmp_path)
            until_logged(caplog)
            released.set()
        assert metrics.committed is not None
        assert metrics.committed.records == wrote == len(read_topic(broker.bootstrap_servers, "events"))
    assert "Failed to export metrics batch" in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("spark_kafka_sink")]
    metrics.close()


def until_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Waits for the exporter's error."""
    logged = threading.Event()

    class Waiting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR:
                logged.set()

    handler = Waiting()
    logging.getLogger("opentelemetry").addHandler(handler)
    try:
        if not any(record.levelno >= logging.ERROR for record in caplog.records):
            assert logged.wait(30)
    finally:
        logging.getLogger("opentelemetry").removeHandler(handler)


def stream(spark: SparkSession, broker: EmbeddedBroker, folder: Path) -> int:
    """Writes a stream of three micro-batches and returns the number of its rows."""
    spark.range(0, 30, 1, 3).selectExpr("cast(id as string) as value").write.parquet(str(folder / "input"))
    files = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).parquet(str(folder / "input"))
    query = (
        files.writeStream.format("kafka_sink")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events"})
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return 30
