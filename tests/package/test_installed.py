"""The wheel in clean virtual environments: without PySpark a producer, with it a stream, a batch job and publish()."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import spark_kafka_sink
from spark_kafka_sink.broker import EmbeddedBroker
from tests.kafka.witness import read_topic
from tests.package.conftest import Environment
from tests.package.programs import run

WITHOUT_SPARK = """
import importlib.util
import spark_kafka_sink
from spark_kafka_sink import Producer
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.errors import InstallationError

assert "site-packages" in spark_kafka_sink.__file__
assert not any(importlib.util.find_spec(name) for name in ("pyspark", "pandas", "tqdm", "cryptography"))
with EmbeddedBroker() as broker:
    broker.create_topic("events", partitions=1)
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"}) as producer:
        futures = [producer.send("events", str(number)) for number in range(1000)]
    print([future.result(30).offset for future in futures] == list(range(1000)))
for use in (lambda: spark_kafka_sink.publish, lambda: EmbeddedBroker(tls=True)):
    try:
        use()
    except Exception as error:
        print(error)
"""


@pytest.mark.slow
def test_without_pyspark_a_producer_and_the_embedded_broker_work(environment: Environment) -> None:
    python = environment()
    done = run(WITHOUT_SPARK, python=python, path="")
    assert done.stdout.splitlines() == [
        "True",
        "[INSTALLATION] pyspark is not installed: pip install 'spark-kafka-sink[spark]'",
        "[USAGE] certificates cannot be made: cryptography is not installed: pip install 'spark-kafka-sink[tls]'",
    ], done.stderr
    for command in ([python.with_name("spark-kafka-sink")], [python, "-m", "spark_kafka_sink"]):
        told = subprocess.run([*command, "--version"], check=True, capture_output=True, text=True, timeout=60, cwd="/").stdout
        assert told == f"spark-kafka-sink, version {spark_kafka_sink.__version__}\n"


WITH_SPARK = """
import sys
from pyspark.sql import SparkSession
import spark_kafka_sink as sks

servers, folder = sys.argv[1:]
assert "site-packages" in sks.__file__
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = {"kafka.bootstrap.servers": servers, "topic": "events"}
rows = spark.range(100).selectExpr("cast(id as string) as value")
rows.write.mode("append").parquet(f"{folder}/rows")
stream = spark.readStream.schema("value string").parquet(f"{folder}/rows")
# The format is found without being registered.
writer = stream.writeStream.format("kafka_sink").options(**options).option("checkpointLocation", f"{folder}/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination(120)
rows.write.format("kafka_sink").options(**options).mode("append").save()
print(sks.publish(rows, options=options).total.records)
spark.stop()
"""


ON_CONNECT = """
import sys
from pyspark.sql import SparkSession
import spark_kafka_sink as sks

servers, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[1]").getOrCreate()
options = {"kafka.bootstrap.servers": servers, "topic": "events"}
rows = spark.range(100).selectExpr("cast(id as string) as value")
rows.write.mode("append").parquet(f"{folder}/rows")
metrics = sks.register(spark)
rows.write.format("kafka_sink").options(**options).mode("append").save()
stream = spark.readStream.schema("value string").parquet(f"{folder}/rows")
writer = stream.writeStream.format("kafka_sink").options(**options).option("checkpointLocation", f"{folder}/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination(120)
print(sks.publish(rows, options=options, metrics=metrics, progress=True).total.records)
print(repr(metrics))
for call in (lambda: metrics.committed, lambda: metrics.of("q"), metrics.watch, metrics.log_batches):
    try:
        call()
    except Exception as error:
        print(error)
spark.stop()
"""

# Both tests share one environment. The client of Spark Connect needs the packages of that extra.
CONNECT = ("pyspark[connect]",)
WHY = "installs Spark into an environment of its own: 2 minutes"


def lines_and_values(program: str, python: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[int]]:
    """Returns what a program prints, and what it writes to the topic of an embedded broker, in order of size."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, str(python))
    with EmbeddedBroker() as broker:
        broker.create_topic("events", partitions=1)
        done = run(program, broker.bootstrap_servers, str(folder), python=python, path="", timeout=300)
        assert done.returncode == 0, done.stderr
        values = [int(record.value or b"") for record in read_topic(broker.bootstrap_servers, "events")]
    return done.stdout.splitlines(), sorted(values)


@pytest.mark.spark
@pytest.mark.whole(WHY)
@pytest.mark.timeout(600)
def test_with_pyspark_a_stream_a_batch_job_and_publish_write(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, values = lines_and_values(WITH_SPARK, environment("spark", also=CONNECT), tmp_path, monkeypatch)
    assert lines == ["100"]
    assert values == sorted([*range(100)] * 3)


@pytest.mark.spark
@pytest.mark.whole(WHY)
@pytest.mark.timeout(600)
def test_on_spark_connect_the_same_write_and_counts_say_in_one_line_that_they_are_not_there(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, values = lines_and_values(ON_CONNECT, environment("spark", also=CONNECT), tmp_path, monkeypatch)
    assert lines[0] == "100"
    assert lines[1] == "DeliveryMetrics(not available: Spark Connect has no accumulators)"
    refused = lines[2:]
    assert len(refused) == 4
    assert all(line.startswith("[USAGE] Spark Connect has no accumulators, so deliveries are not counted") for line in refused)
    assert values == sorted([*range(100)] * 3)
