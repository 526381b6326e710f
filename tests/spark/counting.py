"""A handle that counts without Spark."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics

if TYPE_CHECKING:
    from pyspark import SparkContext


class Context:
    """As much of a SparkContext as counting needs."""

    def __init__(self, master: str = "local[2]", **settings: str) -> None:
        self.master = master
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}

    def accumulator(self, value: Any, param: Any) -> Any:
        return SimpleNamespace(value=value)

    def getConf(self) -> Any:
        return self.settings


def counting(on_refusal: Callable[[], None] = lambda: None, master: str = "local[2]", **settings: str) -> DeliveryMetrics:
    """The settings' names have underscores in place of dots. Close it afterwards."""
    return DeliveryMetrics(cast("SparkContext", Context(master, **settings)), on_refusal)
