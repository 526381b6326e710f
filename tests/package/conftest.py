"""The wheel and the sdist, built once per worker, and clean virtual environments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.package.programs import ROOT

Environment = Callable[..., Path]
"""Makes a virtual environment with the wheel and the extras that are given, and returns its Python."""


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make dist` fills: the sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    _run("-m", "build", "--outdir", str(folder), str(ROOT))
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture
def environment(tmp_path: Path, wheel: Path) -> Environment:
    def made(*extras: str) -> Path:
        # pip of this environment installs into the other, which needs none of its own.
        _run("-m", "venv", "--without-pip", str(tmp_path / "env"))
        python = tmp_path / "env" / "bin" / "python"
        what = f"spark-kafka-sink[{','.join(extras)}] @ {wheel.as_uri()}"
        _run("-m", "pip", "--python", str(python), "install", "--quiet", "-c", str(ROOT / "constraints.txt"), what)
        return python

    return made


def _run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
