"""What the processes of a soak run use over time: memory, threads and file descriptors; and whether that stays flat."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil

from benchmarks.measure import Role, role_of

EVERY_S = 2.0
# Processes start, connect and fill their caches in the first minute. The second one is what later ones are compared with.
WARM_UP_S, COMPARED_S = 60.0, 120.0
MOST_GROWTH = 1.1
# A broker that restarts leaves a closing connection beside a new one, and the pools of Spark's JVM fill lazily.
MORE_HANDLES = 8
DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Sample:
    """All processes of a stream with one role, at one time.

    seconds: since the start. processes: how many there are. rss_mib, threads, files: of all of them together.
    """

    seconds: float
    stream: str
    role: str
    processes: int
    rss_mib: float
    threads: int
    files: int


def problems(samples: Sequence[Sample]) -> list[str]:
    """Returns what exceeds 1.1 times the peak of the second minute, one text for each. Threads and files may be 8 more."""
    found = []
    for stream, role in dict.fromkeys((sample.stream, sample.role) for sample in samples):
        own = [sample for sample in samples if (sample.stream, sample.role) == (stream, role)]
        before = [sample for sample in own if WARM_UP_S <= sample.seconds < COMPARED_S]
        after = [sample for sample in own if sample.seconds >= COMPARED_S]
        if not before or not after:
            found.append(f"{stream}: no {role} was seen in the second minute, or none later")
            continue
        early, late = max(one.rss_mib for one in before), max(one.rss_mib for one in after)
        if late > early * MOST_GROWTH:
            found.append(f"{stream}: memory of {role} grew from {early:.0f} to {late:.0f} MiB")
        for name in ("threads", "files"):
            early, late = (max(getattr(one, name) for one in part) for part in (before, after))
            if late > early * MOST_GROWTH + MORE_HANDLES:
                found.append(f"{stream}: {name} of {role} grew from {early} to {late}")
    return found


class Sampler:
    """Samples the processes of each stream every 2 s during its `with`. Its own thread writes `samples`; read them after it."""

    def __init__(self, drivers: Mapping[str, int]) -> None:
        """drivers: the process id of each stream's driver program."""
        self.samples: list[Sample] = []
        self._drivers = dict(drivers)
        self._begun = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(EVERY_S):
            for stream, pid in self._drivers.items():
                self.samples += _sampled(round(time.monotonic() - self._begun, 1), stream, pid)


def _sampled(seconds: float, stream: str, pid: int) -> list[Sample]:
    try:
        driver = psutil.Process(pid)
        family = {DRIVER: [driver]} | _by_role(driver.children(recursive=True))
    except psutil.Error:  # it has ended: the run tells why
        return []
    found = []
    for role, processes in family.items():
        count, rss, threads, files = 0, 0.0, 0, 0
        for process in processes:
            try:
                with process.oneshot():
                    own = process.memory_info().rss / 2**20, process.num_threads(), process.num_fds()
            except psutil.Error:
                continue
            count, rss, threads, files = count + 1, rss + own[0], threads + own[1], files + own[2]
        if count:
            found.append(Sample(seconds, stream, role, count, round(rss, 1), threads, files))
    return found


def _by_role(processes: Sequence[psutil.Process]) -> dict[str, list[psutil.Process]]:
    found: dict[str, list[psutil.Process]] = {}
    jvms: set[int] = set()
    for process in processes:
        try:
            role = role_of(process.cmdline())
            is_fork = role is Role.JVM and process.ppid() in jvms  # which is about to become a Python process
        except psutil.Error:
            continue
        if role is Role.JVM and not is_fork:
            jvms.add(process.pid)
        # Processes that plan and commit live for a micro-batch or some more. How many there are at a time is chance.
        if role in (Role.JVM, Role.WORKER) and not is_fork:
            found.setdefault(str(role), []).append(process)
    return found


def keep(path: Path, samples: Sequence[Sample]) -> None:
    """Writes samples as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Sample)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(sample) for sample in samples)
