"""Serves the metrics of a driver to Prometheus."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exporters.families import (
    BOUNDS_S,
    FAMILIES,
    LATENCY_TEXT,
    MOST_PARTITIONS,
    Family,
    Kind,
    Snapshot,
    SnapshotReader,
)
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.spark.metrics import DeliveryMetrics

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.metrics_core import Metric

logger = logging.getLogger(__name__)

_PREFIX: Final = "kafka_sink_"
_STOP_S: Final = 5.0
_MOST_PORT: Final = 65535
_USED_BY: Final = "serve_prometheus()"


class DriverCollector:
    """Collects the metrics of a driver, for a `prometheus_client` registry of your own: `registry.register(collector)`.

    Threads: any may collect.

    Args:
        metrics: The result of `register(spark)`.
        most_partitions: The most topic-partitions with their own series. With more, topics become sums under
            `partition="all"`, those with the most partitions first. With more topics than that, those with the most records
            keep their series, and the others become one sum under `topic="other"`. A tenth as many topics have a histogram.

    Raises:
        InstallationError: prometheus-client is missing.
    """

    def __init__(self, metrics: DeliveryMetrics, most_partitions: int = MOST_PARTITIONS) -> None:
        check_extra("prometheus_client", _USED_BY)
        self._reader = SnapshotReader(metrics, most_partitions, "Prometheus")

    @property
    def is_available(self) -> bool:
        """Whether deliveries are counted: not on Spark Connect."""
        return self._reader.is_available

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics as they are now; none if deliveries are not counted."""
        shot = self._reader.read()
        if shot is None:
            return
        for family in FAMILIES:
            yield _metric(family, shot)
        yield _latencies(shot)


def prometheus_name(family: Family) -> str:
    """Returns the name as Prometheus has it, with unit and `_total`."""
    total = "_total" if family.kind is Kind.COUNTER else ""
    unit = f"_{family.unit}" if family.unit in ("seconds", "bytes") else ""
    return _PREFIX + family.name + unit + total


def _metric(family: Family, shot: Snapshot) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    cls = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    # The library itself adds _total to a counter's name.
    metric = cls(prometheus_name(family).removesuffix("_total"), family.text, labels=family.labels)
    for labels, value in family.values(shot):
        metric.add_metric(list(labels), value)
    return metric


def _latencies(shot: Snapshot) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    metric = HistogramMetricFamily(f"{_PREFIX}ack_latency_seconds", LATENCY_TEXT, labels=["topic"])
    for topic, counts in shot.committed.ack_latency.items():
        metric.add_metric([topic], list(zip(_BOUNDS, accumulate(counts), strict=True)), sum_value=None)
    return metric


_BOUNDS: Final = (*(f"{bound:g}" for bound in BOUNDS_S), "+Inf")


class PrometheusServer:
    """A running exporter. `serve_prometheus` makes it.

    Attributes:
        port: The port that Prometheus scrapes; None if nothing could be served.

    Threads: a daemon thread of `prometheus_client` serves. `stop()` may be called from any thread, and waits for it.
    """

    def __init__(self, server: WSGIServer | None, thread: threading.Thread | None) -> None:
        """server, thread: None if nothing is served."""
        self.port = None if server is None else int(server.server_port)
        self._server = server
        self._thread = thread

    def __repr__(self) -> str:
        return "PrometheusServer(nothing is served)" if self.port is None else f"PrometheusServer(port={self.port})"

    def stop(self) -> None:
        """Closes the port. A second call does nothing."""
        with _lock:
            server, self._server = self._server, None
            if self.port is not None and _servers.get(self.port) is self:
                del _servers[self.port]
        if server is not None and self._thread is not None:
            server.shutdown()
            server.server_close()
            self._thread.join(_STOP_S)


def serve_prometheus(
    metrics: DeliveryMetrics,
    port: int = 9404,
    host: str = "127.0.0.1",
    *,
    most_partitions: int = MOST_PARTITIONS,
) -> PrometheusServer:
    """Serves the metrics of this driver at http://host:port/metrics.

    A second call with the same port stops the first one's server and takes over the port. So you can run a cell of a notebook
    again, or go on with a new Spark session.

    If the port cannot be used, or deliveries are not counted as on Spark Connect, one warning is logged and nothing is served, so
    that the program goes on.

    Args:
        metrics: The result of `register(spark)`.
        port: The port; 0 for any free one.
        host: The address to listen on. "0.0.0.0" lets a Prometheus on another machine scrape it, and everybody else.
        most_partitions: The most topic-partitions with their own series. With more, topics become sums under
            `partition="all"`, those with the most partitions first. With more topics than that, those with the most records
            keep their series, and the others become one sum under `topic="other"`. A tenth as many topics have a histogram.

    Returns:
        The server, with its `port`, and `stop()`.

    Raises:
        InstallationError: prometheus-client is missing.
        UsageError: The port is not a number from 0 to 65535.
    """
    if type(port) is not int or not 0 <= port <= _MOST_PORT:
        raise UsageError(
            f"serve_prometheus: port must be an integer from 0 to {_MOST_PORT}, and it is {port!r}; 0 takes any free port"
        )
    collector = DriverCollector(metrics, most_partitions)
    if not collector.is_available:
        return PrometheusServer(None, None)
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(collector)
    with _lock:
        old = _servers.get(port)
    if old is not None:
        old.stop()
    try:
        made = PrometheusServer(*start_http_server(port, host, registry))
    except OSError as error:
        logger.warning("metrics are not served to Prometheus: cannot listen on %s:%s: %s", host, port, error)
        return PrometheusServer(None, None)
    assert made.port is not None
    with _lock:
        _servers[made.port] = made
    return made


_lock = threading.Lock()
_servers: dict[int, PrometheusServer] = {}  # those that run in this process, by port
