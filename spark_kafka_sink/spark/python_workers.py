"""Handles the Python processes that Spark starts: formats the sink's log there, and warns if they run another Python."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

PACKAGE = "spark_kafka_sink"

# As the lines of Spark's own log, which they stand among: its default pattern is "%d{yy/MM/dd HH:mm:ss} %p %c{1}: %m".
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME = "%y/%m/%d %H:%M:%S"


def log_in_sparks_process() -> None:
    """Adds time, level and logger name to the package's warnings on stderr, in a process that Spark has started.

    Without any handler Python prints only the message. Nothing changes in a process that configures logging, now or later, nor in
    a program that Spark did not start.
    """
    package = logging.getLogger(PACKAGE)
    # The program of such a process is a module of pyspark's: its daemon, which forks workers, or one of its workers.
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    is_sparks = spec is not None and spec.name.startswith("pyspark.")
    if package.handlers or logging.getLogger().handlers or not is_sparks:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT, _TIME))
    handler.addFilter(lambda record: not logging.getLogger().handlers)
    package.addHandler(handler)


def warn_of_other_python(context: SparkContext | None) -> None:
    """Warns if Spark's Python workers will run another Python than this program, because they would probably fail.

    Each such Python is logged once. context: None where there is none, as on Spark Connect.
    """
    python_exec = getattr(context, "pythonExec", None)
    problem = None if python_exec is None else other_python(python_exec, sys.executable, os.environ)
    if problem is not None:
        _warn_once(problem)


@cache
def _warn_once(text: str) -> None:
    logger.warning("%s", text)


def other_python(python_exec: str, own: str, environment: Mapping[str, str]) -> str | None:
    """Returns why workers run another Python environment than that of `own`, and what to do, or None if they do not.

    python_exec: the command that Spark starts workers with. An explicit setting is taken as right: on a cluster it differs from
    the driver's, and it may come with the job.
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
    """Returns the folder of a virtual environment, or the Python itself."""
    folder = Path(os.path.abspath(python)).parent.parent  # of the link, which in a virtual environment leads out of it
    return folder.resolve() if (folder / "pyvenv.cfg").exists() else python.resolve()


def _is_script(found: Path) -> bool:
    """Returns whether it is a script that chooses a Python when it is run, like pyenv's."""
    try:
        with found.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True
