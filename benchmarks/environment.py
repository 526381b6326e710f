"""Environment of the cells: a Spark session with Spark's own Kafka sink, real and embedded brokers, and topics."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark.sql import SparkSession

from tests.kafka.cluster import FULL_SPEED, KafkaCluster, data_folder
from tests.kafka.jars import jars
from tests.kafka.kafka import Kafka
from tests.kafka.ports import free_ports

CONNECTOR_POM = Path(__file__).with_name("pom.xml")
CHECKOUT = Path(__file__).resolve().parent.parent

# Each run writes its own topic, which is deleted afterwards. By default a broker keeps deleted files for a minute and looks for
# old ones every five. At 200 MB/s a log in memory would be full by then.
BROKER_SETTINGS: Mapping[str, str] = {
    "log.segment.delete.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
}
BROKER_HEAP_MB = 1024

_STOP_S = 20.0
_START_S = 30.0

# For a run that is larger than memory, only the newest part of its topic is kept.
SHORT_RETENTION: Mapping[str, str] = {"retention.bytes": str(64 * 2**20), "segment.bytes": str(32 * 2**20)}


class NotEnoughSpaceError(RuntimeError):
    """The broker's log has no space for the next run, and deleted topics freed none within a minute."""


class RecordsLostError(RuntimeError):
    """A contender returned, and its topic does not hold all records."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Creates a topic for one run and deletes it."""

    kafka: Kafka
    folder: Path

    @contextmanager
    def fresh(self, partitions: int, space: int, config: Mapping[str, str] | None = None) -> Iterator[str]:
        """Yields the name of a new topic. space: the number of bytes that its log may grow to."""
        self._wait_for_space(space)
        name = self.kafka.create_topic(f"bench-{time.time_ns()}", partitions, config=config)
        try:
            self._wait_until_served(name)
            yield name
        finally:
            self.kafka.delete_topic(name)

    def check_count(self, topic: str, rows: int, markers: int = 0) -> None:
        """Raises RecordsLostError unless `rows` records were written to `topic`, whether or not they are still there.

        markers: the largest number of transaction markers beside the records.
        """
        written = self._written(topic)
        if not rows <= written <= rows + markers:
            raise RecordsLostError(f"topic {topic} got {written:,} records instead of {rows:,}")

    def _written(self, topic: str) -> int:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        partitions = self.kafka.metadata(topic).topics[topic].partitions
        asked = {TopicPartition(topic, partition): latest for partition in partitions}
        return sum(end.result().offset for end in self.kafka.admin.list_offsets(asked, request_timeout=30).values())

    def _wait_until_served(self, topic: str) -> None:
        """Waits until leaders have opened their logs. Metadata names them earlier, and they answer NOT_LEADER_OR_FOLLOWER."""
        self.kafka.wait_for(lambda: self._written(topic) == 0, f"every partition of {topic} served", 60)

    def _wait_for_space(self, space: int) -> None:
        needed = space + 512 * 2**20
        deadline = time.monotonic() + 60
        while shutil.disk_usage(self.folder).free < needed:
            if time.monotonic() > deadline:
                raise NotEnoughSpaceError(f"{self.folder} has less than the {needed >> 20:,} MB free that the next run may write")
            time.sleep(0.2)


@contextmanager
def broker() -> Iterator[Topics]:
    """Runs a single real broker, with its log on tmpfs if there is space."""
    with KafkaCluster(1, BROKER_SETTINGS, heap_mb=BROKER_HEAP_MB, java_options=FULL_SPEED) as kafka:
        yield Topics(kafka, kafka.log_dir(1))


class Embedded(Kafka):
    """The embedded broker as a client sees it. When a wait times out, the error has the last output of the broker."""

    def __init__(self, bootstrap_servers: str, said: Path) -> None:
        super().__init__(bootstrap_servers)
        self._said = said

    def explain(self, message: str) -> str:
        return f"{message}\n--- the broker said last:\n{self._said.read_text()[-2000:]}"


@dataclass(frozen=True, slots=True)
class EmbeddedProcess:
    """A running embedded broker. pid: for its memory and CPU."""

    kafka: Kafka
    pid: int
    folder: Path


@contextmanager
def embedded_broker() -> Iterator[EmbeddedProcess]:
    """Runs the embedded broker in its own process, with its log where Kafka's log is, until the end of the `with`.

    The command is `spark-kafka-sink broker`.
    """
    folder = data_folder()
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "spark_kafka_sink", "broker", "--port", str(port), "--data-dir", str(folder)]
    # Deleted logs of earlier runs are removed at once; with Kafka's settings above this takes half a second.
    said = folder / "said.txt"  # its log would disturb the output of the figures
    with said.open("wb") as file:
        process = subprocess.Popen([*command, "--set", "log.retention.check.interval.ms=1000"], stdout=file, stderr=file)
    try:
        kafka = Embedded(f"127.0.0.1:{port}", said)
        kafka.wait_for(lambda: bool(kafka.metadata(timeout_s=1.0).brokers), "the embedded broker ready", _START_S)
        yield EmbeddedProcess(kafka, process.pid, folder)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Runs Spark on all cores, with the default rows per Arrow batch and other settings. Its Python workers end with it."""
    connector = jars(CONNECTOR_POM, what="Spark's own Kafka sink (about 6 MB; a few seconds to a minute)")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Workers import the contenders from here, whatever the working directory is.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
    spark = (
        SparkSession.builder.appName("benchmarks")
        .master("local[*]")
        .config("spark.jars", ",".join(str(jar) for jar in sorted(connector.glob("*.jar"))))
        .config("spark.driver.memory", "4g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        # Cached producers of Spark's sink log a warning for each deleted topic.
        spark.sparkContext.setLogLevel("ERROR")
        yield spark
    finally:
        spark.stop()
