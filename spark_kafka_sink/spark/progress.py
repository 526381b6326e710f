"""A progress bar over a Spark job's tasks, for people who wait for it."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

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
    if context is None or not (wanted() if show is None else show):
        yield
        return
    from tqdm.auto import tqdm

    # A tag of our own, beside any job group that the user has set in this thread.
    tag = f"kafka-sink-{uuid.uuid4().hex}"
    context.addJobTag(tag)
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


def _poll(context: Any, tag: str, bar: Any, stop: threading.Event) -> None:
    while not stop.wait(POLL_S):
        _draw(context, tag, bar)
    _draw(context, tag, bar)


def _draw(context: Any, tag: str, bar: Any) -> None:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    known = [stage for stage in stages if stage]
    bar.total = sum(stage.numTasks for stage in known)
    bar.n = sum(stage.numCompletedTasks for stage in known)
    bar.refresh()
