"""What judges the chaos has to be right itself."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_kafka_sink.exactly_once.failpoints import VARIABLE, Failpoint, FailpointError, reach
from tests.every import every
from tests.faults.exactly_once.failpoint_watch import FailpointWatch, Reached
from tests.faults.exactly_once.kills import (
    ALL_FAILPOINTS,
    COMMIT_FAILPOINTS,
    COMMITTERS,
    LATER,
    MORE_COMMITTERS,
    MORE_WORKERS,
    SOONER,
    SWEEP_FAILPOINTS,
    TASK_FAILPOINTS,
    WORKERS,
)
from tests.faults.exactly_once.numbered_rows import NumberedRows
from tests.faults.exactly_once.test_broken_rules import NOTICED
from tests.kafka.witness import Witnessed

Change = Callable[[list[Witnessed]], list[Witnessed]]


@pytest.fixture
def rows(tmp_path: Path) -> NumberedRows:
    return NumberedRows(tmp_path / "rows", batches=3, tasks=2, rows=4).write()


def delivered(rows: NumberedRows) -> list[Witnessed]:
    """As the sink should have written what is in the files."""
    numbers = [line for path in sorted(rows.folder.iterdir()) for line in path.read_text().split()]
    return [Witnessed(0, at, b"%d" % (int(number) % rows.keys), number.encode(), (), None) for at, number in enumerate(numbers)]


def test_rows_that_are_there_once_and_in_order_pass(rows: NumberedRows) -> None:
    assert len(delivered(rows)) == rows.total == 24
    rows.check(delivered(rows))


@every(
    "change, complaint",
    [
        (lambda found: found[:5] + found[6:], "key 3: 1 rows lost"),
        (lambda found: [*found, found[5]], "key 3: 1 rows twice"),
        (lambda found: found[::-1], "key 0: out of order"),
        (lambda found: [*found, found[0]._replace(value=b"24")], "key 0: rows that nobody sent"),
        (lambda found: [found[0]._replace(key=b"1"), *found[1:]], "row 0 stands under the key 1"),
        (lambda _: [], "key 3: 6 rows lost"),
    ],
)
def test_what_is_wrong_is_said(rows: NumberedRows, change: Change, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        rows.check(change(delivered(rows)))


def step_of(failpoint: Failpoint) -> str:
    """Both sides of a request are one step; a batch's start and its end are two."""
    step, _, side = failpoint.partition(".")
    return step if side in ("before", "after") else failpoint


def test_every_run_kills_at_each_step_and_make_test_all_at_each_failpoint() -> None:
    every_run = {kill.failpoint for kill in (*WORKERS, *COMMITTERS)}
    failpoints = {*TASK_FAILPOINTS, *COMMIT_FAILPOINTS, *SWEEP_FAILPOINTS}
    assert {step_of(each) for each in every_run} == {step_of(each) for each in failpoints}
    assert every_run | {kill.failpoint for kill in (*MORE_WORKERS, *MORE_COMMITTERS)} == failpoints
    assert {*SOONER, *LATER} == set(ALL_FAILPOINTS)


@every("rule", NOTICED)
def test_every_run_has_the_kill_that_each_broken_rule_is_noticed_by(rule: str) -> None:
    kill, _ = NOTICED[rule]
    assert kill in [*WORKERS, *COMMITTERS]


@pytest.mark.parametrize("answer", ["go", "fail"])
def test_a_process_waits_at_a_failpoint_for_an_answer(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: queue.SimpleQueue[Reached] = queue.SimpleQueue()
    watch = FailpointWatch(waiting.put)
    monkeypatch.setenv(VARIABLE, str(watch.port))
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(outcome()))
    thread.start()
    reached = waiting.get(timeout=10)
    assert (reached.name, reached.batch, reached.pid, said) == ("flush.before", 4, os.getpid(), [])
    if answer == "go":
        reached.go()
    else:
        reached.fail("on purpose")
    thread.join(10)
    watch.close()
    assert said == [{"go": "went on", "fail": "flush.before: on purpose"}[answer]]


def outcome() -> str:
    try:
        reach("flush.before", 4)
    except FailpointError as error:
        return str(error)
    return "went on"
