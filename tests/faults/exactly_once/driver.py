"""A driver of queries as a process of its own, that a test watches, kills, pauses and resumes."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from pyspark import find_spark_home

from spark_kafka_sink.exactly_once.failpoints import VARIABLE
from tests.faults.exactly_once import class_archive
from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.failpoint_watch import FailpointWatch, Reached
from tests.kafka.guardian import Guardian
from tests.waiting import wait_until

CHECKOUT = Path(__file__).parents[3]
EVENT_DEADLINE_S = 150.0
WORKERS_DEADLINE_S = 30.0
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
    "spark.python.daemon.module": "tests.spark.preloaded_daemon",
    "spark.excludeOnFailure.enabled": "false",
}


def java_options() -> dict[str, str]:
    """Of drivers and executors, which live for seconds."""
    options = class_archive.java_options()
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
        self._watch = FailpointWatch(self._reached)
        # Executors of a cluster that was there before have nothing of the driver's environment.
        watched = {f"spark.executorEnv.{VARIABLE}": str(self._watch.port)}
        all_settings = {**SETTINGS, "spark.master": master, **java_options(), **watched, **(settings or {})}
        self._process = self._start(all_settings, environment or {})
        self._guardian.watch_process(self._process.pid)
        self._reader = threading.Thread(target=self._read, name="driver's events", daemon=True)
        self._reader.start()
        self._jvm: psutil.Process | None = None
        self._application: str | None = None
        self._workers: list[psutil.Process] = []  # that have outlived the driver

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
            self._application = event.facts["application"]
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
    def pid(self) -> int:
        return self._process.pid

    @property
    def jvm(self) -> psutil.Process:
        assert self._jvm is not None, "not ready yet"
        return self._jvm

    def executor_of(self, worker: int) -> psutil.Process:
        """The Java process whose Python worker has the pid; the driver's own with a local master."""
        return next(parent for parent in psutil.Process(worker).parents() if parent.name() == "java")

    def kill(self) -> None:
        """SIGKILL to the driver's Java and Python, to executors, and to the daemons that have forked Python's workers.

        Daemons would end the workers; so these, and the process that commits, live on until they have something to say to Java.
        """
        family, daemons = self._family(), self._daemons()
        self._loose = True
        for daemon in daemons:
            _signal(daemon, signal.SIGSTOP)  # it forks nobody from here on
        self._workers += [worker for daemon in daemons for worker in _children(daemon)]
        for process in (*daemons, *family):
            _signal(process, signal.SIGKILL)
        self._process.wait(30)
        if family:
            self._forget()
        self._let_go()

    def _forget(self) -> None:
        """What is watched is dead, and its numbers may soon be others'."""
        self._guardian.forget_process(self._process.pid)
        if self._jvm is not None:
            self._guardian.forget_process(self._jvm.pid)

    def crash(self) -> None:
        """As when its machine goes: SIGKILL to Python workers as well."""
        self.kill()
        for worker in self._workers:
            _signal(worker, signal.SIGKILL)
        self.wait_for_workers()

    def wait_for_workers(self) -> None:
        """Until those that a killed driver has left behind are gone; TimeoutError where one is not."""
        wait_until(lambda: not any(map(_is_alive, self._workers)), f"the end of {self._workers}", WORKERS_DEADLINE_S)

    def pause(self) -> None:
        """SIGSTOP to Java and Python of the driver; Python workers stop when they reach a failpoint, or wait for Java."""
        for process in self._family():
            _signal(process, signal.SIGSTOP)

    def resume(self) -> None:
        for process in self._family():
            _signal(process, signal.SIGCONT)

    def _family(self) -> list[psutil.Process]:
        if self._process.poll() is not None:
            return []  # the number may be another's by now
        try:
            driver = psutil.Process(self._process.pid)
        except psutil.NoSuchProcess:
            return []
        return [driver, *(child for child in _children(driver) if _name(child) in {"java", "bash"})]

    def _daemons(self) -> list[psutil.Process]:
        """One for each kind of Python process that Java has asked for, of the driver and of executors."""
        java = [process for process in self._family() if _name(process) == "java"]
        return [child for each in java for child in _children(each, recursive=False) if _name(child) not in {"java", "bash"}]

    def _let_go(self) -> None:
        """Whoever stands at a failpoint goes on: what a dead driver's processes still do comes beside its successor's work."""
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return
            if isinstance(event, Reached):
                event.go()

    def explain(self, message: str) -> str:
        tail = self.log.read_text(errors="replace").splitlines()[-40:]
        return "\n".join([message, "--- the driver's log ends with:", *tail])

    def stop(self) -> None:
        """Kills whatever is left; may be called again."""
        self.crash()
        self._reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                _closed(pipe)
        self._watch.close()
        self._guardian.close()
        self._remove_executors_folders()

    def _remove_executors_folders(self) -> None:
        """A local-cluster makes them below Spark itself: none of its settings says where."""
        if self._application is None or not self.master.startswith("local-cluster"):
            return
        work = Path(find_spark_home._find_spark_home()) / "work"
        shutil.rmtree(work / self._application, ignore_errors=True)
        try:
            work.rmdir()
        except OSError:
            pass  # there is more in it, or it is gone


def _said(line: str) -> Said:
    """What is no event is a failure of the query: who waits for events must not wait in vain."""
    try:
        facts = json.loads(line)
        return Said(facts.pop("event"), facts)
    except ValueError:
        return Said("failed", {"text": f"this is no event: {line}"})


def _children(process: psutil.Process, recursive: bool = True) -> list[psutil.Process]:
    try:
        return list(process.children(recursive))
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _is_alive(process: psutil.Process) -> bool:
    """Of one that has ended nothing is left but its number, until whoever is its parent now asks for that."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


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


class Fleet:
    """Drivers, which take long to start: those that nobody killed are used again.

    Takes part in one thread only. folder: takes the drivers' logs. environment, settings: see Driver."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._settings = settings
        self._numbers = count(1)
        self._idle: list[Driver] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._idle:
            self._idle.pop().stop()

    def prepare(self, master: str = LOCAL) -> None:
        """One will be taken soon: it starts now, beside what else is done."""
        if all(driver.master != master for driver in self._idle):
            self._idle.append(self._start(master))

    def take(self, master: str = LOCAL) -> Driver:
        """One that runs nothing, or a new one, which may not be ready yet."""
        for driver in self._idle:
            if driver.master == master:
                self._idle.remove(driver)
                return driver
        return self._start(master)

    def _start(self, master: str) -> Driver:
        folder = self._folder / f"driver-{next(self._numbers)}"
        folder.mkdir()
        return Driver(folder / "log", master, self._environment, self._settings)

    def give_back(self, driver: Driver) -> None:
        """It has run its query to the end."""
        self._idle.append(driver)
