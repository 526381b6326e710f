"""A Spark session for tests."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import spark_kafka_sink as sks

ROOT = Path(__file__).parents[2]


def wait_for_listeners(spark: SparkSession) -> None:
    """Waits until Spark has told its listeners all that happened: what it shows of jobs and plans is filled by one of them."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Sets a setting of the session within the block."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


@contextmanager
def registered_session(folder: Path) -> Iterator[SparkSession]:
    """Yields a local session with the sink registered: two task threads, no user interface, the warehouse in `folder`.

    Python workers find the package in the checkout and run this interpreter (PYSPARK_PYTHON, tests/conftest.py).
    """
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with warnings.catch_warnings():
        # What PySpark has to say of other versions while it starts is not for these tests.
        warnings.simplefilter("ignore")
        session = (
            SparkSession.builder.master("local[2]")
            .appName("spark_kafka_sink tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.python.daemon.module", "tests.spark.preloaded_daemon")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.default.parallelism", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("OFF")
    handle = sks.register(session)
    try:
        yield session
    finally:
        handle.close()
        session.stop()
