"""A Spark cluster of one master and some workers, each a process of its own, all on the loopback address.

A local-cluster has one host. Spark never starts a copy of a slow task on the host where the task runs, so it takes two; to Spark
two names of one address are two hosts.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from tests.faults.exactly_once.class_archive import java_options
from tests.kafka.guardian import Guardian
from tests.kafka.ports import free_ports
from tests.waiting import wait_until

CHECKOUT = Path(__file__).parents[3]
SPARK_HOME = Path(pyspark.__file__).parent
ADDRESS = "127.0.0.1"
HOSTS = (ADDRESS, "localhost")
START_DEADLINE_S = 60.0


class StandaloneCluster:
    """Starts in the constructor, ends in `stop()` or at the end of a `with`. Each worker has one core.

    Executors have the workers' environment, and end with them. What Spark prints is in `folder`.
    """

    def __init__(self, folder: Path, hosts: Sequence[str] = HOSTS, *, sees_checkout: bool = True) -> None:
        """hosts: one for each worker. sees_checkout: whether Python finds this checkout on executors."""
        self._folder = folder
        self._sees_checkout = sees_checkout
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []  # that were not killed
        self._started = 0
        self._guardian = Guardian()
        (port,) = free_ports(1)
        self.master = f"spark://{ADDRESS}:{port}"
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._start("master.Master", ADDRESS, "--port", str(port))
            # A worker that finds no master asks again only after many seconds.
            wait_until(lambda: _listens(port), f"a Spark master at port {port}; see {folder}", START_DEADLINE_S)
            for host in hosts:
                self.add_worker(host)
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def settings(self) -> dict[str, str]:
        """Of a driver that begins when it has all workers."""
        return {
            "spark.cores.max": str(len(self._workers)),
            "spark.executor.memory": "512m",
            "spark.scheduler.minRegisteredResourcesRatio": "1",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_DEADLINE_S:.0f}s",
        }

    def add_worker(self, host: str = ADDRESS) -> int:
        """Returns its pid. The master knows it a few seconds later."""
        self._started += 1
        work = self._folder / f"worker-{self._started}"
        process = self._start("worker.Worker", host, "--cores", "1", "--memory", "1g", "--work-dir", str(work), self.master)
        self._workers.append(process)
        return process.pid

    def kill_worker(self, pid: int) -> None:
        """As when its machine goes: SIGKILL to it, to its executors, and to their Python."""
        (process,) = (each for each in self._workers if each.pid == pid)
        self._workers.remove(process)
        self._kill(process)

    def executors(self) -> Mapping[str, psutil.Process]:
        """Executor id -> its Java, of those that run. The ids are those of one application: run one at a time."""
        workers = [each.pid for each in self._workers]
        return {name: executor for worker in workers for executor in _family(worker) if (name := _executor_id(executor))}

    def worker_of(self, executor: psutil.Process) -> int:
        """The pid of the worker that started it."""
        workers = {each.pid for each in self._workers}
        return next(pid for parent in executor.parents() if (pid := int(parent.pid)) in workers)

    def _start(self, name: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", host]
        with (self._folder / f"{name}-{host}.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environment(),
                start_new_session=True,
            )
        self._processes.append(process)
        self._guardian.watch_process(process.pid)
        return process

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
        ours = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
        inherited = {name: value for name, value in os.environ.items() if self._sees_checkout or name not in ours}
        return {
            **inherited,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": ADDRESS,  # where the web pages are, which cannot be turned off
            "SPARK_LOCAL_DIRS": str(self._folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
            **({"PYTHONPATH": path} if self._sees_checkout else {}),
        }

    def stop(self) -> None:
        """Kills workers with their executors, and the master; may be called again."""
        for process in reversed(self._processes[:]):
            self._kill(process)
        self._workers.clear()
        self._guardian.close()

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        for each in _family(process.pid):
            _kill(each)
        process.wait(30)
        self._guardian.forget_process(process.pid)
        self._processes.remove(process)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((ADDRESS, port), 1).close()
    except OSError:
        return False
    return True


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _executor_id(process: psutil.Process) -> str | None:
    try:
        command = process.cmdline()
    except psutil.NoSuchProcess:
        return None
    name = "--executor-id"
    return command[command.index(name) + 1] if name in command else None


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        pass
