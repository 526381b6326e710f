"""Cost of a run: wall time, and CPU time and memory of Spark's Python workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Event, Thread

import psutil

from benchmarks.results import Run

SAMPLE_EVERY_S = 0.1
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


def _cpu_by_worker() -> dict[int, float]:
    times = {}
    for worker in task_workers():
        try:
            spent = worker.cpu_times()
        except psutil.NoSuchProcess:
            continue
        times[worker.pid] = spent.user + spent.system
    return times


def timed(rows: int, run: Callable[[], None]) -> Run:
    """Runs it once. CPU time is that of the workers alive at the end, which Spark keeps for about a minute."""
    before = _cpu_by_worker()
    started = time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    spent = sum(cpu - before.get(pid, 0.0) for pid, cpu in _cpu_by_worker().items())
    return Run(rows, seconds, spent)


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
