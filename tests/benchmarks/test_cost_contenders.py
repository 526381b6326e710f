"""Contenders of the cost benchmark send the same records, and their CPU time is counted where it was spent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import Row, SparkSession

from benchmarks.contenders import Discard, Target
from benchmarks.cost.cells import FILES, Format, Payload
from benchmarks.cost.contenders import CONTENDERS
from benchmarks.cost.rows import write_rows
from benchmarks.measure import READ_EVERY_S, CpuMeter, Role, timed
from benchmarks.results import CEILING, CONFLUENT, KAFKA_PYTHON, PARQUET, SINK, SINK_EXACTLY_ONCE
from spark_kafka_sink.broker import EmbeddedBroker
from tests.kafka.witness import read_topic

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.whole("the benchmark counts the records of each run itself"),
]

ROWS = 10 * FILES
BURNT_S = 1.0
# Spark's own sink needs its jar, and `make bench` counts what it writes.
SENDERS = (SINK, SINK_EXACTLY_ONCE, CONFLUENT, KAFKA_PYTHON)


@pytest.mark.parametrize("payload", [Payload(100, headers=True), Payload(100, Format.AVRO)], ids=lambda payload: payload.format)
def test_contenders_send_the_rows_of_the_files(spark: SparkSession, tmp_path: Path, payload: Payload) -> None:
    paths = write_rows(payload, ROWS, tmp_path)
    rows = pa.concat_tables([pq.read_table(path) for path in paths]).to_pylist()
    sent = sorted((as_bytes(row["key"]), as_bytes(row["value"]), headers(row)) for row in rows)
    with EmbeddedBroker() as broker:
        for name in SENDERS:
            topic = name.replace(" ", "-")
            broker.create_topic(topic, partitions=3)
            frame = spark.read.parquet(*map(str, paths))
            CONTENDERS[name](frame, Target(broker.bootstrap_servers, topic, "lz4", 3))
            read = read_topic(broker.bootstrap_servers, topic, isolation_level="read_committed")
            assert sorted((record.key, record.value, record.headers) for record in read) == sent, name


def as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def headers(row: dict[str, list[dict[str, object]]]) -> tuple[tuple[object, object], ...]:
    return tuple((header["key"], header["value"]) for header in row.get("headers", []))


def test_the_time_of_python_is_apart_from_that_of_the_jvm(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(Discard)
    rows = 10_000 * FILES
    frame = spark.read.parquet(*map(str, write_rows(Payload(100), rows, tmp_path)))
    target = Target("", "", "none", 1)
    for name in (PARQUET, CEILING):  # starts Spark's processes
        CONTENDERS[name](frame, target)
    in_jvm, in_both = (timed(rows, partial(CONTENDERS[name], frame, target)) for name in (PARQUET, CEILING))

    assert in_jvm.jvm_s > 0
    assert in_both.jvm_s > 0
    assert in_both.cpu_s > in_jvm.cpu_s  # idle workers take a little


def test_the_time_of_a_worker_that_has_ended_counts(spark: SparkSession) -> None:
    with CpuMeter() as cpu, pytest.raises(Py4JJavaError):
        spark.range(0, 2, 1, 1).foreachPartition(burn_and_end)

    assert cpu.seconds(Role.WORKER) >= BURNT_S / 2


def burn_and_end(_: Iterator[Row]) -> None:
    """Takes CPU time, lives on for a moment and ends its worker, which fails the task."""
    begun = time.process_time()
    while time.process_time() < begun + BURNT_S:
        pass
    time.sleep(2 * READ_EVERY_S)
    os._exit(1)
