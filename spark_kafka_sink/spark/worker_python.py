"""Warns when Spark's Python workers will run another Python than the program does, which they then fail in."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

_warned: set[str] = set()


def warn_of_other_python(context: SparkContext | None) -> None:
    """Logs each such Python once. context: None where there is none, as on Spark Connect."""
    python_exec = getattr(context, "pythonExec", None)
    problem = None if python_exec is None else other_python(python_exec, sys.executable, os.environ)
    if problem is not None and problem not in _warned:
        _warned.add(problem)
        logger.warning("%s", problem)


def other_python(python_exec: str, own: str, environment: Mapping[str, str]) -> str | None:
    """Returns why workers run another Python environment than that of `own`, and what to do; None where they do not, or where
    nobody knows. python_exec: what Spark starts workers with.

    What is set explicitly is right: on a cluster it differs from the driver's, and it may come with the job.
    """
    if not own or "PYSPARK_PYTHON" in environment or os.sep in python_exec:
        return None
    found = shutil.which(python_exec, path=environment.get("PATH"))
    if found is None or _is_script(Path(found)) or _environment(Path(found)) == _environment(Path(own)):
        return None
    return (
        f"Spark's Python workers run {found}, which is not this program's Python, so they may not find pyarrow or this package;"
        f" before Spark starts: export PYSPARK_PYTHON={own}"
    )


def _environment(python: Path) -> Path:
    """The folder of a virtual environment, or the Python itself."""
    folder = Path(os.path.abspath(python)).parent.parent  # of the link, which in a virtual environment leads out of it
    return folder.resolve() if (folder / "pyvenv.cfg").exists() else python.resolve()


def _is_script(found: Path) -> bool:
    """One that chooses a Python when it is run, as pyenv's."""
    try:
        with found.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True
