"""A driver and executors with different versions of this package, in a Spark of its own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import spark_kafka_sink
from spark_kafka_sink.broker import EmbeddedBroker
from tests.package.programs import ROOT, run

PROGRAM = """
import os, sys
from pyspark.sql import SparkSession
import spark_kafka_sink as sks

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
sks.register(spark)
options = {"kafka.bootstrap.servers": sys.argv[1], "topic": "events"}
rows = spark.range(3).selectExpr("cast(id as string) as value")
uses = {
    "format": lambda: rows.write.format("kafka_sink").options(**options).mode("append").save(),
    "publish": lambda: sks.publish(rows, options=options),
    "partition_writer": lambda: rows.foreachPartition(sks.partition_writer(options)),
}
for name, use in uses.items():
    try:
        use()
    except Exception as error:
        (line,) = {line.partition("[INSTALLATION]")[2] for line in str(error).splitlines() if "[INSTALLATION]" in line}
        print(name, line)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.whole("starts a Spark of its own; tests/test_installation.py unpickles the same objects in one process")
@pytest.mark.timeout(300)
def test_an_executor_with_another_version_is_one_line_that_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    shutil.copytree(ROOT / "spark_kafka_sink", other / "spark_kafka_sink", ignore=shutil.ignore_patterns("__pycache__"))
    (other / "spark_kafka_sink/version.py").write_text('__version__ = "9.9"\n')
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{other}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # a data source is planned and run by the second one
        monkeypatch.setenv(name, str(python))
    with EmbeddedBroker() as broker:
        broker.create_topic("events", partitions=1)
        done = run(PROGRAM, broker.bootstrap_servers, timeout=240)
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert set(lines) == {"format", "publish", "partition_writer"}, done.stderr
    for line in lines.values():
        assert f"the driver has spark-kafka-sink {spark_kafka_sink.__version__}, and {sys.executable} on " in line
        assert line.endswith(" has 9.9: install the same version on the driver and on every executor")
