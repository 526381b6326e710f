"""How the sink's warnings look in the processes that Spark starts, and that they are left alone in all others."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
from collections.abc import Iterable

import pytest
from pyspark.sql import SparkSession

LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARNING spark_kafka_sink\.some: careful\n")

PROGRAM = """
import logging, sys
from importlib.machinery import ModuleSpec
from spark_kafka_sink.spark.process_log import log_in_sparks_process
{before}
log_in_sparks_process()
log_in_sparks_process()
{after}
logging.getLogger("spark_kafka_sink.some").warning("careful")
logging.getLogger("spark_kafka_sink.some").info("by the way")
"""
AS_SPARK = '__spec__ = ModuleSpec("pyspark.daemon", None)'
CONFIGURED = 'logging.basicConfig(format="%(message)s, it said")'


def stderr(before: str = "", after: str = "") -> str:
    """What a program writes that warns after it has done these."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before, after=after)], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr


def test_in_a_process_of_sparks_a_warning_has_its_time_level_and_logger() -> None:
    assert LINE.fullmatch(stderr(AS_SPARK))


def test_any_other_program_keeps_what_python_does() -> None:
    assert stderr() == "careful\n"


@pytest.mark.parametrize("where", ["before", "after"])
def test_where_logging_is_configured_it_stays_as_it_is(where: str) -> None:
    before = f"{AS_SPARK}\n{CONFIGURED}" if where == "before" else AS_SPARK
    assert stderr(before, CONFIGURED if where == "after" else "") == "careful, it said\n"


def test_a_handler_of_the_packages_own_is_left_alone() -> None:
    own = 'logging.getLogger("spark_kafka_sink").addHandler(logging.StreamHandler())'
    assert stderr(f"{AS_SPARK}\n{own}") == "careful\n"


def _warned(_: Iterable[int]) -> Iterable[str]:
    """In a worker: what a warning writes there."""
    from spark_kafka_sink.spark.process_log import log_in_sparks_process

    package, usual = logging.getLogger("spark_kafka_sink"), sys.stderr
    handlers = package.handlers[:]
    package.handlers.clear()
    sys.stderr = written = io.StringIO()
    try:
        log_in_sparks_process()
        logging.getLogger("spark_kafka_sink.some").warning("careful")
    finally:
        sys.stderr = usual
        package.handlers[:] = handlers
    yield written.getvalue()


@pytest.mark.spark
def test_a_worker_is_a_process_of_sparks(spark: SparkSession) -> None:
    (written,) = spark.sparkContext.parallelize([0], 1).mapPartitions(_warned).collect()
    assert LINE.fullmatch(written)
