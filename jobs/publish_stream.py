"""A stream of rows, files or Kafka records to Kafka, until it is stopped or, with the trigger availableNow, all is read."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # spark-submit puts only this file's own folder there

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_kafka_sink as sks
from jobs.command_line import CommandLine, parse, spark_session
from jobs.outcome import ExitCode, ending
from jobs.settings import Settings, load
from jobs.sources import stream_records
from spark_kafka_sink.spark.plan.data_source import NAME
from spark_kafka_sink.spark.plugin_checks import checked_options

PROGRESS_EACH_S = 10
AVAILABLE_NOW = "availableNow"
POLL_S = 1  # how soon SIGTERM is noticed


def main(arguments: Sequence[str] | None = None) -> int:
    line = parse("publish_stream", __doc__ or "", "conf/publish_rate.toml", arguments)
    return ending(lambda: _publish(line), verbose=line.verbose)


def _publish(line: CommandLine) -> ExitCode:
    settings = load(line.settings, line.overrides)
    checked_options(settings.texts("sink"))  # before Spark starts, which takes seconds
    checkpoint = settings.required("query", "checkpoint")
    spark = spark_session(settings, settings.text("query", "name") or "publish_stream")
    metrics = None
    try:
        metrics = sks.register(spark)
        terminated = sigterm_noticed(spark)
        query = _start(stream_records(spark, settings), settings, checkpoint)
        try:
            _follow(query, metrics, terminated)
        finally:
            query.stop()
    finally:
        spark.stop()
        # Here, as it would drown among the lines that Spark prints while it stops.
        if metrics is not None:
            _print_all(metrics)
    if terminated.is_set():
        print("stopped by SIGTERM; the next run goes on from the checkpoint", flush=True)
        return ExitCode.TERMINATED
    return ExitCode.OK


def _start(records: Any, settings: Settings, checkpoint: str) -> StreamingQuery:
    writer = records.writeStream.format(NAME).options(**settings.texts("sink")).option("checkpointLocation", checkpoint)
    name = settings.text("query", "name")
    if name is not None:
        writer = writer.queryName(name)
    trigger = settings.text("query", "trigger")
    if trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    query: StreamingQuery = writer.start()
    return query


def _follow(query: StreamingQuery, metrics: sks.DeliveryMetrics, terminated: threading.Event) -> None:
    """Until the query ends or SIGTERM came; says what is delivered each PROGRESS_EACH_S. A query that failed raises here."""
    next_progress = time.monotonic() + PROGRESS_EACH_S
    while not (terminated.is_set() or query.awaitTermination(POLL_S)):
        if time.monotonic() >= next_progress:
            next_progress += PROGRESS_EACH_S
            print(_delivered(metrics), flush=True)


def _print_all(metrics: sks.DeliveryMetrics) -> None:
    print(_delivered(metrics))
    if metrics.committed:
        print(metrics.committed, flush=True)


def _delivered(metrics: sks.DeliveryMetrics) -> str:
    committed = metrics.committed
    return f"committed so far: {committed.line() if committed else 'nothing'}"


class _SignalHandler:
    """Java's SignalHandler; it is called in a separate thread."""

    def __init__(self, noticed: threading.Event) -> None:
        self._noticed = noticed

    def handle(self, _signal: object) -> None:
        self._noticed.set()

    class Java:
        implements = ("sun.misc.SignalHandler",)


def sigterm_noticed(spark: SparkSession) -> threading.Event:
    """An event that SIGTERM sets, to this process or to the JVM, in place of ending either. Call it in the main thread."""
    noticed = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: noticed.set())
    # Under spark-submit the JVM is the process that a scheduler knows. It would stop Spark under the running query, and close
    # the pipe that this program prints to.
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    signals = gateway.jvm.sun.misc
    signals.Signal.handle(signals.Signal("TERM"), _SignalHandler(noticed))
    return noticed


if __name__ == "__main__":
    sys.exit(main())
