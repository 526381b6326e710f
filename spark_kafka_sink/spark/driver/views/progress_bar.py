"""The bar of a `publish` call: finished tasks, and the rows that brokers have acknowledged, also of tasks that still run."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from spark_kafka_sink.counts import counted
from spark_kafka_sink.spark.driver.listener import LiveTasks
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics, listener_of
from spark_kafka_sink.spark.driver.views.watch import is_notebook
from spark_kafka_sink.spark.feed import Counts, CountsParam, Feed
from spark_kafka_sink.spark.task.progress_sender import INTERVAL_S, PROGRESS

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

POLL_S: Final = 0.2
# The bar's thread ends within POLL_S, unless Spark does not answer it.
JOIN_S: Final = 5.0
# Rates are of the last seconds, so that they follow what happens.
_RATE_S: Final = 5.0
# Executors that reach the driver report in the first second in which they write. Before, Python workers start and import, which
# takes 8 s on a busy machine of 2 cores.
SILENT_S: Final = 15.0
# Points of the throughput over time. With more, neighbours become one.
MOST_POINTS: Final = 400


class Tasks(NamedTuple):
    """Numbers of a call's tasks: all that are known, those that run, those that are done, and all of the stages that have begun.

    With adaptive execution Spark knows stages that never begin.
    """

    known: int
    active: int
    done: int
    begun: int = 0

    def __str__(self) -> str:
        return f"{self.done:,} of {counted(self.known, 'task')}"


class CallProgress:
    """Counts of what a call of `publish` has delivered so far.

    Attributes:
        feed: Travels with the call's tasks.
        has_succeeded: Whether the call has returned without an error.

    Threads: the bar's thread takes samples and others read, under the lock.
    """

    def __init__(self, feed: Feed, live: LiveTasks | None) -> None:
        """live: the counts of running tasks; None if the tasks do not tell."""
        self.feed = feed
        self._live = live
        self._lock = threading.Lock()
        self._shown = Counts()
        self._begun = time.monotonic()
        self._recent: deque[tuple[float, Counts]] = deque([(self._begun, Counts())])
        self._points: list[tuple[float, int]] = [(0.0, 0)]
        self._spacing_s = INTERVAL_S
        self._is_heard = False
        self._active_since: float | None = None
        self._share = 0.0
        self.has_succeeded = False

    @property
    def is_counted(self) -> bool:
        """Whether the call's rows are counted while it runs."""
        return self.feed.finished is not None

    def delivered(self) -> Counts:
        """Returns the counts of finished and running tasks. They never fall, although a task that fails is written again."""
        finished = Counts() if self.feed.finished is None else self.feed.finished.value
        tasks, running = (0, Counts()) if self._live is None else self._live.running(self.feed.call)
        now = finished + running
        with self._lock:
            self._is_heard |= tasks > 0
            # A task that ends is not running any more a little before Spark has added up what it delivered.
            if now.records >= self._shown.records:
                self._shown = now
            return self._shown

    def sample(self) -> str:
        """Records what is delivered now, and returns it as text with the current rates."""
        counts, now = self.delivered(), time.monotonic()
        with self._lock:
            self._recent.append((now, counts))
            while len(self._recent) > 2 and self._recent[1][0] <= now - _RATE_S:
                self._recent.popleft()
            before, old = self._recent[0]
            if now - self._begun >= self._points[-1][0] + self._spacing_s:
                self._points.append((now - self._begun, counts.records))
                if len(self._points) > MOST_POINTS:
                    self._points = self._points[::2]
                    self._spacing_s *= 2
        seconds = max(now - before, POLL_S)
        return (
            f"{counted(counts.records, 'row')}, {(counts.records - old.records) / seconds:,.0f} rows/s,"
            f" {(counts.bytes - old.bytes) / seconds / 1e6:,.1f} MB/s, {counted(counts.retries, 'retry', 'retries')}"
        )

    def share(self, tasks: Tasks) -> float:
        """Returns which part of the tasks is done, from 0 to 1. A running task counts by its rows: finished ones had as many."""
        finished = 0 if self.feed.finished is None else self.feed.finished.value.records
        if self.has_succeeded:
            return 1.0
        if tasks.known:
            running = (self.delivered().records - finished) * tasks.done / finished if finished else 0.0
            self._share = max(self._share, (tasks.done + min(running, 0.9 * tasks.active)) / tasks.known)
        return self._share

    def text(self, tasks: Tasks | None) -> str:
        """Returns the tasks, as far as they are known, and `sample` if the call's rows are counted."""
        known = tasks if tasks is not None and tasks.known else None
        parts = [str(known)] if known else []
        if self.is_counted:
            parts.append(self.sample() + (self.missing(known) if known else ""))
        return ", ".join(parts) or ("" if self.has_succeeded else "starting")

    def missing(self, tasks: Tasks) -> str:
        """Returns what is missing in the counts of `sample`, as text; "" if nothing is."""
        with self._lock:
            if not tasks.active:
                self._active_since = None
            elif self._active_since is None:
                self._active_since = time.monotonic()
            if self._is_heard or tasks.done >= tasks.known:
                return ""
            if self._active_since is None:
                return "" if tasks.done else ", no task has started"
            if time.monotonic() - self._active_since >= SILENT_S:  # they are short, or their executors cannot reach the driver
                return ", of finished tasks only"
            return "" if tasks.done else ", tasks are starting"

    def throughput(self) -> tuple[tuple[float, float], ...]:
        """Returns pairs of seconds since the call began, and the rows per second in the _RATE_S before; none without a bar.

        Tasks tell their rows once a second, and those of their last second when they end, so a shorter time shows peaks that
        never were.
        """
        with self._lock:
            if len(self._recent) == 1:  # no sample was taken
                return ()
            points = [*self._points, (time.monotonic() - self._begun, self._shown.records)]
        rates, first = [], 0
        for place, (end, after) in enumerate(points):
            while points[first + 1][0] <= end - _RATE_S:
                first += 1
            begin, before = points[first]
            if end - points[max(place - 1, 0)][0] >= POLL_S:
                rates.append((end, (after - before) / (end - begin)))
        return tuple(rates)


def progress_of(
    spark: SparkSession, metrics: DeliveryMetrics | None, show: bool | None = None
) -> AbstractContextManager[CallProgress]:
    """Follows the jobs that this thread starts within the block, and shows a bar.

    Args:
        spark: The session.
        metrics: Whose listener hears of running tasks. None: a new listener, which ends with the block.
        show: Whether to draw the bar; None: only in a notebook or a terminal.

    Threads: one draws every POLL_S. It ends with the block, which waits for it for at most JOIN_S. A SparkContext that was
    stopped only stops the bar.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        # PySpark's shell draws Spark's own bar.
        is_shown = (_is_seen() and os.environ.get("SPARK_CONNECT_PROGRESS_BAR_ENABLED") != "1") if show is None else show
        return _of_connect(spark, Feed() if metrics is None else metrics.feed, is_shown=is_shown)
    return _of_context(context, metrics, is_shown=_is_seen() if show is None else show)


def _is_seen() -> bool:
    return is_notebook() or sys.stderr.isatty()


@contextmanager
def _of_context(context: SparkContext, metrics: DeliveryMetrics | None, *, is_shown: bool) -> Iterator[CallProgress]:
    # A tag of our own, beside any job group that the user has set in this thread.
    tag = f"kafka-sink-{uuid.uuid4().hex}"
    if not is_shown or not _is_tagged(context, tag):
        if metrics is None or not metrics.available:
            yield CallProgress(Feed() if metrics is None else metrics.feed, None)
            return
        with _counting(context, metrics, tag) as progress:  # for the note of an interrupt
            yield progress
        return
    try:
        with _counting(context, metrics, tag) as progress, _drawn(partial(_tasks, context, tag), progress):
            yield progress
    finally:
        _remove_tag(context, tag)


@contextmanager
def _of_connect(spark: SparkSession, feed: Feed, *, is_shown: bool) -> Iterator[CallProgress]:
    """Shows the tasks that the server tells, by default every 2 s. It has no accumulators, so rows are not counted meanwhile."""
    progress, caller, told = CallProgress(feed, None), threading.get_ident(), [Tasks(0, 0, 0)]

    def take(*, stages: Sequence[Any], inflight_tasks: int, **_: object) -> None:
        if threading.get_ident() == caller:  # PySpark calls all handlers of the session, in the thread that waits for the job
            known, finished = (sum(map(attrgetter(name), stages)) for name in ("num_tasks", "num_completed_tasks"))
            told[0] = Tasks(known, inflight_tasks, finished, known)

    if not is_shown:
        yield progress
        return
    session: Any = spark  # PySpark's type of a handler is a class, and it takes any function
    session.registerProgressHandler(take)
    try:
        with _drawn(lambda: told[0], progress):
            yield progress
    finally:
        with suppress(ValueError):  # the program has removed all handlers
            session.removeProgressHandler(take)


@contextmanager
def _drawn(tasks: Callable[[], Tasks], progress: CallProgress) -> Iterator[None]:
    """Draws the bar of a call. tasks: returns their numbers, or raises once they are not known any more."""
    stop = threading.Event()
    with _bar() as bar:
        poller = threading.Thread(target=_poll, args=(tasks, bar, progress, stop), name="kafka-sink-bar", daemon=True)
        poller.start()
        try:
            yield
            progress.has_succeeded = True
        finally:
            stop.set()
            poller.join(JOIN_S)


@contextmanager
def _counting(context: SparkContext, metrics: DeliveryMetrics | None, call: str) -> Iterator[CallProgress]:
    finished = context.accumulator(Counts(), CountsParam())
    if metrics is not None and metrics.available:
        yield CallProgress(replace(metrics.feed, call=call, finished=finished), metrics.live_tasks)
        return
    live = LiveTasks()
    listener = listener_of(context, {PROGRESS: live.take})
    try:
        yield CallProgress(Feed(None, listener.address, call, finished), live)
    finally:
        listener.stop()


def _bar() -> AbstractContextManager[Any]:
    if is_notebook() and find_spec("ipywidgets") is None:
        return _NotebookLine()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        logger.info("no progress is shown, because tqdm is not installed")
        return nullcontext(SimpleNamespace(n=0, refresh=lambda: None, set_postfix_str=lambda text, refresh: None))
    bar: AbstractContextManager[Any] = tqdm(desc="kafka_sink", total=1, dynamic_ncols=True, bar_format=_FORMAT)
    return bar


# Rows say more than a rate of tasks. tqdm writes ", " before the postfix.
_FORMAT: Final = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}{postfix}]"


class _NotebookLine:
    """One line of a cell's output, replaced in place. Without ipywidgets tqdm warns, and writes red lines to stderr."""

    def __init__(self) -> None:
        display = import_module("IPython.display").display

        self.n = 0.0
        self._postfix = "starting"
        self._text = self._line()
        self._output = display({"text/plain": self._text}, raw=True, display_id=True)

    def set_postfix_str(self, text: str, *, refresh: bool) -> None:
        self._postfix = text

    def refresh(self) -> None:
        if self._text != self._line():
            self._text = self._line()
            self._output.update({"text/plain": self._text}, raw=True)

    def _line(self) -> str:
        return f"kafka_sink: {self._postfix}"

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


def _remove_tag(context: Any, tag: str) -> None:
    try:
        context.removeJobTag(tag)
    except Exception as error:  # the SparkContext was stopped, and the block's own error matters more
        logger.info("the tag of the bar's jobs was not removed: %s: %s", type(error).__name__, error)


def _jobs(context: Any, tag: str) -> list[int]:
    return list(context._jsc.sc().statusTracker().getJobIdsForTag(tag))


def _poll(ask: Callable[[], Tasks], bar: Any, progress: CallProgress, stop: threading.Event) -> None:
    tasks: Tasks | None = Tasks(0, 0, 0)
    stopped = False
    while not stopped:
        stopped = stop.wait(POLL_S)
        try:
            tasks = tasks and ask()
        except Exception as error:  # AttributeError, py4j's, PySpark's: the SparkContext was stopped
            tasks = None
            logger.info("the bar shows no tasks any more: %s: %s", type(error).__name__, error)
        if tasks is not None:
            if stopped and progress.has_succeeded:
                tasks = Tasks(tasks.begun or tasks.known, 0, tasks.begun or tasks.known)
            bar.n = progress.share(tasks)
        text = progress.text(tasks)
        if stopped and not progress.has_succeeded:
            text = f"failed: {text}"  # in front, because tqdm cuts off what a terminal of 80 columns has no space for
        bar.set_postfix_str(text, refresh=False)
        bar.refresh()


def _tasks(context: Any, tag: str) -> Tasks:
    """Returns the numbers of the tasks that Spark has planned so far."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in _jobs(context, tag)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    known = [stage for stage in stages if stage]
    begun = [stage for stage in known if stage.numActiveTasks or stage.numCompletedTasks]
    active, done = (sum(map(attrgetter(name), begun)) for name in ("numActiveTasks", "numCompletedTasks"))
    return Tasks(sum(stage.numTasks for stage in known), active, done, sum(stage.numTasks for stage in begun))
