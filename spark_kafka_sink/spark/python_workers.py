"""Python processes that Spark starts: formats the sink's log there, and checks whether they can run the sink."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark import TaskContext

from spark_kafka_sink.errors import DOCS_URL, InstallationError
from spark_kafka_sink.installation import is_sparks_process

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

PACKAGE = "spark_kafka_sink"
_tasks = count(1)  # of this process

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


def keep_modules_uncollected() -> None:
    """Has a worker's garbage collections leave out what it had loaded when its second task began. Called by each task.

    PySpark's daemon collects after each task (daemon.py): the 100,000 objects of pyspark, pandas, pyarrow and this package, which
    live as long as the worker, took 30 ms of CPU each time. PySpark loads pandas at the end of the first task. Nothing changes in
    a program that Spark did not start.
    """
    if next(_tasks) == 2 and is_sparks_process():
        gc.freeze()


def row_name(row: int) -> str:
    """Returns the name of a row in messages. row: its number among a task's rows, or in the data of a program without Spark."""
    return f"row {row} of the {'data' if TaskContext.get() is None else 'task'}"


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
    problem = other_python(python_exec, sys.executable)
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


def other_python(python_exec: str, own: str) -> str | None:
    """Returns why processes that run `python_exec` on this machine will fail and what to do, or None if they will not fail.

    Two commands run the same Python if they are the same file or belong to one virtual environment. Another Python is started
    once, and imports what the sink needs.

    Args:
        python_exec: The command that Spark starts workers with, `spark.sparkContext.pythonExec`.
        own: The path of this program's Python.
    """
    found = shutil.which(python_exec)
    if not own or (found is not None and _environment(Path(found)) == _environment(Path(own))):
        return None
    problem = "it does not exist" if found is None else _failure(found)
    if not problem:
        return None
    to_do = f"Before Spark starts, run: export PYSPARK_PYTHON={own}"
    if os.sep in python_exec and not os.path.isabs(python_exec):  # from an archive that executors get
        to_do = (
            f"Make {Path(python_exec).parts[0]} a link to this program's environment, because Spark plans writes of"
            f" format('kafka_sink') on the driver. Without such a folder on the executors: {to_do}"
        )
    return (
        f"Spark's Python workers will fail on this machine, because they run {found or python_exec}: {problem}. {to_do}."
        f" See {DOCS_URL}/troubleshooting.html#modulenotfounderror-in-a-python-worker"
    )


# Spark refuses another version than the driver's.
_PROBE = f"""
import sys
if sys.version_info[:2] != {sys.version_info[:2]}:
    sys.exit("it is Python %d.%d" % sys.version_info[:2])
import pyarrow, {PACKAGE}
"""
_PROBE_TIMEOUT_S = 60.0


@cache
def _failure(python: str) -> str:
    """Returns the last line of the error if this Python cannot run the sink, or an empty text."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, errors="replace", timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"it does not answer ({type(error).__name__})"
    if done.returncode == 0:
        return ""
    return done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"


def _environment(python: Path) -> Path:
    """Returns the folder of a virtual environment, or the Python itself."""
    folder = Path(os.path.abspath(python)).parent.parent  # of the link, which in a virtual environment leads out of it
    return folder.resolve() if (folder / "pyvenv.cfg").exists() else python.resolve()
