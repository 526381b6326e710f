"""Runs the jobs' `main` in one process of its own: it starts the JVM once, and the tests' own Spark sessions are left alone."""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from tests.kafka.jars import jars

CHECKOUT = Path(__file__).parents[2]
CONNECTOR_POM = Path(__file__).with_name("pom.xml")
JOB_DEADLINE_S = 300.0

QUIET_SPARK = {
    "spark.master": "local[1]",  # with few rows a second worker only takes time to start
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # so does the compiler that makes long runs fast
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}


@dataclass(frozen=True)
class Ended:
    """How a job ended, and what it printed: `out` for its results, `err` for errors."""

    code: int
    out: str
    err: str


def spark_arguments() -> list[str]:
    """Arguments of spark-submit that all runs share."""
    return [argument for name, value in QUIET_SPARK.items() for argument in ("--conf", f"{name}={value}")]


def environment() -> dict[str, str]:
    """Spark's workers run this Python and find the package in the checkout."""
    path = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": ":".join(path)}


class JobProcess:
    """One job at a time, each with a Spark session of its own. Spark's Kafka source is on the class path.

    They share the Spark context, as a new one and its Python workers take seconds. Only spark-submit's jobs end theirs.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        connector = jars(CONNECTOR_POM, what="Spark's own Kafka source (about 6 MB; a few seconds to a minute)")
        self._process = context.Process(target=_serve, args=(far, sorted(map(str, connector.glob("*.jar")))))
        self._process.start()
        far.close()

    def run(self, job: str, *arguments: object) -> Ended:
        self.start(job, *arguments)
        return self.wait(job, *arguments)

    def start(self, job: str, *arguments: object) -> None:
        self._pipe.send((job, [str(argument) for argument in arguments]))

    def wait(self, job: str, *arguments: object) -> Ended:
        if not self._pipe.poll(JOB_DEADLINE_S):
            self.stop()  # its answer would be taken for the next job's
            self._begin()
            raise TimeoutError(f"{job} {arguments} did not end within {JOB_DEADLINE_S:g} s")
        ended: Ended = self._pipe.recv()
        return ended

    @property
    def jvm(self) -> psutil.Process:
        """The Java process of a job that runs."""
        return next(child for child in psutil.Process(self._process.pid).children() if child.name() == "java")

    def stop(self) -> None:
        self._pipe.close()
        self._process.join(timeout=20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(timeout=20)
        self._process.close()


def _serve(pipe: Connection, jar_files: Sequence[str]) -> None:
    os.environ.update(environment())
    arguments = [*spark_arguments(), "--jars", ",".join(jar_files), "pyspark-shell"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(arguments)
    SparkSession.stop = _forget  # type: ignore[assignment,method-assign]
    while True:
        try:
            job, given = pipe.recv()
        except EOFError:
            return
        pipe.send(_run(job, given))


def _forget(session: SparkSession) -> None:
    """Has the next job make a session, on the same context."""
    jvm: Any = session._jvm
    jvm.SparkSession.clearActiveSession()
    jvm.SparkSession.clearDefaultSession()
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _run(job: str, arguments: Sequence[str]) -> Ended:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = import_module(f"jobs.{job}").main(arguments)
        except SystemExit as end:
            code = end.code
    return Ended(int(code), out.getvalue(), err.getvalue())
