from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.spark.driver.listener import LiveTasks
from spark_kafka_sink.spark.driver.views import progress_bar
from spark_kafka_sink.spark.driver.views.progress_bar import SILENT_S, CallProgress, Tasks, progress_of
from spark_kafka_sink.spark.feed import Counts, Feed
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.spark.counting import Context
from tests.spark.frames import numbers, options
from tests.spark.task.test_progress_sender import message


@pytest.fixture(autouse=True)
def _in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has 80 columns. On a busy machine the bar's thread may need more than JOIN_S for its last line."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setattr(progress_bar, "JOIN_S", 60.0)


class Refusing:
    """A context of a cluster that lets a program follow no jobs."""

    def __init__(self, refused: str) -> None:
        self._refused = refused

    def __getattr__(self, name: str) -> Any:
        if name == self._refused:
            raise Py4JError(f"Method {name} is not whitelisted")
        return lambda *_: None


class Session:
    def __init__(self, context: object) -> None:
        self._sc = context


@pytest.mark.parametrize("refused", ["addJobTag", "_jsc"])
def test_a_job_runs_without_a_bar_where_progress_cannot_be_followed(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_of(cast("SparkSession", Session(Refusing(refused))), None, show=True) as progress:
        assert not progress.is_counted
    assert capsys.readouterr().err == ""


class ConnectSession:
    """A session of Spark Connect, which has no SparkContext."""

    def __init__(self) -> None:
        self.handlers: list[Callable[..., None]] = []

    def registerProgressHandler(self, handler: Callable[..., None]) -> None:
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Callable[..., None]) -> None:
        self.handlers.remove(handler)

    def tell(self, *done_of_all: tuple[int, int]) -> None:
        """Calls the handlers, as PySpark's client does in the thread that waits for an operation."""
        stages = [SimpleNamespace(num_tasks=known, num_completed_tasks=done) for done, known in done_of_all]
        for handler in self.handlers:
            handler(stages=stages, inflight_tasks=1, operation_id="an id", done=False)


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.rpartition("\r")[2]


@pytest.mark.parametrize(("fails", "shown"), [(False, ("4 of 4 tasks]", "100%|")), (True, ("failed: 3 of 4 tasks]", "75%|"))])
def test_on_spark_connect_the_bar_shows_the_tasks_of_this_threads_operation(
    *, fails: bool, shown: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    session = ConnectSession()
    with suppress(ZeroDivisionError), progress_of(cast("SparkSession", session), None, show=True) as progress:
        assert not progress.is_counted
        session.tell((2, 2), (1, 2))
        another = threading.Thread(target=session.tell, args=((0, 9),))
        another.start()
        another.join()
        if fails:
            raise ZeroDivisionError
    last = last_line(capsys)
    assert [text for text in shown if text not in last] == []
    assert session.handlers == []
    assert progress.throughput() == ()


def test_on_spark_connect_a_call_that_is_too_short_for_a_report_ends_full(capsys: pytest.CaptureFixture[str]) -> None:
    session = ConnectSession()
    with progress_of(cast("SparkSession", session), None, show=True):
        session.handlers.clear()  # as spark.clearProgressHandlers() does
    assert "100%|" in (last := last_line(capsys))
    assert "starting" not in last


@pytest.mark.parametrize(("in_shell", "is_drawn"), [("0", True), ("1", False)])
def test_in_pysparks_shell_on_spark_connect_sparks_own_bar_is_the_only_one(
    in_shell: str, *, is_drawn: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_CONNECT_PROGRESS_BAR_ENABLED", in_shell)
    monkeypatch.setattr(progress_bar, "_is_seen", lambda: True)
    with progress_of(cast("SparkSession", ConnectSession()), None):
        pass
    assert ("kafka_sink" in capsys.readouterr().err) is is_drawn


class Leaving(Context):
    """A SparkContext that shows one task, until the test has it do something else."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self._then = then
        self.has_left = False
        self.asked_since = threading.Event()
        self.stages = {1: SimpleNamespace(numTasks=1, numActiveTasks=1, numCompletedTasks=0)}
        self._tracker = SimpleNamespace(
            getJobIdsForTag=self._job_ids,
            getJobInfo=lambda job: SimpleNamespace(stageIds=list(self.stages)),
            getStageInfo=lambda number: self.stages[number],
        )
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: self._tracker))

    def _job_ids(self, tag: str) -> list[int]:
        if self.has_left:
            self.asked_since.set()
            self._then()
        return [1]

    def statusTracker(self) -> Any:
        return self._tracker

    def addJobTag(self, tag: str) -> None:
        assert not self.has_left

    def removeJobTag(self, tag: str) -> None:
        if self.has_left:
            raise AttributeError("'NoneType' object has no attribute 'sc'")


def refuse() -> None:
    raise Py4JError("Cannot call methods on a stopped SparkContext")


def test_a_spark_context_that_is_stopped_meanwhile_only_stops_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    context = Leaving(refuse)
    with pytest.raises(ZeroDivisionError), progress_of(cast("SparkSession", Session(context)), None, show=True) as progress:
        context.has_left = True
        assert context.asked_since.wait(10)
        raise ZeroDivisionError
    assert raised == []
    assert progress.throughput()


@pytest.mark.parametrize("fails", [False, True])
def test_the_bar_is_full_after_success_although_stages_were_skipped_and_says_so_after_a_failure(
    *, fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    context = Leaving(lambda: None)
    context.stages[2] = SimpleNamespace(numTasks=7, numActiveTasks=0, numCompletedTasks=0)
    with suppress(ZeroDivisionError), progress_of(cast("SparkSession", Session(context)), None, show=True):
        context.has_left = True
        assert context.asked_since.wait(10)
        context.removeJobTag = lambda tag: None  # type: ignore[method-assign]
        if fails:
            raise ZeroDivisionError
    last = capsys.readouterr().err.rpartition("\r")[2]
    found = ("failed: 0 of 8 tasks, 0 rows", "0%|") if fails else ("1 of 1 task, 0 rows", "100%|", "0 retries]")
    assert [text for text in found if text not in last] == []


def test_a_spark_context_that_does_not_answer_does_not_hold_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "JOIN_S", 0.2)
    released = threading.Event()
    context = Leaving(released.wait)
    with progress_of(cast("SparkSession", Session(context)), None, show=True):
        (poller,) = (thread for thread in threading.enumerate() if thread.name == "kafka-sink-bar")
        context.has_left = True
        assert context.asked_since.wait(10)
    released.set()
    poller.join(10)
    assert not poller.is_alive()


class Shown:
    """IPython's display of a cell: the texts of one output, in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Shown:
        assert raw
        assert display_id
        self.update(data, raw=raw)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.texts.append(data["text/plain"])


def test_a_notebook_without_ipywidgets_gets_one_line_that_is_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown, shell = Shown(), SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", cast("Any", SimpleNamespace(get_ipython=lambda: shell)))
    monkeypatch.setitem(sys.modules, "IPython.display", cast("Any", SimpleNamespace(display=shown)))
    monkeypatch.setattr(progress_bar, "find_spec", lambda name: None)
    with progress_bar._bar() as bar:
        bar.set_postfix_str("1 of 2 tasks", refresh=False)
        bar.refresh()
        bar.refresh()
        bar.set_postfix_str("2 of 2 tasks", refresh=False)
    assert shown.texts == ["kafka_sink: starting", "kafka_sink: 1 of 2 tasks", "kafka_sink: 2 of 2 tasks"]
    assert capsys.readouterr() == ("", "")


def test_without_tqdm_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with progress_bar._bar() as bar:
        bar.n = 1
        bar.refresh()
    assert capsys.readouterr() == ("", "")


def progress() -> tuple[CallProgress, Any, LiveTasks]:
    finished, live = SimpleNamespace(value=Counts()), LiveTasks()
    return CallProgress(Feed(call="c", finished=cast("Any", finished)), live), finished, live


def test_rows_of_finished_and_of_running_tasks_are_delivered() -> None:
    call, finished, live = progress()
    finished.value = Counts(100, 1000, 1)
    live.take(message("1", 5))
    live.take(message("2", 50, call="another"))
    assert call.delivered() == Counts(105, 1050, 2)


def test_what_is_shown_does_not_fall_while_spark_adds_up_a_task_that_has_ended() -> None:
    call, finished, live = progress()
    live.take(message("1", 50))
    assert call.delivered().records == 50
    live.take(message("1", 60, is_running=False))
    assert call.delivered().records == 50
    finished.value = Counts(60, 600, 1)
    assert call.delivered().records == 60


class Clock:
    """In place of the module `time`."""

    def __init__(self, now: float) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now


def test_the_text_has_rows_and_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(100.0)
    monkeypatch.setattr(progress_bar, "time", clock)
    call, finished, _ = progress()
    clock.now, finished.value = 102.0, Counts(1_000_000, 100_000_000, 3)
    assert call.sample() == "1,000,000 rows, 500,000 rows/s, 50.0 MB/s, 3 retries"
    clock.now = 110.0
    assert call.sample() == "1,000,000 rows, 0 rows/s, 0.0 MB/s, 3 retries"


def test_a_running_task_counts_by_its_rows_as_many_as_finished_ones_had() -> None:
    call, finished, live = progress()
    live.take(message("1", 50))
    assert call.share(Tasks(4, 1, 0)) == 0
    finished.value = Counts(200)
    assert call.share(Tasks(4, 1, 2)) == 2.5 / 4
    live.take(message("1", 5000))
    assert call.share(Tasks(4, 1, 2)) == 2.9 / 4
    assert call.share(Tasks(4, 0, 4)) == 1


def test_only_tasks_that_run_for_some_seconds_without_a_report_seem_unable_to_reach_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(0.0)
    monkeypatch.setattr(progress_bar, "time", clock)
    call, _, live = progress()
    assert call.missing(Tasks(0, 0, 0)) == ""
    assert call.missing(Tasks(4, 0, 0)) == ", no task has started"
    clock.now = 100.0
    assert call.missing(Tasks(4, 2, 0)) == ", tasks are starting"
    clock.now += SILENT_S - 1
    assert call.missing(Tasks(4, 2, 0)) == ", tasks are starting"
    assert call.missing(Tasks(4, 2, 1)) == ""
    clock.now += 1
    assert call.missing(Tasks(4, 2, 1)) == ", of finished tasks only"
    assert call.missing(Tasks(4, 0, 4)) == ""
    live.take(message("1", 5))
    call.delivered()
    assert call.missing(Tasks(4, 2, 1)) == ""


@pytest.mark.whole("a long task; task/test_live.py has what a running task tells the driver")
@pytest.mark.spark
def test_the_bar_moves_inside_a_long_task(
    spark: SparkSession,
    kafka: Kafka,
    new_topic: NewTopic,
    metrics: sks.DeliveryMetrics,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = set(threading.enumerate())
    slow = options(kafka, topic=new_topic(), max__records__per__second="2000")
    df = numbers(spark, 10_000, tasks=1)  # 2,000 at once, and the others in 4 s
    sks.publish(df, options=slow, progress=True, metrics=metrics)
    shown = capsys.readouterr().err
    while_running = [int(rows.replace(",", "")) for rows in re.findall(r"0 of 1 task, ([0-9,]+) rows, [0-9,]+ rows/s", shown)]
    assert any(0 < rows < 10_000 for rows in while_running)
    assert "1 of 1 task, " in shown
    assert "10,000 rows" in shown
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("kafka-sink")]
