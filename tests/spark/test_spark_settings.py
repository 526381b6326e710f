"""Spark's own settings change how rows reach Python. Under each of them, alone, all rows arrive as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.spark.frames import expected, options, read_records, records, save
from tests.spark.session import ROOT, setting

pytestmark = [pytest.mark.spark, pytest.mark.whole("settings that few change; the others run with Spark's defaults")]

ARROW, PYSPARK = "spark.sql.execution.arrow", "spark.sql.execution.pyspark"
OF_SESSIONS = [
    *((f"{ARROW}.compression.codec", codec) for codec in ("zstd", "lz4")),
    *((f"{ARROW}.maxBytesPerBatch", size) for size in ("1", "20000")),
    *((f"{ARROW}.maxRecordsPerBatch", rows) for rows in ("1", "7", "0")),
    (f"{ARROW}.useLargeVarTypes", "true"),
    (f"{ARROW}.pyspark.selfDestruct.enabled", "true"),
    (f"{PYSPARK}.binaryAsBytes", "false"),
    (f"{PYSPARK}.udf.faulthandler.enabled", "true"),
    (f"{PYSPARK}.udf.tracebackWithLocals.enabled", "true"),
    ("spark.sql.pyspark.worker.logging.enabled", "true"),
    ("spark.sql.pyspark.dataSource.profiler", "perf"),
    ("spark.sql.pyspark.udf.profiler", "perf"),
    ("spark.sql.preserveCharVarcharTypeInfo", "true"),
    ("spark.sql.ansi.enabled", "false"),
    ("spark.sql.caseSensitive", "true"),
    ("spark.sql.session.timeZone", "America/New_York"),
    ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
]
OF_APPLICATIONS = [
    ("spark.python.unix.domain.socket.enabled", "true"),
    ("spark.python.udf.pipelined.enabled", "true"),
    ("spark.python.use.daemon", "false"),
    ("spark.python.worker.reuse", "false"),
    ("spark.python.worker.faulthandler.enabled", "true"),
]


@pytest.mark.parametrize("named", OF_SESSIONS, ids="=".join)
def test_of_a_session(spark: SparkSession, kafka: Kafka, new_topic: NewTopic, named: tuple[str, str]) -> None:
    saved, published = new_topic(3), new_topic(3)
    with setting(spark, *named):
        save(records(spark, 300, 3), options(kafka, topic=saved))
        report = sks.publish(records(spark, 300, 3), options=options(kafka, topic=published, delivery__guarantee="exactly-once"))
    assert report.total.records == 300
    assert read_records(kafka, saved) == read_records(kafka, published) == expected(300, 3)


PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from tests.spark.frames import records, save
import spark_kafka_sink as sks
settings, given = map(json.loads, sys.argv[1:])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
sks.register(spark)
save(records(spark, 300, 3), given)
print(sks.publish(records(spark, 300, 3), options=given).total.records)
spark.stop()
"""


@pytest.mark.parametrize("named", OF_APPLICATIONS, ids="=".join)
def test_of_an_application(kafka: Kafka, new_topic: NewTopic, named: tuple[str, str], tmp_path: Path) -> None:
    topic = new_topic(3)
    settings = {named[0]: named[1], "spark.sql.warehouse.dir": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, json.dumps(settings), json.dumps(options(kafka, topic=topic))]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert ran.stdout == "300\n", ran.stderr
    found = [each[:4] for each in read_records(kafka, topic)]
    assert sorted(found, key=repr) == sorted([each[:4] for each in expected(300, 3)] * 2, key=repr)
