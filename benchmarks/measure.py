"""Cost of a run: wall time, CPU time of Spark's JVM and Python processes, and memory of its Python workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from threading import Event, Thread

import psutil

from benchmarks.results import Run

SAMPLE_EVERY_S, READ_EVERY_S = 0.1, 1.0
SPARK = "org.apache.spark.deploy.SparkSubmit"
TASK_WORKER = ["-m", "pyspark.daemon", "pyspark.worker"]


def task_workers() -> list[psutil.Process]:
    """Returns the Python workers that run this program's tasks. A daemon with the same command line forks them.

    Spark's driver starts more Python processes, to plan and to commit. Their last argument is another module.
    """
    family = {process.pid: process for process in psutil.Process(os.getpid()).children(recursive=True)}
    daemons = {pid for pid, process in family.items() if _is_task_python(process)}
    return [family[pid] for pid in daemons if family[pid].ppid() in daemons]


def _is_task_python(process: psutil.Process) -> bool:
    try:
        return bool(process.cmdline()[1:] == TASK_WORKER)
    except psutil.Error:  # the process has ended in the meantime
        return False


class Role(StrEnum):
    """What a process of Spark in local mode does. JVM: driver and executor. PLANNER: plans and commits writes, for the driver."""

    JVM = "JVM"
    WORKER = "worker"
    PLANNER = "planner"


# Process id and start -> its role and its CPU seconds, user and system.
CpuTimes = Mapping[tuple[int, float], tuple[Role, float]]


def cpu_times() -> CpuTimes:
    """Returns what each living process of the Spark below this process has taken since it started."""
    found = {}
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            role, times = role_of(process.cmdline()), process.cpu_times()
        except psutil.Error:  # the process has ended in the meantime
            continue
        if role is not None:
            found[process.pid, process.create_time()] = role, float(times.user + times.system)
    return found


def role_of(command: Sequence[str]) -> Role | None:
    """Returns what a process of Spark does, from its command line; None for another process."""
    if SPARK in command:
        return Role.JVM
    if command[1:] == TASK_WORKER:
        return Role.WORKER
    return Role.PLANNER if command[1:3] == TASK_WORKER[:2] else None


class CpuMeter:
    """Measures the CPU time of Spark's processes during its `with`, including processes that end in it.

    Spark's daemon ignores its dead children, so the system does not add their time to the daemon's. Each process is therefore
    read every second. Spark ends a worker when it has been idle for a minute, so its last reading is complete.
    """

    def __init__(self) -> None:
        self._before: CpuTimes = {}
        self._last: dict[tuple[int, float], tuple[Role, float]] = {}
        self._done = Event()
        self._thread = Thread(target=self._read, name="cpu-meter", daemon=True)

    def __enter__(self) -> CpuMeter:
        self._before = cpu_times()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._last.update(cpu_times())

    def seconds(self, role: Role) -> float:
        """Returns the CPU seconds of all processes of a role. Call it after the `with`."""
        return spent(self._before, self._last, role)

    def _read(self) -> None:
        while not self._done.wait(READ_EVERY_S):
            self._last.update(cpu_times())


def spent(before: CpuTimes, last: CpuTimes, role: Role) -> float:
    """Returns the CPU seconds between two readings. A process that only the first has was idle until it ended."""
    return sum(seconds - before.get(key, (role, 0.0))[1] for key, (its, seconds) in last.items() if its == role)


def timed(rows: int, run: Callable[[], None]) -> Run:
    """Runs it once. Measures the wall time, and the CPU time of Spark's processes."""
    with CpuMeter() as cpu:
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
    jvm, workers, planners = (cpu.seconds(role) for role in Role)
    return Run(rows, seconds, workers, jvm_s=jvm, planners_s=planners)


class MemorySampler:
    """Samples the resident set of every worker each 100 ms during its `with`, in its own thread.

    Only the thread writes `peak`. Read it after the `with`.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._done = Event()
        self._thread = Thread(target=self._sample, name="memory-sampler", daemon=True)

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_EVERY_S):
            for worker in task_workers():
                try:
                    self.peak = max(self.peak, worker.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
