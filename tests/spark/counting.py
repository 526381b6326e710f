"""A handle that counts without Spark, and the listener of a driver program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from spark_kafka_sink.spark.driver.listener import Handler, MetricsListener
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.reports_to_driver import LOOPBACK, ListenerAddress

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


@contextmanager
def driver_listener(handlers: Mapping[bytes, Handler], host: str = LOOPBACK) -> Iterator[ListenerAddress]:
    """Yields the listener's address."""
    listener = MetricsListener(handlers, host)
    try:
        yield listener.address
    finally:
        listener.stop()
