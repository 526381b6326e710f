"""Cost of a run: wall time, CPU time of Spark's JVM and Python processes, and memory of its Python workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

import psutil

from benchmarks.results import Run

SAMPLE_EVERY_S = 0.1
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


@dataclass(frozen=True, slots=True)
class SparkCpu:
    """CPU seconds, user and system, of the processes of a Spark in local mode since they started.

    jvm: driver and executor, which are one process. workers: the Python processes that run tasks. planners: the Python
    processes that plan and commit a write; they belong to the driver.
    """

    jvm: float
    workers: float
    planners: float

    def since(self, before: SparkCpu) -> SparkCpu:
        return SparkCpu(self.jvm - before.jvm, self.workers - before.workers, self.planners - before.planners)


def spark_cpu() -> SparkCpu:
    """Returns what the Spark below this process has taken so far."""
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if SPARK in process.cmdline():
                return _spark_cpu(process)
        except psutil.NoSuchProcess:
            continue
    raise RuntimeError("Spark's JVM is not among the children of this process")


def _spark_cpu(jvm: psutil.Process) -> SparkCpu:
    workers = planners = 0.0
    for child in jvm.children():
        if _is_task_python(child):
            workers += family_cpu(child)
        else:
            planners += family_cpu(child)
    times = jvm.cpu_times()
    return SparkCpu(times.user + times.system, workers, planners)


def family_cpu(parent: psutil.Process) -> float:
    """Returns the CPU seconds of a process and of all children that it ever started, dead ones too. 0.0: it has ended.

    A parent's own figures include children when it has reaped them. A child that dies during the reading would be missed or
    counted twice, so the reading is repeated until no child has died.
    """
    while True:
        try:
            before = parent.cpu_times()
            alive = sum(_own_cpu(child) for child in parent.children())
            after = parent.cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        if _of_reaped(before) == _of_reaped(after):
            return float(after.user + after.system + _of_reaped(after) + alive)


def _own_cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _of_reaped(times: Any) -> float:
    return float(times.children_user + times.children_system)


def timed(rows: int, run: Callable[[], None]) -> Run:
    """Runs it once. Wall time, and the CPU time of Spark's processes."""
    before = spark_cpu()
    started = time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    spent = spark_cpu().since(before)
    return Run(rows, seconds, spent.workers, jvm_s=spent.jvm, planners_s=spent.planners)


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
