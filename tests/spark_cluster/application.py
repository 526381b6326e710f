"""A submitted program, and what Spark says of its executors while it runs and afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.faults.exactly_once.standalone import ADDRESS
from tests.kafka.guardian import Guardian

REST_TIMEOUT_S = 20.0
DRIVER = "driver"


@dataclass(frozen=True)
class Executor:
    """An executor as Spark's REST API describes it."""

    id: str
    is_active: bool
    active_tasks: int
    completed_tasks: int


class Application:
    """The process of spark-submit and its children. Leaving the `with` kills what is left of them."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, ui_port: int) -> None:
        self._process = process
        self._log = log
        self._url = f"http://{ADDRESS}:{ui_port}/api/v1/applications"
        self._guardian = Guardian()
        self._guardian.watch_process(process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            driver = psutil.Process(self._process.pid)
            for process in [driver, *driver.children(recursive=True)]:
                try:
                    process.send_signal(signal.SIGKILL)
                except psutil.NoSuchProcess:
                    pass
        self._process.wait(30)
        self._guardian.forget_process(self._process.pid)
        self._guardian.close()

    def executors(self) -> dict[str, Executor]:
        """All that there were, by their ids, without the driver. None before Spark's page is there."""
        self.check()
        try:
            (application,) = self._get("")
            found = self._get(f"/{application['id']}/allexecutors")
        except (OSError, ValueError):
            return {}
        return {each.id: each for each in map(_executor, found) if each.id != DRIVER}

    def active(self) -> dict[str, Executor]:
        return {each.id: each for each in self.executors().values() if each.is_active}

    def check(self) -> None:
        """Raises AssertionError with the end of the log if the program has failed."""
        assert self._process.poll() in {None, 0}, self.explain(f"spark-submit ended with {self._process.poll()}")

    def join(self, deadline_s: float) -> None:
        """Waits for the end of the program, which must succeed."""
        try:
            self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(self.explain(f"the program did not end within {deadline_s:g} s")) from None
        self.check()

    def explain(self, message: str, lines: int = 60) -> str:
        return "\n".join([message, *self._log.read_text(errors="replace").splitlines()[-lines:]])

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}{path}", timeout=REST_TIMEOUT_S) as answer:
            return json.load(answer)


def _executor(found: Any) -> Executor:
    return Executor(found["id"], found["isActive"], found["activeTasks"], found["completedTasks"])


@dataclass(frozen=True)
class Events:
    """What the event log says.

    added: the ids of executors. removed: Spark's reason by the id of each. wrote: the executors whose tasks of a query succeeded,
    by the query's id. lost: how many tasks of a query ended with their executor, by the query's id.
    """

    added: list[str]
    removed: dict[str, str]
    wrote: dict[str, set[str]]
    lost: dict[str, int]

    @classmethod
    def read(cls, folder: Path) -> Events:
        """folder: that of the log of one application, which has ended."""
        events = cls([], {}, {}, {})
        queries = dict[int, str]()
        for event in _lines(folder):
            match event:
                case {"Event": "SparkListenerExecutorAdded", "Executor ID": executor}:
                    events.added.append(executor)
                case {"Event": "SparkListenerExecutorRemoved", "Executor ID": executor, "Removed Reason": reason}:
                    events.removed[executor] = reason
                case {
                    "Event": "SparkListenerStageSubmitted",
                    "Stage Info": {"Stage ID": stage},
                    "Properties": {"sql.streaming.queryId": query},
                }:
                    queries[stage] = query
                case {"Event": "SparkListenerTaskEnd", "Stage ID": stage} if stage in queries:
                    events._add_task(queries[stage], event["Task Info"]["Executor ID"], event["Task End Reason"]["Reason"])
        return events

    def _add_task(self, query: str, executor: str, reason: str) -> None:
        if reason == "Success":
            self.wrote.setdefault(query, set()).add(executor)
        elif reason == "ExecutorLostFailure":
            self.lost[query] = self.lost.get(query, 0) + 1


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.iterdir():
        if not path.name.startswith("."):  # Hadoop's checksums
            yield from (json.loads(line) for line in path.read_text().splitlines())
