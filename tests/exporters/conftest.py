from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.spark.metrics import DeliveryMetrics
from tests.spark.counting import counting


@pytest.fixture
def metrics() -> Iterator[DeliveryMetrics]:
    made = counting()
    yield made
    made.close()


@pytest.fixture
def uncounted() -> DeliveryMetrics:
    """Metrics as Spark Connect has them."""
    return DeliveryMetrics(None)
