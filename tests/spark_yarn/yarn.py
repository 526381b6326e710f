"""A YARN cluster of one resource manager and one node manager, on the loopback address, and the containers in it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from tests.kafka.class_archive import QUICK_START
from tests.kafka.jars import jars
from tests.kafka.java import java
from tests.waiting import wait_until

START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0
READY = "ready"

SETTINGS: Final = {
    "fs.defaultFS": "file:///",
    "yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler",
    "yarn.scheduler.minimum-allocation-mb": "1",  # so that a container's limit is what Spark asks for
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "8192",
    "yarn.minicluster.control-resource-monitoring": "true",  # otherwise it measures no container
    "yarn.nodemanager.pmem-check-enabled": "true",
    "yarn.nodemanager.resource.memory.enforced": "false",  # by cgroups, to which YARN would leave it
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.container-monitor.interval-ms": "500",
    # A disk that is nearly full would be taken for a bad one.
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.delete.debug-delay-sec": "0",
}
_CONTAINER: Final = re.compile(r"container_(?:e\d+_)?\d+_(?P<application>\d+)_(?P<attempt>\d+)_(?P<number>\d+)")


@dataclass(frozen=True)
class Container:
    """The Java of a container. attempt: of its application, counts from 1. is_master: runs the application master."""

    id: str
    attempt: int
    is_master: bool
    java: psutil.Process

    @property
    def python(self) -> list[psutil.Process]:
        try:
            return list(self.java.children(recursive=True))
        except psutil.NoSuchProcess:
            return []


class YarnCluster:
    """Starts in the constructor, ends in `stop()` or at the end of a `with`. Its files and those of containers are in `folder`.

    It ends on its own when the process that started it is gone, and kills its containers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._client = folder / "client"
        self._client.mkdir()
        self._log = folder / "yarn.log"
        classes = jars(Path(__file__).with_name("pom.xml"))
        program = Path(__file__).with_name("MiniYarn.java")
        settings = [f"{name}={value}" for name, value in SETTINGS.items()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [java(), "-Xmx512m", *QUICK_START, "-cp", f"{classes}/*", str(program), str(self._client), *settings],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment(),
                start_new_session=True,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def environment(self) -> Mapping[str, str]:
        """What spark-submit needs to find the cluster."""
        return {"HADOOP_CONF_DIR": str(self._client)}

    def containers(self) -> list[Container]:
        """Returns those whose Java runs."""
        try:
            family = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            raise AssertionError(self._explain("YARN has ended")) from None
        return list(_containers(family))

    def wait_until_idle(self) -> None:
        """Waits until the containers of earlier applications have ended."""
        wait_until(lambda: not self.containers(), "the end of all containers", STOP_DEADLINE_S)

    def stop(self) -> None:
        """Kills containers and ends the cluster; may be called again."""
        if self._process.poll() is None:
            containers = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()  # first, or it starts others in their place
            for each in containers:
                try:
                    each.kill()
                except psutil.NoSuchProcess:
                    pass
        self._process.wait(STOP_DEADLINE_S)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _wait_until_ready(self) -> None:
        ready = self._client / READY
        wait_until(lambda: ready.exists() or self._process.poll() is not None, "YARN", START_DEADLINE_S)
        assert ready.exists(), self._explain("YARN did not start")

    def _explain(self, message: str) -> str:
        return "\n".join([message, *self._log.read_text(errors="replace").splitlines()[-30:]])


def _environment() -> dict[str, str]:
    ours = {"PYTHONPATH", "PYTHONHOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "SPARK_HOME"}
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    # The containers' Java is that of this variable.
    return {**inherited, "JAVA_HOME": str(Path(java()).resolve().parents[1])}


def _containers(family: list[psutil.Process]) -> Iterator[Container]:
    for process in family:
        try:
            if process.name() != "java":
                continue
            name, command = process.environ().get("CONTAINER_ID", ""), process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if (found := _CONTAINER.fullmatch(name)) is not None:
            is_master = any(part.startswith("org.apache.spark.deploy.yarn.") for part in command)
            yield Container(name, int(found["attempt"]), is_master, process)
