from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spark_kafka_sink.spark.worker_python import other_python


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
