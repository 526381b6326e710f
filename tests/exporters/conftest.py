from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_kafka_sink.spark import reports_to_driver
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from tests.spark.counting import counting
from tests.spark.session import registered_session


@pytest.fixture(autouse=True)
def _driver_answers_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that waited TIMEOUT_S for the driver program is lost, and a busy machine may take longer to run its thread."""
    monkeypatch.setattr(reports_to_driver, "TIMEOUT_S", 60.0)


@pytest.fixture
def metrics() -> Iterator[DeliveryMetrics]:
    made = counting()
    yield made
    made.close()


@pytest.fixture
def uncounted() -> DeliveryMetrics:
    """Metrics as Spark Connect has them."""
    return DeliveryMetrics(None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with registered_session(tmp_path_factory.mktemp("spark")) as session:
        yield session
