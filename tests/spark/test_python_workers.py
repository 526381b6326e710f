"""How the sink's warnings look in the processes that Spark starts, left alone in all others; and which Python those run."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_kafka_sink.errors import InstallationError
from spark_kafka_sink.spark.python_workers import check_workers_python, other_python

LINE = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARNING spark_kafka_sink\.some: careful\n"

PROGRAM = """
import logging, sys
from importlib.machinery import ModuleSpec
from spark_kafka_sink.spark.python_workers import log_in_sparks_process
{before}
log_in_sparks_process()
log_in_sparks_process()
{after}
logging.getLogger("spark_kafka_sink.some").warning("careful")
logging.getLogger("spark_kafka_sink.some").info("by the way")
"""
AS_SPARK = '__spec__ = ModuleSpec("pyspark.daemon", None)'
HANDLER = 'logging.getLogger("spark_kafka_sink").addHandler(logging.StreamHandler())'
CONFIGURED = 'logging.basicConfig(format="%(message)s, it said")'


@pytest.mark.parametrize(
    ("before", "after", "written"),
    [
        pytest.param(AS_SPARK, "", LINE, id="a warning has its time, level and logger"),
        pytest.param("", "", "careful\n", id="another program keeps what Python does"),
        pytest.param(f"{AS_SPARK}\n{CONFIGURED}", "", "careful, it said\n", id="configured before"),
        pytest.param(AS_SPARK, CONFIGURED, "careful, it said\n", id="configured afterwards"),
        pytest.param(f"{AS_SPARK}\n{HANDLER}", "", "careful\n", id="a handler of the package's own"),
    ],
)
def test_a_warning_is_told_apart_in_sparks_processes_where_nobody_configured_logging(
    before: str, after: str, written: str
) -> None:
    program = PROGRAM.format(before=before, after=after)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert re.fullmatch(written, done.stderr)


TASK = """
import gc
from importlib.machinery import ModuleSpec
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.task.task import run_task
{before}
for _ in range(2):
    run_task([], sink_options({{"kafka.bootstrap.servers": "localhost:1", "topic": "t"}}), Feed())
    print(gc.get_freeze_count() > 10_000)
"""


@pytest.mark.parametrize(("before", "frozen"), [(AS_SPARK, "False True"), ("", "False False")])
def test_from_the_second_task_on_sparks_collections_leave_out_what_a_worker_has_loaded(before: str, frozen: str) -> None:
    command = [sys.executable, "-c", TASK.format(before=before)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == frozen.split()


def _warned(_: Iterable[int]) -> Iterable[str]:
    """In a worker: what a warning writes there."""
    from spark_kafka_sink.spark.python_workers import log_in_sparks_process

    package, usual = logging.getLogger("spark_kafka_sink"), sys.stderr
    handlers = package.handlers[:]
    package.handlers.clear()
    sys.stderr = written = io.StringIO()
    try:
        log_in_sparks_process()
        logging.getLogger("spark_kafka_sink.some").warning("careful")
    finally:
        sys.stderr = usual
        package.handlers[:] = handlers
    yield written.getvalue()


@pytest.mark.spark
def test_a_worker_is_a_process_of_sparks(spark: SparkSession) -> None:
    (written,) = spark.sparkContext.parallelize([0], 1).mapPartitions(_warned).collect()
    assert re.fullmatch(LINE, written)


def virtual_environment(folder: Path, base: Path) -> Path:
    """A Python in a virtual environment is a link to the one that it was made with."""
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("")
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(base)
    return folder / "bin"


@pytest.fixture
def base() -> Path:
    return Path(sys.executable).resolve()


@pytest.fixture
def system(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a python3 that is in no virtual environment, which is the first of PATH."""
    folder = tmp_path / "usr" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(base)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


LINK = "/troubleshooting.html#modulenotfounderror-in-a-python-worker"


def test_a_virtual_environment_that_is_not_activated_is_told_with_the_line_that_mends_it(
    tmp_path: Path, base: Path, system: Path
) -> None:
    own = virtual_environment(tmp_path / "venv", base) / "python"
    problem = other_python("python3", str(own))
    assert problem is not None
    lacks = f"they run {system / 'python3'}: ModuleNotFoundError: No module named 'pyarrow'."
    assert problem.startswith(f"Spark's Python workers will fail on this machine, because {lacks}")
    assert f" Before Spark starts, run: export PYSPARK_PYTHON={own}. " in problem
    assert problem.endswith(LINK)


def test_nothing_is_said_of_another_python_that_has_the_packages(tmp_path: Path, base: Path) -> None:
    own = virtual_environment(tmp_path / "venv", base) / "python"
    assert other_python(sys.executable, str(own)) is None


def test_nothing_is_said_of_the_same_environment(
    tmp_path: Path, base: Path, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert other_python("python3", str(base)) is None
    own = virtual_environment(tmp_path / "venv", base)
    monkeypatch.setenv("PATH", str(own), prepend=os.pathsep)
    assert other_python("python3", str(own / "python")) is None


@pytest.mark.parametrize(
    ("does", "problem"),
    [
        ("echo 'AssertionError: it is Python 2.7' >&2; exit 1", "AssertionError: it is Python 2.7."),
        ("exit 3", "exit status 3."),
        (None, "it does not exist."),
    ],
)
def test_a_python_that_cannot_run_the_sink_is_told_with_its_error(
    tmp_path: Path, base: Path, does: str | None, problem: str
) -> None:
    own, other = virtual_environment(tmp_path / "venv", base) / "python", tmp_path / "python3"
    if does is not None:
        other.write_text(f"#!/bin/sh\n{does}\n")
        other.chmod(0o755)
    assert f"they run {other}: {problem} Before" in str(other_python(str(other), str(own)))


class Context:
    """What is asked of a SparkContext."""

    def __init__(self, master: str, python: Path) -> None:
        self.master = master
        self.pythonExec = str(python)


@pytest.mark.parametrize(("master", "is_planned", "is_told"), [("local[2]", True, 1), ("yarn", True, 1), ("yarn", False, 0)])
def test_it_is_told_once_where_spark_starts_pythons_on_this_machine(
    tmp_path: Path, base: Path, caplog: pytest.LogCaptureFixture, master: str, is_planned: bool, is_told: int
) -> None:
    context: Any = Context(master, virtual_environment(tmp_path / "other", base) / "python")
    check_workers_python(context, is_planned=is_planned)
    check_workers_python(context, is_planned=is_planned)
    assert len(caplog.messages) == is_told
    assert all(LINK in message for message in caplog.messages)


def test_a_job_whose_workers_on_this_machine_must_fail_does_not_start(tmp_path: Path, base: Path) -> None:
    context: Any = Context("local[2]", virtual_environment(tmp_path / "other", base) / "python")
    with pytest.raises(InstallationError, match="export PYSPARK_PYTHON="):
        check_workers_python(context)


def test_a_python_that_comes_with_the_job_must_be_on_the_driver_too(tmp_path: Path, base: Path) -> None:
    own = str(virtual_environment(tmp_path / "venv", base) / "python")
    problem = other_python("./environment/bin/python", own)
    assert problem is not None
    assert "they run ./environment/bin/python: it does not exist. Make environment a link to this program's" in problem
