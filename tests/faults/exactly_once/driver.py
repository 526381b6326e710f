"""A driver of queries as a process of its own, that a test watches, kills, pauses and resumes."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from spark_kafka_sink.exactly_once.steps import VARIABLE
from tests.faults.exactly_once.class_archive import class_archive
from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.step_watch import Reached, StepWatch
from tests.kafka.guardian import Guardian

CHECKOUT = Path(__file__).parents[3]
EVENT_DEADLINE_S = 150.0
LOCAL = "local[2,8]"  # two tasks at a time, each tried 8 times
EXECUTORS = "local-cluster[2,1,1024]"

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.files.openCostInBytes": str(128 << 20),  # a task for each file
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.task.maxFailures": "8",
    "spark.excludeOnFailure.enabled": "false",
}


def java_options() -> dict[str, str]:
    """Of drivers and executors, which live for seconds."""
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:SharedArchiveFile={class_archive()}"
    return {"spark.driver.extraJavaOptions": options, "spark.executor.extraJavaOptions": options}


@dataclass(frozen=True)
class Said:
    """What the driver says of its queries: ready, done, failed. facts: what else its line holds."""

    event: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Ended:
    """The driver's process is gone."""

    code: int


Event = Reached | Said | Ended


class Driver:
    """Starts in the constructor; `ready()` waits until it takes queries. The thread that made it calls its methods."""

    def __init__(
        self,
        log: Path,
        master: str = LOCAL,
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """log: where what Spark prints goes. environment: more variables of all its processes. settings: more of Spark's."""
        self.log = log
        self.master = master
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._loose = False
        self._guardian = Guardian()
        self._watch = StepWatch(self._reached)
        # Executors of a cluster that was there before have nothing of the driver's environment.
        watched = {f"spark.executorEnv.{VARIABLE}": str(self._watch.port)}
        all_settings = {**SETTINGS, "spark.master": master, **java_options(), **watched, **(settings or {})}
        self._process = self._start(all_settings, environment or {})
        self._guardian.watch_process(self._process.pid)
        self._reader = threading.Thread(target=self._read, name="driver's events", daemon=True)
        self._reader.start()
        self._jvm: psutil.Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _start(self, settings: Mapping[str, str], more: Mapping[str, str]) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [more.get("PYTHONPATH"), str(CHECKOUT), os.environ.get("PYTHONPATH")]))
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.faults.exactly_once.driver_program", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.log.parent,  # Spark makes folders where it runs
                env={**os.environ, **python, **more, "PYTHONPATH": path, VARIABLE: str(self._watch.port)},
                start_new_session=True,
            )

    def _reached(self, reached: Reached) -> None:
        if self._loose:
            reached.go()
        else:
            self._events.put(reached)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._events.put(_said(line))
        self._events.put(Ended(self._process.wait()))

    def ready(self) -> Self:
        """May be called again."""
        if self._jvm is None:
            event = self.next()
            assert isinstance(event, Said), self.explain(f"the driver did not start: {event}")
            assert event.event == "ready", self.explain(f"the driver did not start: {event}")
            self._jvm = psutil.Process(event.facts["jvm"])
            self._guardian.watch_process(self._jvm.pid)
        return self

    def run(self, query: Query) -> None:
        """What comes of it are events."""
        self.ready()
        assert self._process.stdin is not None
        self._process.stdin.write(query.as_json() + "\n")
        self._process.stdin.flush()

    def next(self, deadline_s: float = EVENT_DEADLINE_S) -> Event:
        """Raises TimeoutError with the tail of its log."""
        try:
            return self._events.get(timeout=deadline_s)
        except queue.Empty:
            raise TimeoutError(self.explain(f"nothing came from the driver in {deadline_s:g} s")) from None

    @property
    def jvm(self) -> psutil.Process:
        assert self._jvm is not None, "not ready yet"
        return self._jvm

    def executor_of(self, worker: int) -> psutil.Process:
        """The Java process whose Python worker has the pid; the driver's own with a local master."""
        return next(parent for parent in psutil.Process(worker).parents() if parent.name() == "java")

    def kill(self) -> None:
        """SIGKILL to the driver's Java and Python and to executors. Python workers live on until they notice."""
        family = self._family()
        self._loose = True
        for process in family:
            _signal(process, signal.SIGKILL)
        self._process.wait(30)
        self._let_go()

    def crash(self) -> None:
        """As when its machine goes: SIGKILL to Python workers as well."""
        workers = self.jvm.children(recursive=True)
        self.kill()
        for worker in workers:
            _signal(worker, signal.SIGKILL)
        _, alive = psutil.wait_procs(workers, 30)
        assert not alive, alive

    def pause(self) -> None:
        """SIGSTOP to Java and Python of the driver; Python workers stop when they reach a step, or wait for Java."""
        for process in self._family():
            _signal(process, signal.SIGSTOP)

    def resume(self) -> None:
        for process in self._family():
            _signal(process, signal.SIGCONT)

    def _family(self) -> list[psutil.Process]:
        try:
            driver = psutil.Process(self._process.pid)
            return [driver, *(child for child in driver.children(recursive=True) if child.name() in {"java", "bash"})]
        except psutil.NoSuchProcess:
            return []

    def _let_go(self) -> None:
        """Whoever stands at a step goes on: what a dead driver's processes still do comes beside its successor's work."""
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return
            if isinstance(event, Reached):
                event.go()

    def explain(self, message: str, lines: int = 40) -> str:
        tail = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([message, "--- the driver's log ends with:", *tail])

    def stop(self) -> None:
        """Kills whatever is left; may be called again."""
        self.kill()
        self._reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                _closed(pipe)
        self._watch.close()
        self._guardian.close()


def _said(line: str) -> Said:
    """What is no event is a failure of the query: who waits for events must not wait in vain."""
    try:
        facts = json.loads(line)
        return Said(facts.pop("event"), facts)
    except ValueError:
        return Said("failed", {"text": f"this is no event: {line}"})


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        pass


def _closed(pipe: Any) -> None:
    try:
        pipe.close()
    except BrokenPipeError:
        pass  # what it would still say nobody reads
