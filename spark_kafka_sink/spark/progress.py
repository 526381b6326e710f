"""A progress bar over a Spark job's tasks, for people who wait for it."""

from __future__ import annotations

import logging
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

POLL_S = 0.2


def wanted() -> bool:
    """Whether somebody looks: a notebook, or a terminal."""
    return _in_notebook() or sys.stderr.isatty()


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and "IPKernelApp" in shell.config


@contextmanager
def progress_bar(spark: SparkSession, show: bool | None = None) -> Iterator[None]:
    """Show finished and all tasks of the jobs that this thread starts inside. `show` None: when somebody looks.

    Threads: one that asks Spark each POLL_S and draws; it ends with the block. Nothing is shown on Spark Connect, which has no
    status tracker (its own progress handlers show jobs there).
    """
    context = getattr(spark, "_sc", None)
    # A tag of our own, beside any job group that the user has set in this thread.
    tag = f"kafka-sink-{uuid.uuid4().hex}"
    if context is None or not (wanted() if show is None else show) or not _is_tagged(context, tag):
        yield
        return
    from tqdm.auto import tqdm

    stop = threading.Event()
    with tqdm(desc="kafka_sink", unit="task", total=0) as bar:
        poller = threading.Thread(target=_poll, args=(context, tag, bar, stop), name="kafka-sink-progress", daemon=True)
        poller.start()
        try:
            yield
        finally:
            stop.set()
            poller.join()
            context.removeJobTag(tag)


def _is_tagged(context: Any, tag: str) -> bool:
    """Whether Spark lets the program follow its own jobs: some shared clusters refuse it, which must not fail the job."""
    try:
        context.addJobTag(tag)
        _jobs(context, tag)
    except Exception as error:  # AttributeError, py4j's, PySpark's
        logger.info("no progress is shown: %s: %s", type(error).__name__, error)
        return False
    return True


def _jobs(context: Any, tag: str) -> list[int]:
    return list(context._jsc.sc().statusTracker().getJobIdsForTag(tag))


def _poll(context: Any, tag: str, bar: Any, stop: threading.Event) -> None:
    while not stop.wait(POLL_S):
        _draw(context, tag, bar)
    _draw(context, tag, bar)


def _draw(context: Any, tag: str, bar: Any) -> None:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in _jobs(context, tag)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    known = [stage for stage in stages if stage]
    bar.total = sum(stage.numTasks for stage in known)
    bar.n = sum(stage.numCompletedTasks for stage in known)
    bar.refresh()
