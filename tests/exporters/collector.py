"""A stand-in for an OpenTelemetry collector: an HTTP server on the loopback interface that decodes what it gets."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Collector:
    """A running collector. Threads: one for each connection adds to `received`, under the condition.

    url: where metrics are sent. answer: answers a request whose body was read.
    """

    url: str
    answer: Answer
    received: list[ExportMetricsServiceRequest] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self, request: ExportMetricsServiceRequest) -> None:
        with self.changed:
            self.received.append(request)
            self.changed.notify_all()

    def wait_for(self, is_met: Callable[[], bool], timeout_s: float = 30) -> None:
        """Waits until `is_met` after some request. Raises TimeoutError."""
        with self.changed:
            if not self.changed.wait_for(is_met, timeout_s):
                raise TimeoutError(f"not met after {len(self.received)} requests")

    def last(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Returns the newest values of a counter or gauge, by attributes."""
        found: dict[tuple[tuple[str, str], ...], float] = {}
        for request in self.received:
            for metric in (each for of in request.resource_metrics for scope in of.scope_metrics for each in scope.metrics):
                if metric.name == name:
                    for point in metric.sum.data_points or metric.gauge.data_points:
                        attributes = tuple(sorted((each.key, each.value.string_value) for each in point.attributes))
                        found[attributes] = point.as_int if point.HasField("as_int") else point.as_double
        return found


def accepted(handler: BaseHTTPRequestHandler) -> None:
    """Answers as a collector does that has taken everything."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/x-protobuf")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@contextmanager
def collector(answer: Answer = accepted) -> Iterator[Collector]:
    """Yields a collector on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            made.take(ExportMetricsServiceRequest.FromString(body))
            try:
                made.answer(self)
            except OSError:  # the peer no longer waits
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = Collector(f"http://127.0.0.1:{server.server_port}/v1/metrics", answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
