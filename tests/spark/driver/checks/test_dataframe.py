"""`check(options, df)`: the DataFrame's columns, and the Python of Spark's workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.spark.driver.check import check
from spark_kafka_sink.spark.driver.checks.dataframe import check_python
from spark_kafka_sink.spark.driver.checks.report import Status
from tests.spark.driver.checks.reading import line, settings
from tests.spark.frames import numbers


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        made.create_topic("events")
        made.create_topic("compacted", configs={"cleanup.policy": "compact"})
        yield made


@pytest.mark.spark
def test_columns_that_fit_are_a_tick(spark: SparkSession, broker: EmbeddedBroker) -> None:
    report = check(settings(broker), numbers(spark, 10).selectExpr("key", "value", "1 AS extra"))
    assert report.ok, str(report)
    assert line(report, "columns").text == "key string, value string"
    assert line(report, "columns").to_do == "not written: extra"
    assert line(report, "Python").status is Status.OK


@pytest.mark.spark
def test_a_column_of_a_wrong_type_is_a_cross_with_its_cast(spark: SparkSession, broker: EmbeddedBroker) -> None:
    report = check(settings(broker), spark.range(10).selectExpr("id AS value"))
    assert [each.name for each in report.failed] == ["columns"]
    assert "[SCHEMA] column value: is bigint" in line(report, "columns").text
    assert "cast(value as string)" in line(report, "columns").text
    assert line(report, "columns").link.endswith("#schema")


@pytest.mark.spark
def test_a_column_that_only_some_ways_of_writing_take_is_a_hint(spark: SparkSession, broker: EmbeddedBroker) -> None:
    report = check(settings(broker), spark.range(10).selectExpr("string(id) AS value", "make_ym_interval(1) AS extra"))
    assert report.ok, str(report)
    assert "only publish() and foreach_batch() can write it" in line(report, "columns").to_do


@pytest.mark.spark
def test_a_streaming_dataframe_is_checked_as_well(spark: SparkSession, broker: EmbeddedBroker) -> None:
    stream = spark.readStream.format("rate").load()
    assert "column value: is bigint" in line(check(settings(broker), stream), "columns").text


@pytest.mark.spark
def test_columns_are_checked_although_no_broker_answers(spark: SparkSession) -> None:
    report = check({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "events"}, numbers(spark, 1), timeout=2)
    assert line(report, "columns").status is Status.OK
    assert line(report, "brokers").status is Status.FAILED


@pytest.mark.spark
def test_a_compacted_topic_needs_a_column_key(spark: SparkSession, broker: EmbeddedBroker) -> None:
    rows = numbers(spark, 1)
    assert "no column key" in line(check(settings(broker, topic="compacted"), rows.select("value")), "compaction").text
    assert check(settings(broker, topic="compacted"), rows).ok


def test_another_python_of_the_workers_is_a_cross(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The context is that of a script that was started with `.venv/bin/python`, where the environment is not activated."""
    own, other = tmp_path / "venv" / "bin" / "python", tmp_path / "bin" / "python3"
    for python in (own, other):
        python.parent.mkdir(parents=True)
        python.symlink_to(Path(sys.executable).resolve())
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    monkeypatch.setattr(sys, "executable", str(own))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(other.parent))
    (cross,) = check_python(SimpleNamespace(sparkSession=SimpleNamespace(_sc=SimpleNamespace(pythonExec="python3"))))  # type: ignore[arg-type]
    assert cross.status is Status.FAILED
    assert str(other) in cross.text
    assert f"PYSPARK_PYTHON={own}" in cross.text


def frame(master: str, python: str) -> Any:
    """Returns what is asked of a DataFrame."""
    return SimpleNamespace(sparkSession=SimpleNamespace(_sc=SimpleNamespace(master=master, pythonExec=python)))


def test_the_python_of_other_machines_is_not_checked() -> None:
    (found,) = check_python(frame("yarn", sys.executable))
    assert found.status is Status.NOT_CHECKED
    assert "executors" in found.text
