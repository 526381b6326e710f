"""Asks for which Python versions every dependency has a wheel, so that nobody needs a compiler.

    python -m tests.package.wheels 3.12 3.13 3.14

It downloads nothing but metadata. pyspark is a source archive for every version, and pure Python.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from tests.package.minimal import OF_USERS

ROOT: Final = Path(__file__).parents[2]
_SOURCE_ONLY: Final = ("pyspark",)


def requirements(project: dict[str, object]) -> list[str]:
    """Returns the requirements of the package and of its extras, without those that have no wheels at all."""
    optional: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    dependencies: list[str] = project["dependencies"]  # type: ignore[assignment]
    every = [*dependencies, *(each for extra in OF_USERS for each in optional[extra])]
    return [each for each in every if Requirement(each).name not in _SOURCE_ONLY]


def missing(version: str, wanted: list[str]) -> str:
    """Returns why pip finds no wheels for this Python version; empty if it finds one for each."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--target", "build/wheels"]
    command += ["--python-version", version, "--only-binary", ":all:", "-c", "constraints.txt", *wanted]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = requirements(project)
    failed = 0
    for version in sys.argv[1:]:
        why = missing(version, wanted)
        print(f"Python {version}: {why or f'wheels for all {len(wanted)} requirements and what they need'}", flush=True)
        failed += bool(why)
    return failed


if __name__ == "__main__":
    sys.exit(main())
