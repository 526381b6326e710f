"""How the sink's warnings look in the processes that Spark starts, left alone in all others; and which Python those run."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_kafka_sink.spark.python_workers import other_python

LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARNING spark_kafka_sink\.some: careful\n")

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
CONFIGURED = 'logging.basicConfig(format="%(message)s, it said")'


def stderr(before: str = "", after: str = "") -> str:
    """What a program writes that warns after it has done these."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before, after=after)], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr


def test_in_a_process_of_sparks_a_warning_has_its_time_level_and_logger() -> None:
    assert LINE.fullmatch(stderr(AS_SPARK))


def test_any_other_program_keeps_what_python_does() -> None:
    assert stderr() == "careful\n"


@pytest.mark.parametrize("where", ["before", "after"])
def test_where_logging_is_configured_it_stays_as_it_is(where: str) -> None:
    before = f"{AS_SPARK}\n{CONFIGURED}" if where == "before" else AS_SPARK
    assert stderr(before, CONFIGURED if where == "after" else "") == "careful, it said\n"


def test_a_handler_of_the_packages_own_is_left_alone() -> None:
    own = 'logging.getLogger("spark_kafka_sink").addHandler(logging.StreamHandler())'
    assert stderr(f"{AS_SPARK}\n{own}") == "careful\n"


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
    assert LINE.fullmatch(written)


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
def system(tmp_path: Path, base: Path) -> Path:
    """A folder with a python3 that is in no virtual environment."""
    folder = tmp_path / "usr" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(base)
    return folder


def test_a_virtual_environment_that_is_not_activated_is_told_with_the_line_that_mends_it(
    tmp_path: Path, base: Path, system: Path
) -> None:
    own = virtual_environment(tmp_path / "venv", base) / "python"
    problem = other_python("python3", str(own), {"PATH": str(system)})
    assert problem is not None
    assert problem.startswith(f"Spark's Python workers run {system / 'python3'}, ")
    assert problem.endswith(f"before Spark starts: export PYSPARK_PYTHON={own}")


def test_another_virtual_environment_is_another_python(tmp_path: Path, base: Path) -> None:
    own, other = (virtual_environment(tmp_path / name, base) for name in ("own", "other"))
    assert other_python("python3", str(own / "python"), {"PATH": str(other)}) is not None


def test_nothing_is_said_of_the_same_environment(tmp_path: Path, base: Path, system: Path) -> None:
    own = virtual_environment(tmp_path / "venv", base)
    assert other_python("python3", str(own / "python"), {"PATH": f"{own}:{system}"}) is None
    assert other_python("python3", str(base), {"PATH": str(system)}) is None


def test_nothing_is_said_of_what_was_set_or_cannot_be_known(tmp_path: Path, base: Path, system: Path) -> None:
    own = str(virtual_environment(tmp_path / "venv", base) / "python")
    assert other_python("python3", own, {"PATH": str(system), "PYSPARK_PYTHON": "python3"}) is None
    assert other_python("./environment/bin/python", own, {"PATH": str(system)}) is None
    assert other_python("python3", own, {"PATH": str(tmp_path)}) is None
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "python3").write_text("#!/bin/sh\n")
    (shims / "python3").chmod(0o755)
    assert other_python("python3", own, {"PATH": str(shims)}) is None
