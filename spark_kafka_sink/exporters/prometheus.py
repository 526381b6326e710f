"""Serves the metrics of a driver to Prometheus."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import math
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exporters.metric_families import (
    FAMILIES,
    LATENCY_TEXT,
    MOST_PARTITIONS,
    Family,
    Kind,
    Snapshot,
    SnapshotReader,
)
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

logger = logging.getLogger(__name__)

_PREFIX: Final = "kafka_sink_"
HISTOGRAM: Final = f"{_PREFIX}ack_latency_seconds"
HISTOGRAM_LABELS: Final = ("topic",)
_STOP_S: Final = 5.0
_MOST_PORT: Final = 65535
_USED_BY: Final = "serve_prometheus()"
MOST_PEERS: Final = 16
"""Connections that are served at once. Others are closed: each takes a thread of the driver."""
PEER_S: Final = 10.0
"""How long a connection may take."""


class DriverCollector:
    """Collects the metrics of a driver, for a `prometheus_client` registry of your own: `registry.register(collector)`.

    Threads: any may collect.

    Args:
        metrics: The result of `register(spark)`.
        most_partitions: The most topic-partitions with their own series. Further ones become sums of their topics, and further
            topics one sum under the topic "other". A tenth as many topics have a histogram.

    Raises:
        InstallationError: prometheus-client is missing.
    """

    def __init__(self, metrics: DeliveryMetrics, most_partitions: int = MOST_PARTITIONS) -> None:
        check_extra("prometheus_client", _USED_BY)
        self._reader = SnapshotReader(metrics, most_partitions, "Prometheus")

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

    metric = HistogramMetricFamily(HISTOGRAM, LATENCY_TEXT, labels=HISTOGRAM_LABELS)
    for topic, counts in shot.committed.ack_latency.items():
        metric.add_metric([topic], list(zip(BOUNDS, accumulate(counts), strict=True)), sum_value=None)
    return metric


BOUNDS: Final = (*(f"{(1 << bucket) / 1000:g}" for bucket in range(LATENCY_BUCKETS - 1)), "+Inf")
"""Upper bounds of the buckets of the histogram, in seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    """Serves a limited number of connections, each for a limited time, because any process that reaches the port may be idle."""

    daemon_threads = True

    def __init__(self, host: str, port: int, app: Callable[..., Iterable[bytes]]) -> None:
        """Raises OSError if it cannot listen there."""
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        self._peers: dict[Any, float] = {}  # sockets, until when
        super().__init__((host, port), _Handler)
        self._app = app
        self._is_local = ipaddress.ip_address(str(self.server_address[0])).is_loopback
        self.set_app(self._checked)

    def _checked(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Refuses another site's page in a browser that made its own name this machine's (DNS rebinding)."""
        if not self._is_local or _is_this_machine(environ.get("HTTP_HOST", "")):
            return self._app(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [b"use localhost or an IP address as the host\n"]

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._peers) >= MOST_PEERS:
            self.shutdown_request(request)
            return
        self._peers[request] = time.monotonic() + PEER_S
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._peers.pop(request, None)

    def service_actions(self) -> None:
        self._end(time.monotonic())

    def server_close(self) -> None:
        super().server_close()
        self._end(math.inf)

    def _end(self, now: float) -> None:
        for peer in [peer for peer, deadline in list(self._peers.items()) if deadline <= now]:
            self._peers.pop(peer, None)
            with contextlib.suppress(OSError):  # it has gone
                peer.shutdown(socket.SHUT_RDWR)  # its thread reads the end

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that has gone."""


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


def _is_this_machine(host: str) -> bool:
    """Returns whether a Host header has an address or localhost: no other site can have these as its name."""
    try:
        name = urllib.parse.urlsplit(f"//{host}").hostname or "localhost"
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


class PrometheusServer:
    """A running exporter. `serve_prometheus` makes it.

    Attributes:
        port: The port that Prometheus scrapes; None if nothing could be served.

    Threads: a daemon thread takes connections, and one for each of at most 16 serves it for at most 10 s. `stop()` may be called
    from any thread, and waits for the first.
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
    """Serves the metrics of this driver at http://host:port/metrics: see [Prometheus](monitoring.md#prometheus).

    A second call with the same port stops the first one's server and takes over the port. If the port cannot be used, or
    deliveries are not counted as on Spark Connect, one warning is logged and nothing is served.

    Args:
        metrics: The result of `register(spark)`.
        port: The port; 0 for any free one.
        host: The address to listen on. "0.0.0.0" lets a Prometheus on another machine scrape it, and everybody else. At a
            loopback address only requests for localhost or an IP address are answered.
        most_partitions: The most topic-partitions with their own series. Further ones become sums of their topics, and further
            topics one sum under the topic "other". A tenth as many topics have a histogram.

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
    if not metrics.available:
        return PrometheusServer(None, None)
    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry()
    registry.register(collector)
    with _lock:
        old = _servers.get(port)
    if old is not None:
        old.stop()
    try:
        server = _Server(host, port, make_wsgi_app(registry))
    except OSError as error:
        logger.warning("metrics are not served to Prometheus: cannot listen on %s:%s: %s", host, port, error)
        return PrometheusServer(None, None)
    thread = threading.Thread(target=server.serve_forever, name="kafka-sink-prometheus", daemon=True)
    thread.start()
    made = PrometheusServer(server, thread)
    assert made.port is not None
    with _lock:
        _servers[made.port] = made
    return made


_lock = threading.Lock()
_servers: dict[int, PrometheusServer] = {}  # those that run in this process, by port
