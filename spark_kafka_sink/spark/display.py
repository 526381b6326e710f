"""Shows delivery reports as one line, and a progress bar while a job runs."""

from __future__ import annotations

import logging
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from spark_kafka_sink.counts import counted
from spark_kafka_sink.producer.partition_reports import ALL_PARTITIONS
from spark_kafka_sink.producer.report import DeliveryReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

POLL_S = 0.2


def summary(report: DeliveryReport) -> str:
    """Returns the counts in one line."""
    sums = sum(partition == ALL_PARTITIONS for _, partition in report.partitions)
    parts = [
        counted(report.records, "record"),
        f"{counted(report.bytes, 'byte')} ({report.compressed_bytes:,} sent)",
        f"{counted(report.batches, 'batch', 'batches')} in {counted(report.requests, 'request')}",
        counted(report.retries, "retry", "retries"),
        counted(len(report.partitions) - sums, "topic-partition"),
        *([counted(sums, "topic as a sum", "topics as sums")] if sums else []),
        *report.slowed_down(),
    ]
    commits = ""
    if report.commits:
        ended = f"{counted(report.transactions_committed, 'transaction')} committed, {report.transactions_aborted:,} aborted"
        commits = f"; {ended} in {counted(report.commits, 'commit')} of {report.commit_ms / report.commits:,.0f} ms on average"
    bad_rows = f"; {report.bad_rows_text()}" if report.bad_rows else ""
    return ", ".join(parts) + commits + bad_rows + errors_text(report, "; errors: ")


def errors_text(report: DeliveryReport, before: str = "") -> str:
    """Returns the number of rejected batches for each error, by Kafka's name of it, or an empty string if there are none."""
    return before + ", ".join(f"{name} {count:,}" for name, count in sorted(report.errors.items())) if report.errors else ""


@contextmanager
def progress_bar(spark: SparkSession, show: bool | None = None) -> Iterator[None]:
    """Shows how many tasks are finished of the jobs that this thread starts within the block.

    show: whether to draw the bar; None: only in a notebook or a terminal. Threads: one asks Spark every POLL_S and draws. It
    ends with the block. Nothing is shown on Spark Connect, which has no status tracker (its progress handlers show jobs there).
    """
    context = getattr(spark, "_sc", None)
    # A tag of our own, beside any job group that the user has set in this thread.
    tag = f"kafka-sink-{uuid.uuid4().hex}"
    if context is None or not (_is_looked_at() if show is None else show) or not _is_tagged(context, tag):
        yield
        return
    stop = threading.Event()
    with _bar() as bar:
        poller = threading.Thread(target=_poll, args=(context, tag, bar, stop), name="kafka-sink-progress", daemon=True)
        poller.start()
        try:
            yield
        finally:
            stop.set()
            poller.join()
            context.removeJobTag(tag)


def _is_looked_at() -> bool:
    """Returns whether this is a notebook or a terminal."""
    return _is_notebook() or sys.stderr.isatty()


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and "IPKernelApp" in shell.config


def _bar() -> AbstractContextManager[Any]:
    if _is_notebook() and find_spec("ipywidgets") is None:
        return _NotebookLine()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        logger.info("no progress is shown, because tqdm is not installed")
        return nullcontext(SimpleNamespace(refresh=lambda: None))
    bar: AbstractContextManager[Any] = tqdm(desc="kafka_sink", unit="task", total=0)
    return bar


class _NotebookLine:
    """One line of a cell's output, replaced in place. Without ipywidgets tqdm warns, and writes red lines to stderr."""

    def __init__(self) -> None:
        display = import_module("IPython.display").display

        self.total = self.n = 0
        self._text = self._line()
        self._output = display({"text/plain": self._text}, raw=True, display_id=True)

    def refresh(self) -> None:
        if self._text != self._line():
            self._text = self._line()
            self._output.update({"text/plain": self._text}, raw=True)

    def _line(self) -> str:
        return f"kafka_sink: {self.n:,} of {counted(self.total, 'task')}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.refresh()


def _is_tagged(context: Any, tag: str) -> bool:
    """Returns whether Spark lets the program follow its own jobs. Some shared clusters do not, which must not fail the job."""
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
    tracker, stopped = context.statusTracker(), False
    while not stopped:
        stopped = stop.wait(POLL_S)
        jobs = [tracker.getJobInfo(job) for job in _jobs(context, tag)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        known = [stage for stage in stages if stage]
        bar.total = sum(stage.numTasks for stage in known)
        bar.n = sum(stage.numCompletedTasks for stage in known)
        bar.refresh()
