"""A submitted program, and what Spark says of its executors while it runs and afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.docs.snippets import blocks
from tests.faults.exactly_once.standalone import ADDRESS, CHECKOUT, SPARK_HOME
from tests.kafka.guardian import Guardian
from tests.kafka.java import java

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
        except (OSError, ValueError):  # the page is not there yet
            return {}
        return {each.id: each for each in map(_executor, found) if each.id != DRIVER}

    def check(self) -> None:
        """Raises AssertionError with the end of the log if the program has failed."""
        assert self._process.poll() in {None, 0}, self.explain(f"spark-submit ended with {self._process.poll()}")

    def join(self, deadline_s: float) -> None:
        """Waits for the end of the program, which must succeed."""
        self._wait(deadline_s)
        self.check()

    def join_failed(self, deadline_s: float) -> str:
        """Waits for the end of a program that must fail, and returns what Spark printed."""
        assert self._wait(deadline_s) != 0, self.explain("the program succeeded")
        return self._log.read_text(errors="replace")

    def explain(self, message: str) -> str:
        return "\n".join([message, *self._log.read_text(errors="replace").splitlines()[-60:]])

    def _wait(self, deadline_s: float) -> int:
        try:
            return self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(self.explain(f"the program did not end within {deadline_s:g} s")) from None

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}{path}", timeout=REST_TIMEOUT_S) as answer:
            return json.load(answer)


def _executor(found: Any) -> Executor:
    return Executor(found["id"], found["isActive"], found["activeTasks"], found["completedTasks"])


# The commands of docs/deploying.md for an archive, run as they stand there


PAGE = "deploying.md"
MARK = "venv-pack --prefix"
CLUSTER_MODE = "--deploy-mode cluster"
SUBMIT = "spark-submit "
BUILD_DEADLINE_S = 600.0


class Recipe:
    """The recipe of the page, with the wheel of this checkout as the package.

    folder: the working directory of the user, in which `pack` makes the environment and its archive.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (block,) = (each for each in blocks(PAGE) if MARK in each.source)
        before, mark, after = block.source.partition("\n\n")
        assert mark, f"docs/{PAGE}: the block no longer packs first and submits then"
        self._pack, self._submit = before, after

    def pack(self) -> None:
        """Builds the wheel, and runs the first half of the block."""
        wheels = self.folder / "dist"
        _run([sys.executable, "-m", "build", "--wheel", "--outdir", str(wheels), str(CHECKOUT)], self.folder, os.environ)
        (wheel,) = wheels.glob("*.whl")
        script = _replaced(self._pack, {"python3.11 -m venv": f"{sys.executable} -m venv", " spark-kafka-sink ": f" {wheel} "})
        # The versions that are tested. The page's reader gets the newest.
        constraints = {"PIP_CONSTRAINT": str(CHECKOUT / "constraints.txt")}
        _run(["bash", "-e", "-c", script], self.folder, {**user_environment(), **constraints})

    def submit(
        self,
        master: str,
        arguments: Sequence[str],
        log: Path,
        settings: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Runs the second half of the block, with the program's arguments at its end and more settings of Spark's.

        Returns the process, which leads a session of its own. log: takes what Spark prints. environment: more variables.
        """
        script = _replaced(self._submit, {"spark://master:7077": master, " job.py": " " + " ".join(arguments)})
        return self._start(script, log, settings, environment or {})

    def submit_in_cluster_mode(
        self, arguments: Sequence[str], log: Path, settings: Mapping[str, str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Runs the page's command for YARN in the same way."""
        (block,) = (each for each in blocks(PAGE) if CLUSTER_MODE in each.source)
        return self._start(_replaced(block.source, {" job.py": " " + " ".join(arguments)}), log, settings, environment)

    def _start(
        self, script: str, log: Path, settings: Mapping[str, str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        conf = log.with_suffix(".conf")
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        with log.open("wb") as out:
            return subprocess.Popen(
                ["bash", "-e", "-c", script.replace(SUBMIT, f"exec {SUBMIT}")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**user_environment(), **environment, "SPARK_CONF_DIR": str(conf)},
                start_new_session=True,
            )


def user_environment() -> dict[str, str]:
    """A shell that has Spark on its path, and knows nothing of this checkout."""
    ours = {"PYTHONPATH", "PYTHONHOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    path = os.pathsep.join([str(SPARK_HOME / "bin"), str(Path(java()).parent), os.environ["PATH"]])
    return {**inherited, "PATH": path, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": ADDRESS}


def _replaced(script: str, by: Mapping[str, str]) -> str:
    for old, new in by.items():
        assert script.count(old) == 1, f"docs/{PAGE}: {old!r} is not once in the block of the archive:\n{script}"
        script = script.replace(old, new)
    return script


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, timeout=BUILD_DEADLINE_S, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
