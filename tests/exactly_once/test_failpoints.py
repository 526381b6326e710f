"""Failpoints are reported to the test that asked for them, and to nobody else."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from spark_kafka_sink.exactly_once.failpoints import VARIABLE, FailpointError, reach


class Watcher:
    """Answers one failpoint with `answer`; None closes the connection instead."""

    def __init__(self, answer: str | None) -> None:
        self.reports: list[dict[str, object]] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("r") as lines:
            self.reports.append(json.loads(lines.readline()))
            if self._answer is not None:
                connection.sendall(f"{self._answer}\n".encode())

    def close(self) -> None:
        self._thread.join(10)
        self._listener.close()


@pytest.fixture
def watcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watcher]:
    made = Watcher(request.param)
    monkeypatch.setenv(VARIABLE, str(made.port))
    yield made
    made.close()


@pytest.mark.parametrize("watcher", ["go"], indirect=True)
def test_a_failpoint_says_who_came_where_and_goes_on(watcher: Watcher) -> None:
    reach("prepared.after", batch=3)
    assert watcher.reports == [{"name": "prepared.after", "batch": 3, "pid": os.getpid()}]


@pytest.mark.parametrize(
    ("watcher", "why"),
    [("told to fail", r"flush\.before: told to fail"), (None, "the test that watches the failpoints has gone")],
    indirect=["watcher"],
)
def test_a_failpoint_fails_when_the_test_says_so_or_has_gone(watcher: Watcher, why: str) -> None:
    with pytest.raises(FailpointError, match=why):
        reach("flush.before")


@pytest.mark.parametrize("port", ["1", "nonsense"])
def test_a_variable_that_names_no_test_is_said(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, port)
    with pytest.raises(FailpointError, match=f"{VARIABLE}={port}.*unset it"):
        reach("flush.before")


def test_without_the_variable_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("somebody was asked"))
    reach("flush.before")
