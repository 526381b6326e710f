"""Python processes that Spark starts: formats the sink's log there, and checks whether they can run the sink."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from spark_kafka_sink.errors import DOCS_URL, InstallationError
from spark_kafka_sink.installation import is_sparks_process

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
    if package.handlers or logging.getLogger().handlers or not is_sparks_process():
        return
    package.addHandler(stderr_handler())


@contextmanager
def ending_at_hangup() -> Iterator[None]:
    """Has SIGHUP raise SystemExit in a task, so that the task ends its transaction.

    PySpark's daemon sends it to its workers as it ends with its JVM: after spark.stop(), or because the driver has died. It would
    end the worker at once. Nothing changes outside of the main thread, where PySpark runs no tasks.
    """
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(hangup, lambda *_: sys.exit(1))
    try:
        yield
    finally:
        signal.signal(hangup, before)


def stderr_handler() -> logging.Handler:
    """Returns a handler whose lines look like those of Spark's own log. It is silent once the program configures logging."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT, _TIME))
    handler.addFilter(lambda record: not logging.getLogger().handlers)
    return handler


def check_workers_python(context: SparkContext | None, *, is_planned: bool = False) -> None:
    """Raises InstallationError if Spark's Python workers will fail because they run another Python than this program.

    It reports certain failures only. In local mode all workers run on this machine. On a cluster tasks run on other machines,
    where another path is normal: an archive that comes with the job, or the platform's own Python. Writes of
    `format("kafka_sink")` are always planned on the driver, with the same command.

    Args:
        context: The program's SparkContext, or None if there is none, as on Spark Connect.
        is_planned: Whether Spark will also plan writes, in a Python process on this machine. A failure is a warning then, because
            the program may do without such writes.
    """
    python_exec = getattr(context, "pythonExec", None)
    if python_exec is None or not (is_planned or is_local(context)):
        return
    problem = other_python(python_exec, sys.executable, os.environ)
    if problem is not None and not is_planned:
        raise InstallationError(problem)
    if problem is not None:
        _warn_once(problem)


def active_context() -> SparkContext | None:
    """Returns the SparkContext of this program, or None if there is none, as on Spark Connect."""
    context: SparkContext | None = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    return context


def is_local(context: Any) -> bool:
    """Returns whether Spark's tasks run on this machine."""
    return str(getattr(context, "master", "")).startswith("local")


@cache
def _warn_once(text: str) -> None:
    logger.warning("%s", text)


def other_python(python_exec: str, own: str, environment: Mapping[str, str]) -> str | None:
    """Returns why processes that run `python_exec` on this machine will fail and what to do, or None if they will not fail.

    Two commands run the same Python if they are the same file or belong to one virtual environment. Another Python is started
    once, to ask for its version and whether it has the modules that the sink needs.

    Args:
        python_exec: The command that Spark starts workers with, `spark.sparkContext.pythonExec`.
        own: The path of this program's Python.
        environment: The environment variables of this program, which Spark's workers inherit.
    """
    problem = _problem(python_exec, own, environment.get("PATH")) if own else None
    if problem is None:
        return None
    link = (
        f" On a cluster where {python_exec} comes with the job, make {Path(python_exec).parts[0]} a link to this program's"
        " environment instead, because Spark plans writes of format('kafka_sink') on the driver."
        if os.sep in python_exec and not os.path.isabs(python_exec)
        else ""
    )
    return (
        f"Spark's Python workers will fail on this machine, because {problem}. Before Spark starts, run:"
        f" export PYSPARK_PYTHON={own}.{link} See {DOCS_URL}/troubleshooting.html#modulenotfounderror-in-a-python-worker"
    )


@cache
def _problem(python_exec: str, own: str, path: str | None) -> str | None:
    found = shutil.which(python_exec, path=path)
    if found is None:
        return f"{python_exec}, which they run, does not exist"
    return None if _environment(Path(found)) == _environment(Path(own)) else _what_fails(found)


# find_spec imports nothing. The version comes first, because Spark refuses another version than the driver's.
_PROBE = """
import sys
from importlib.util import find_spec
print("%d.%d" % sys.version_info[:2], *(name for name in sys.argv[1:] if find_spec(name) is None))
"""
_PROBE_TIMEOUT_S = 10.0
_NEEDED = ("pyarrow", "numpy", PACKAGE)


def _what_fails(python: str) -> str | None:
    """Returns what this Python lacks for the sink's tasks, or None if it lacks nothing or does not answer."""
    answer = _answer(python)
    if answer is None:
        return None
    version, *missing = answer
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version != own:
        return f"they run {python}, which is Python {version}, while this program runs Python {own}"
    return f"they run {python}, which has no module named {', '.join(missing)}" if missing else None


@cache
def _answer(python: str) -> tuple[str, ...] | None:
    """Returns the version of this Python and the modules that it lacks, or None if it does not answer."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, *_NEEDED], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return tuple(done.stdout.split()) or None


def is_known(python_exec: str, own: str, environment: Mapping[str, str]) -> bool:
    """Returns whether `other_python` could find out about `python_exec`: it is the same Python, or it has answered."""
    found = shutil.which(python_exec, path=environment.get("PATH"))
    return found is not None and (_environment(Path(found)) == _environment(Path(own)) or _answer(found) is not None)


def _environment(python: Path) -> Path:
    """Returns the folder of a virtual environment, or the Python itself."""
    folder = Path(os.path.abspath(python)).parent.parent  # of the link, which in a virtual environment leads out of it
    return folder.resolve() if (folder / "pyvenv.cfg").exists() else python.resolve()
