"""One Spark session for all tests of spark/: local, two task threads, no user interface."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pyspark_kafka_sink
import spark_kafka_sink as sks

ROOT = Path(__file__).parents[2]
# Spark 4.0 knows the format only where it was registered: see pyspark_kafka_sink.
FINDS_SOURCES_ITSELF = hasattr(pyspark_kafka_sink, "DefaultSource")


def pytest_configure(config: pytest.Config) -> None:
    if FINDS_SOURCES_ITSELF:
        return
    # PySpark 4.0 leaves the socket of each collect() to the garbage collector. Ours are watched on the other versions.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Python workers find the package in the checkout and run this interpreter (PYSPARK_PYTHON, tests/conftest.py)."""
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
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.default.parallelism", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("OFF")
    handle = sks.register(session)
    yield session
    handle.close()
    session.stop()


@pytest.fixture
def metrics(spark: SparkSession) -> Iterator[sks.DeliveryMetrics]:
    """A handle that has counted nothing yet, of the sink registered in `spark`."""
    sks.register(spark).close()  # a test may have left one, which has counted
    handle = sks.register(spark)
    yield handle
    handle.close()
