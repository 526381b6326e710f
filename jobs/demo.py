"""A stream of a million events to Kafka through format("kafka_sink"), then read back and compared, record by record."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # Python puts only this file's own folder there

from pyspark.sql import SparkSession
from tqdm.auto import tqdm

import spark_kafka_sink as sks
from jobs.demo_events import write_events
from jobs.outcome import ExitCode, ending
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.verify.comparison import Comparison
from spark_kafka_sink.verify.read_back import whole_topic
from spark_kafka_sink.verify.topic_records import compare_with_topic

CHECKOUT = Path(__file__).resolve().parent.parent
PARTITIONS = 8
FILES = 12
FILES_PER_BATCH = 3


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make demo", description=f"{__doc__} BROKER=embedded (the default) needs no Kafka; BROKER=kafka uses real Kafka."
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="events to write (default: %(default)s)")
    rows: int = parser.parse_args(arguments).rows
    broker = os.environ.get("BROKER") or next(iter(CLUSTERS))
    if broker not in CLUSTERS:
        parser.error(f"BROKER={broker}: must be one of {', '.join(CLUSTERS)}")
    # An ordinary end, so that everything that was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return ending(lambda: _demo(rows, CLUSTERS[broker]), verbose=True)


def _demo(rows: int, cluster: Callable[[], AbstractContextManager[Topic]]) -> ExitCode:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-kafka-sink-demo-")))
        with _step(f"Writing {rows:,} events with keys, headers and timestamps to {FILES} Parquet files"):
            write_events(folder / "events", rows, FILES)
        topic = stack.enter_context(cluster())
        spark = stack.enter_context(_spark())
        stream = Stream(spark, topic.bootstrap_servers, topic.name, folder, rows)
        metrics = stream.run()
        compared = _read_back(stream)
    return _judged(compared, metrics.committed, rows)


@contextmanager
def _step(what: str) -> Iterator[None]:
    print(f"{what} ... ", end="", flush=True)
    start = time.monotonic()
    yield
    print(f"done in {time.monotonic() - start:.1f} s", flush=True)


@dataclass(frozen=True, slots=True)
class Topic:
    """Where the events go."""

    bootstrap_servers: str
    name: str


# The events are older than the week for which Kafka keeps records, by their own timestamps.
CONFIGS: Mapping[str, str] = {"retention.ms": "-1"}


def _topic_name() -> str:
    return f"demo-events-{time.time_ns()}"


@contextmanager
def _on_embedded_broker() -> Iterator[Topic]:
    from spark_kafka_sink.broker import EmbeddedBroker

    with _step("Starting the embedded broker: Kafka's protocol in this process, in memory, for development and tests"):
        broker = EmbeddedBroker()
        broker.start()
    with broker:
        print(f"It is at {broker.bootstrap_servers}; BROKER=kafka uses real Kafka instead", flush=True)
        yield Topic(broker.bootstrap_servers, broker.create_topic(_topic_name(), PARTITIONS, configs=CONFIGS))


@contextmanager
def _on_kafka() -> Iterator[Topic]:
    from tests.kafka.cluster import KafkaCluster
    from tests.kafka.kafka import Kafka

    print(
        "Kafka: at KAFKA_BOOTSTRAP_SERVERS if that is set, else from Maven artifacts (the first time a download of about 55 MB,"
    )
    print("5 seconds to a few minutes; kept in the cache folder of the user)", flush=True)
    with _step("Starting Kafka"):
        named = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
        kafka = Kafka(named) if named else KafkaCluster()
    with kafka:
        print(f"Kafka is at {kafka.bootstrap_servers}", flush=True)
        topic = kafka.create_topic(_topic_name(), PARTITIONS, config=dict(CONFIGS))
        try:
            yield Topic(kafka.bootstrap_servers, topic)
        finally:
            kafka.delete_topic(topic)


CLUSTERS: Mapping[str, Callable[[], AbstractContextManager[Topic]]] = {"embedded": _on_embedded_broker, "kafka": _on_kafka}


@contextmanager
def _spark() -> Iterator[SparkSession]:
    # Spark starts the PATH's `python3` otherwise, and its workers would not find this checkout.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with _step("Starting Spark"):
        spark = (
            SparkSession.builder.appName("spark-kafka-sink demo")
            .master("local[*]")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "8")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@dataclass(frozen=True, slots=True)
class Stream:
    """The query and what it reads and writes."""

    spark: SparkSession
    bootstrap_servers: str
    topic: str
    folder: Path
    rows: int

    @property
    def options(self) -> dict[str, str]:
        """Options of the sink."""
        return {"kafka.bootstrap.servers": self.bootstrap_servers, "topic": self.topic}

    def events(self) -> Any:
        """What is to be written, as a batch."""
        return self.spark.read.parquet(str(self.folder / "events"))

    def run(self) -> sks.DeliveryMetrics:
        """Runs to the end of the files, and prints what was delivered."""
        metrics = sks.register(self.spark)
        events = self.spark.readStream.schema(self.events().schema).option("maxFilesPerTrigger", FILES_PER_BATCH)
        print(f'Streaming into topic {self.topic} ({PARTITIONS} partitions) through format("kafka_sink")', flush=True)
        start = time.monotonic()
        query = (
            events.parquet(str(self.folder / "events"))
            .writeStream.format("kafka_sink")
            .options(**self.options)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            self._follow(query, metrics)
        finally:
            query.stop()
        _print_delivered(query.recentProgress, metrics, time.monotonic() - start)
        return metrics

    def _follow(self, query: Any, metrics: sks.DeliveryMetrics) -> None:
        # For a log, a line each five seconds is enough.
        interval = 0.1 if sys.stderr.isatty() else 5.0
        with tqdm(total=self.rows, unit=" rows", unit_scale=True, desc="acked", mininterval=interval) as bar:
            while not query.awaitTermination(1):
                bar.update(_records(metrics.live) - bar.n)
            bar.update(_records(metrics.live) - bar.n)


def _records(report: sks.DeliveryReport | None) -> int:
    return report.records if report else 0


def _print_delivered(batches: Sequence[Any], metrics: sks.DeliveryMetrics, seconds: float) -> None:
    for batch in batches:
        duration = batch.durationMs["triggerExecution"] / 1000
        rate = batch.numInputRows / duration if duration else 0.0
        print(f"micro-batch {batch.batchId}: {batch.numInputRows:,} rows in {duration:.1f} s, {rate:,.0f} rows/s")
    report = metrics.committed
    if report is None:
        print("Delivery report: nothing was committed")
        return
    print(f"Delivery report: {report.line()}")
    print(f"{seconds:.1f} s, {report.records / seconds:,.0f} rows/s, the start of Spark's Python workers included")
    print(report, flush=True)


def _read_back(stream: Stream) -> Comparison:
    print("Reading everything back with confluent-kafka and comparing it with the Parquet files", flush=True)
    start = time.monotonic()
    written = whole_topic(stream.topic, {"bootstrap.servers": stream.bootstrap_servers})
    compared = compare_with_topic(stream.events(), sink_options(stream.options), written)
    print(compared)
    print(f"Compared in {time.monotonic() - start:.1f} s", flush=True)
    return compared


def _judged(compared: Comparison, report: sks.DeliveryReport | None, rows: int) -> ExitCode:
    """Everything must agree: the topic with the files, the report with both."""
    if not compared.same() or compared.left_out:
        print("DIFFERENT: the topic does not hold what was sent")
        return ExitCode.DIFFERENCE
    if not compared.expected == compared.found == _records(report) == rows:
        print(f"DIFFERENT: {rows:,} rows sent, {_records(report):,} reported, {compared.found:,} found")
        return ExitCode.DIFFERENCE
    print(f"All {rows:,} records are in the topic as they were sent: keys, values, headers, timestamps, partitions.")
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
