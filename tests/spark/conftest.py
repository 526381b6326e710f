"""One Spark session for all tests of spark/: local, two task threads, no user interface."""

from __future__ import annotations

from collections.abc import Iterator

import pyspark
import pytest
from pyspark.sql import SparkSession

import pyspark_kafka_sink
import spark_kafka_sink as sks
from spark_kafka_sink.spark import reports_to_driver
from tests.spark.session import registered_session

# Spark 4.0 knows the format only where it was registered: see pyspark_kafka_sink.
FINDS_SOURCES_ITSELF = hasattr(pyspark_kafka_sink, "DefaultSource")


def pytest_configure(config: pytest.Config) -> None:
    # These leave the socket of each collect() to the garbage collector. Ours are watched on the other versions.
    if pyspark.__version__.startswith(("4.0", "4.1")):
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True)
def _driver_answers_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that waited TIMEOUT_S for the driver program is lost, and a busy machine may take longer to run its thread."""
    monkeypatch.setattr(reports_to_driver, "TIMEOUT_S", 60.0)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with registered_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def metrics(spark: SparkSession) -> Iterator[sks.DeliveryMetrics]:
    """A handle that has counted nothing yet, of the sink registered in `spark`."""
    sks.register(spark).close()  # a test may have left one, which has counted
    handle = sks.register(spark)
    yield handle
    handle.close()
