"""What a scrape says about open and committing transactions, while a real stream's commit waits for the broker."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.exporters.scraped import read_page
from spark_kafka_sink.protocol.api import ApiKey
from tests.exporters.scrapes import named, scraped
from tests.waiting import until

pytestmark = pytest.mark.spark


def test_the_age_of_open_transactions_grows_until_the_commit_which_may_wait_for_markers(
    spark: SparkSession, tmp_path: Path
) -> None:
    sks.register(spark).close()
    metrics = sks.register(spark)
    server = sks.serve_prometheus(metrics, 0)
    spark.range(20).selectExpr("cast(id as string) as value").write.parquet(str(tmp_path / "input"))
    rows = spark.readStream.schema("value string").parquet(str(tmp_path / "input"))
    try:
        with EmbeddedBroker() as broker:
            broker.create_topic("events", partitions=2)
            held = broker.faults.hold(ApiKey.END_TXN)
            before = time.time()
            query = (
                rows.writeStream.format("kafka_sink")
                .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events"})
                .options(**{"delivery.guarantee": "exactly-once", "kafka.transaction.timeout.ms": "240000"})
                .queryName("orders")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            held.wait(timeout=60)
            begun = time.time()
            first, timeout = ages(server.port, query.id)
            assert 0 < first <= time.time() - before
            assert timeout == 240
            second, _ = ages(server.port, query.id)
            assert first < second <= first + (time.time() - begun)
            assert is_active(server.port, query.id)
            assert waited(server.port, query.id) is None
            with broker.faults.hold_markers():
                held.remove()
                until(lambda: waited(server.port, query.id), lambda seconds: seconds, "a commit that waits for its markers")
            query.awaitTermination()
            assert ages(server.port, query.id) == (0, 240)
            assert waited(server.port, query.id) == 0
            assert not is_active(server.port, query.id)
            # Spark has forgotten its name.
            assert str(metrics.of(query.id)).startswith(f"1 micro-batch of orders ({query.id})")
            assert read_page(f"http://127.0.0.1:{server.port}/metrics").names == {query.id: "orders"}
    finally:
        server.stop()
        metrics.close()


def ages(port: int | None, query: str) -> tuple[float, float]:
    found = scraped(f"http://127.0.0.1:{port}/metrics")
    labels = named(query, "orders")
    return found["kafka_sink_open_transaction_age_seconds", labels], found["kafka_sink_transaction_timeout_seconds", labels]


def waited(port: int | None, query: str) -> float | None:
    return scraped(f"http://127.0.0.1:{port}/metrics").get(("kafka_sink_committing_seconds", named(query, "orders")))


def is_active(port: int | None, query: str) -> bool:
    found = scraped(f"http://127.0.0.1:{port}/metrics")
    return bool(found["kafka_sink_query_active", named(query, "orders")])
