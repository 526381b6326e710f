"""Where processes report the failpoints they come to, and wait for word to go on."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from spark_kafka_sink.exactly_once.failpoints import GO

REPORT_DEADLINE_S = 10.0


@dataclass
class Reached:
    """A process that stands at a failpoint until `go`, `fail` or `leave`."""

    name: str
    batch: int
    pid: int
    connection: socket.socket = field(repr=False)

    def go(self) -> None:
        self._answer(GO)

    def fail(self, text: str) -> bool:
        """An exception is raised there. False where nobody is there any more."""
        return self._answer(text)

    def leave(self) -> None:
        """Nobody waits for it any more: it was killed."""
        self.connection.close()

    def _answer(self, text: str) -> bool:
        try:
            self.connection.sendall(f"{text}\n".encode())
        except OSError:
            return False  # it was killed by someone else: Spark kills the workers of a task that it gave up
        finally:
            self.connection.close()
        return True


class FailpointWatch:
    """Hands each failpoint to `reached`, in a thread of its own. `port`: for the environment of those who are watched."""

    def __init__(self, reached: Callable[[Reached], None]) -> None:
        self._reached = reached
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="failpoint watch", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            self._receive(connection)

    def _receive(self, connection: socket.socket) -> None:
        connection.settimeout(REPORT_DEADLINE_S)
        try:
            with connection.makefile("r", encoding="utf-8") as lines:
                report = json.loads(lines.readline())
        except (OSError, ValueError):
            connection.close()  # killed while it reported
            return
        self._reached(Reached(report["name"], report["batch"], report["pid"], connection))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()
