"""Cost of watching: a stream with every exporter on, in turns with the same stream without any.

It runs alone on the machine: `python -m benchmarks.sight`. Intervals are those that docs/monitoring.md shows. A scrape or an
export costs the driver some milliseconds each time, so a shorter interval costs more, and rows cost the same.
"""

from __future__ import annotations

import argparse
import logging
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from typing import Any, Final, NamedTuple

import psutil
from openlineage.client import OpenLineageClient
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from benchmarks.environment import SHORT_RETENTION, Topics, broker, spark_session
from benchmarks.measure import timed
from benchmarks.streaming import TASKS, Source, milliseconds, source_of
from spark_kafka_sink.spark.plan.data_source import KafkaSinkDataSource

SCRAPE_S: Final = 15.0
EXPORT_S: Final = 60.0
VALUE_BYTES, PARTITIONS = 100, 12

OFF, ON = "off", "on"
NAMES: Final = ("s per micro-batch", "CPU us/row, workers", "CPU us/row, driver's Python", "CPU us/row, all of Spark")


class Costs(NamedTuple):
    """What one run took, in the order of NAMES."""

    batch_s: float
    workers_us: float
    driver_us: float
    all_us: float


class _NoMetrics(MetricExporter):
    """Takes what the SDK has encoded."""

    def export(self, *_: Any, **__: Any) -> MetricExportResult:
        return MetricExportResult.SUCCESS

    def shutdown(self, *_: Any, **__: Any) -> None: ...

    def force_flush(self, *_: Any, **__: Any) -> bool:
        return True


class _NoSpans(SpanExporter):
    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class _Collector(BaseHTTPRequestHandler):
    """Takes OpenLineage's events."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(201)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def everything(spark: SparkSession) -> Iterator[None]:
    """Turns on all that docs/monitoring.md has: counts, log lines, Prometheus with scrapes, OpenTelemetry, lineage and spans."""
    with ExitStack() as ends:
        collector = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
        ends.callback(collector.server_close)
        _run(ends, collector.serve_forever, collector.shutdown)
        metrics = sks.register(spark)
        ends.callback(metrics.close)
        metrics.log_batches()
        served = sks.serve_prometheus(metrics, 0)
        ends.callback(served.stop)
        meters = MeterProvider([PeriodicExportingMetricReader(_NoMetrics(), EXPORT_S * 1000)])
        ends.callback(meters.shutdown)
        sks.export_opentelemetry(metrics, meters)
        tracers = TracerProvider()
        tracers.add_span_processor(BatchSpanProcessor(_NoSpans()))
        ends.callback(tracers.shutdown)
        ends.callback(sks.trace_writes(metrics, tracers).stop)
        client = OpenLineageClient(config={"transport": {"type": "http", "url": f"http://127.0.0.1:{collector.server_port}"}})
        ends.callback(sks.emit_lineage(spark, metrics, client=client).stop)
        over = threading.Event()

        def scrape() -> None:
            while not over.wait(SCRAPE_S):
                with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/metrics", timeout=10) as page:
                    page.read()

        _run(ends, scrape, over.set)
        yield


def _run(ends: ExitStack, run: Callable[[], None], stop: Callable[[], None]) -> None:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ends.callback(thread.join, 20)
    ends.callback(stop)


def measure(source: Source, topics: Topics, guarantee: str, rows: int, how: str) -> Costs:
    """Runs the stream once. rows: of all its micro-batches."""
    me = psutil.Process()
    with ExitStack() as ends, topics.fresh(PARTITIONS, 2**30, SHORT_RETENTION) as topic:
        if how == ON:
            ends.enter_context(everything(source.spark))
        else:
            source.spark.dataSource.register(KafkaSinkDataSource)
        options = {
            "topic": topic,
            "kafka.bootstrap.servers": topics.kafka.bootstrap_servers,
            "kafka.enable.metrics.push": "true" if how == ON else "false",
            "delivery.guarantee": guarantee,
            "transactional.id.prefix": topic,
        }
        if guarantee != "exactly-once":
            del options["transactional.id.prefix"]
        queries = []

        def run() -> None:
            queries.append(source.start(options, to_the_end=True))
            queries[0].awaitTermination()

        before = me.cpu_times()
        taken = timed(rows, run)
        after = me.cpu_times()
        topics.check_count(topic, rows, markers=rows)
        own_s = after.user + after.system - before.user - before.system
        all_s = taken.jvm_s + taken.planners_s + taken.cpu_s + own_s
        seconds = median(milliseconds(queries[0])) / 1000
        return Costs(seconds, taken.cpu_s / rows * 1e6, own_s / rows * 1e6, all_s / rows * 1e6)


def lines(found: Mapping[str, Sequence[Costs]]) -> Iterator[str]:
    """Yields a line for each name: both medians, and the median of the ratios of runs that followed each other."""
    for place, name in enumerate(NAMES):
        off, on = ([run[place] for run in found[how]] for how in (OFF, ON))
        ratio = median(with_all / without for without, with_all in zip(off, on, strict=True))
        yield f"{name:<28} off {median(off):8.3f}   on {median(on):8.3f}   {100 * (ratio - 1):+.1f} %"


def main() -> None:
    logging.getLogger("openlineage").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guarantee", choices=["at-least-once", "exactly-once"], default="at-least-once")
    parser.add_argument("--batch-rows", type=int, default=2_000_000, help="rows of a micro-batch (default: 2 million)")
    parser.add_argument("--batches", type=int, default=12, help="micro-batches of a run (default: 12)")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each kind, without a first one (default: 7)")
    asked = parser.parse_args()
    rows = asked.batch_rows * asked.batches
    found: dict[str, list[Costs]] = {OFF: [], ON: []}
    with (
        spark_session() as spark,
        broker() as topics,
        source_of(spark, TASKS, asked.batch_rows, VALUE_BYTES) as source,
    ):
        for number in range(asked.batches):
            source.input.add(number)
        for turn in range(asked.rounds + 1):
            for how in (OFF, ON) if turn % 2 else (ON, OFF):
                costs = measure(source, topics, asked.guarantee, rows, how)
                print(turn, how, *(f"{each:.3f}" for each in costs), flush=True)
                if turn:  # in the first one Spark's JVM compiles
                    found[how].append(costs)
    print("\n".join(lines(found)))


if __name__ == "__main__":
    main()
