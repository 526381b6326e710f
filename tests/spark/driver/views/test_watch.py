from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.driver.views.watch import (
    Lines,
    NoAnswerError,
    NotebookCell,
    Screen,
    Terminal,
    screen_of,
    watch,
)
from spark_kafka_sink.spark.driver.views.watch_table import Reading, WatchTable
from spark_kafka_sink.spark.query_totals import QueryTotals
from tests.reports.test_report_html import Page
from tests.spark.counting import counting
from tests.spark.driver.test_history import batch
from tests.waiting import HOUR_S

NOW = 1_700_000_000.0


def reading(batches: int = 1, queries: int = 1) -> Reading:
    one = QueryTotals(batches, 10, NOW + batches, 1.0, 10, (1.0, 2.0, 4.0), batches)
    return Reading(NOW + batches, {f"query-{number}": one for number in range(queries)})


def shown(screen: Screen, *given: Reading | str) -> None:
    """Shows readings, or why there is none, each once, and then an interrupt ends the view."""
    left = list(given)

    def read() -> Reading:
        if not left:
            raise KeyboardInterrupt
        one = left.pop(0)
        if isinstance(one, str):
            raise NoAnswerError(one)
        return one

    watch(read, WatchTable(), screen, interval_s=0.001, timeout_s=None, again=True)


@pytest.fixture
def small_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "8")


class Display:
    """What a terminal of any width shows after text with the two escapes that a view uses."""

    def __init__(self, text: str) -> None:
        self.lines: list[str] = []
        row = 0
        for up, clear, written in re.findall(r"(?:\x1b\[(\d+)F)?(\x1b\[J)?([^\x1b]*)", text):
            row -= int(up or 0)
            if clear:
                del self.lines[row:]
            *whole, rest = written.split("\n")
            assert not rest
            self.lines[row:] = whole
            row += len(whole)
            assert row >= 0


@pytest.mark.usefixtures("small_terminal")
def test_a_terminal_shows_the_last_reading_in_place_and_no_line_wraps() -> None:
    out = io.StringIO()
    shown(Terminal(out), reading(1), reading(2, queries=9), reading(3, queries=2))
    lines = Display(out.getvalue()).lines
    assert [line.split()[0] for line in lines] == ["query", "query-0", "query-1"]
    assert lines[1].split()[1] == "3"
    assert max(map(len, lines)) <= 39


@pytest.mark.usefixtures("small_terminal")
def test_a_terminal_keeps_the_table_while_there_is_nothing_to_read() -> None:
    out = io.StringIO()
    shown(Terminal(out), reading(1), "no answer", "no answer")
    head, line, problem = Display(out.getvalue()).lines
    assert head.startswith("query")
    assert line.startswith("query-0")
    assert problem.endswith("no answer")


def test_lines_are_one_for_each_micro_batch_under_a_header_that_is_repeated() -> None:
    out, problems = io.StringIO(), io.StringIO()
    shown(Lines(out, problems), reading(1), *(reading(number) for number in range(1, 25)))
    lines = out.getvalue().splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("time")]
    assert heads == [0, 21]
    assert [line.split()[2] for line in lines if not line.startswith("time")] == [str(number) for number in range(1, 25)]
    assert "\x1b" not in out.getvalue()
    assert problems.getvalue() == ""


class Shown:
    """IPython's display of one output."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.pages: list[Page] = []

    def __call__(self, data: dict[str, str], *, raw: bool, display_id: bool = False) -> Shown:
        self.texts.append(data["text/plain"])
        self.pages.append(Page(data["text/html"]))
        return self

    update = __call__


def test_a_notebook_replaces_the_output_of_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Shown()
    monkeypatch.setitem(sys.modules, "IPython.display", cast("Any", SimpleNamespace(display=display)))
    shown(NotebookCell(), Reading(NOW, {}), reading(1), reading(2), "no answer")
    assert [text.splitlines()[1].split()[1] for text in display.texts[1:]] == ["1", "2", "2"]
    assert [page.rows[1][1] for page in display.pages[1:]] == ["1", "2", "2"]
    assert display.pages[0].text == display.texts[0] == "no query has committed yet"
    assert display.pages[3].text.endswith("no answer")


def test_a_view_ends_at_its_deadline() -> None:
    assert watch(reading, WatchTable(), Lines(io.StringIO(), io.StringIO()), interval_s=HOUR_S, timeout_s=0.05) == ""


def test_the_last_problem_is_returned_and_without_again_it_is_raised() -> None:
    def read() -> Reading:
        raise NoAnswerError("no answer")

    screen = Lines(io.StringIO(), io.StringIO())
    assert watch(read, WatchTable(), screen, interval_s=0.001, timeout_s=0.01, again=True) == "no answer"
    with pytest.raises(NoAnswerError, match="no answer"):
        watch(read, WatchTable(), screen, interval_s=0.001, timeout_s=0.01)


@pytest.fixture
def interrupts() -> Iterator[list[int]]:
    """The signals that reach a handler as PySpark's, which cancels all jobs."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    yield came
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_the_view_and_does_not_reach_the_handler_that_cancels_jobs(interrupts: list[int]) -> None:
    def read() -> Reading:
        os.kill(os.getpid(), signal.SIGINT)
        return reading()

    watch(read, WatchTable(), Lines(io.StringIO(), io.StringIO()), interval_s=60, timeout_s=30)
    assert interrupts == []
    os.kill(os.getpid(), signal.SIGINT)
    assert interrupts == [signal.SIGINT]


@pytest.mark.parametrize(("is_terminal", "kind"), [(True, Terminal), (False, Lines)])
def test_the_screen_is_what_stdout_is(is_terminal: bool, kind: type) -> None:
    out = cast("Any", SimpleNamespace(isatty=lambda: is_terminal))
    assert isinstance(screen_of(out, out), kind)
    assert isinstance(screen_of(out, out, notebook=True), NotebookCell)


@pytest.fixture
def metrics() -> Iterator[DeliveryMetrics]:
    made = counting()
    yield made
    made.close()


def test_a_driver_shows_its_own_queries(metrics: DeliveryMetrics, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        metrics.batch_committed(batch(number, records=500, bytes=2_000_000, retries=1))
    metrics.watch(timeout=0.01)
    # If another test has left a session of Spark, that says that the query does not run, and a line follows.
    _, line, *_ = capsys.readouterr().out.splitlines()
    assert line.split()[1:9] == ["b44074e6", "2", "500", "2.0", "250", "1.0", "8", "128"]


@pytest.mark.parametrize("wrong", [{"interval": 0}, {"timeout": -1.0}, {"interval": float("nan")}])
def test_a_time_that_is_none_is_refused(metrics: DeliveryMetrics, wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"must be a number of seconds above 0"):
        metrics.watch(**wrong)


@pytest.mark.parametrize("call", [DeliveryMetrics.watch, DeliveryMetrics.query_ids, lambda metrics: metrics.of("q")])
def test_where_nothing_is_counted_a_view_says_what_to_use(call: Callable[[DeliveryMetrics], object]) -> None:
    with pytest.raises(UsageError, match=r"Spark Connect has no accumulators, so deliveries are not counted; use publish\(df"):
        call(DeliveryMetrics(None))
