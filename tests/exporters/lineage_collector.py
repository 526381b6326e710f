"""A collector of OpenLineage's events on the loopback address, which can be slow, or answer nonsense."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from openlineage.client.transport.http import HttpConfig, HttpTransport

WAIT_S = 30
STATES = ("START", "RUNNING", "COMPLETE", "FAIL", "ABORT")


class Collector:
    """Keeps what it receives. `url` is its address."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 201
        self.body = b""
        self.released = threading.Event()
        self.released.set()
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["content-length"])))
                collector.released.wait(WAIT_S)
                with collector._changed:
                    collector.headers.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
                    collector.events.append(event)
                    collector._changed.notify_all()
                self.send_response(collector.status)
                self.send_header("content-length", str(len(collector.body)))
                self.end_headers()
                self.wfile.write(collector.body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def until(self, is_enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Waits until the events are enough, and returns them."""
        with self._changed:
            assert self._changed.wait_for(lambda: is_enough(self.events), WAIT_S), [one["eventType"] for one in self.events]
            return list(self.events)

    def until_state(self, state: str) -> list[dict[str, Any]]:
        return self.until(lambda events: any(one["eventType"] == state for one in events))

    def stop(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_S)


@contextmanager
def running() -> Iterator[Collector]:
    collector = Collector()
    try:
        yield collector
    finally:
        collector.stop()


def transport(url: str, timeout: float = 60.0) -> HttpTransport:
    """Returns a transport that tries once."""
    return HttpTransport(HttpConfig.from_dict({"url": url, "timeout": timeout, "retry": {"total": 0}}))


def check(event: dict[str, Any]) -> None:
    """Fails if an event lacks what OpenLineage's JSON schema requires (spec/OpenLineage.json 2-0-2 and its facets)."""
    assert event["eventType"] in STATES
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert event["schemaURL"].endswith("#/$defs/RunEvent")
    assert event["producer"].startswith("https://")
    uuid.UUID(event["run"]["runId"])
    assert event["job"]["namespace"]
    assert event["job"]["name"]
    facets = [*event["run"]["facets"].values(), *event["job"]["facets"].values()]
    for output in event["outputs"]:
        assert output["namespace"].startswith("kafka://")
        assert output["name"]
        facets += [*output["facets"].values(), *output["outputFacets"].values()]
    for facet in facets:
        assert facet["_producer"].startswith("https://")
        assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")
