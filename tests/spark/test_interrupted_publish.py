"""Ctrl+C during `publish`."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
import spark_kafka_sink.spark.publish as publish_module
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.spark.write_events import WriteEvent, WriteFailed
from tests.spark.frames import numbers


@contextmanager
def interrupted_when_rows_are_written(metrics: sks.DeliveryMetrics) -> Iterator[None]:
    """Sends SIGINT to this process, as Ctrl+C does, once a task reports rows. Its handler is PySpark's."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.05):
            if metrics.running()[1].records:
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("guarantee", "progress", "said"),
    [
        ("at-least-once", True, r"Kafka has acknowledged [1-9][0-9,]* rows or more; they stay in their topics"),
        ("exactly-once", False, r"^batch 0 of job-[0-9a-f]+ was aborted: none of its rows are visible, .*\.$"),
    ],
)
def test_an_interrupt_says_what_was_written_and_the_format_can_be_used_again(
    spark: SparkSession, metrics: sks.DeliveryMetrics, guarantee: str, progress: bool, said: str
) -> None:
    told: list[WriteEvent] = []
    metrics.writes.add(told.append)
    with EmbeddedBroker() as broker:
        broker.create_topic("events")
        to = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events"}
        slow = {"max.records.per.second": "1000", "delivery.guarantee": guarantee}
        with pytest.raises(KeyboardInterrupt) as caught, interrupted_when_rows_are_written(metrics):
            sks.publish(numbers(spark, 1_000_000), options={**to, **slow}, metrics=metrics, progress=progress)
        assert re.search(said, caught.value.__notes__[-1])
        assert not [thread for thread in threading.enumerate() if thread.name == "kafka-sink-bar"]
        numbers(spark, 10).write.format("kafka_sink").options(**to).mode("append").save()
    (failed,) = [event for event in told if isinstance(event, WriteFailed)]
    assert (failed.message, failed.is_interrupt) == ("publish was interrupted", True)


@pytest.mark.spark
def test_an_interrupt_before_the_job_says_that_nothing_was_written(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(publish_module, "check_reachable", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        sks.publish(numbers(spark, 10), topic="events", bootstrap_servers="127.0.0.1:1")
    assert caught.value.__notes__ == ["The job had not begun, so nothing was written."]
