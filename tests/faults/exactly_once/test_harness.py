"""What judges the chaos has to be right itself."""

from __future__ import annotations

import os
import queue
import random
import subprocess
import sys
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
    Kill,
    Victim,
)
from tests.faults.exactly_once.numbered_rows import NumberedRows
from tests.faults.exactly_once.random_kills import random_kill
from tests.faults.exactly_once.siege import is_of_the_commit
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


def test_all_rows_of_a_key_are_in_one_file_of_a_batch(rows: NumberedRows) -> None:
    files = [path.read_text().split() for path in rows.folder.glob("batch-00001-*")]
    keys = [{int(number) % rows.keys for number in numbers} for numbers in files]
    assert len(keys) == 2
    assert keys[0].isdisjoint(keys[1])


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


def test_a_seed_draws_the_same_kills_again() -> None:
    draws = [random.Random(seed) for seed in (7, 7, 8)]
    first, again, other = ([random_kill(draw) for _ in range(50)] for draw in draws)
    assert first == again != other
    assert len({kill.victim for kill in first}) > 3


@every("victim", Victim)
@every("failpoint, commits", [("flush.after", False), ("end.after", True)])
def test_a_query_may_fail_only_where_its_commit_was_killed(victim: Victim, failpoint: Failpoint, commits: bool) -> None:
    its_process = victim in {Victim.PYTHON, Victim.ERROR}
    assert is_of_the_commit(Kill(victim, failpoint)) == (commits and its_process)


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


def test_what_java_prints_on_stdout_is_no_event() -> None:
    program = "; ".join(
        [
            "import subprocess",
            "from tests.faults.exactly_once.driver_program import events, say",
            "out = events()",
            "subprocess.run(['echo', '[warning] from Java'], check=True)",
            "print('from Spark', flush=True)",
            "say(out, event='ready')",
        ]
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == '{"event": "ready"}\n'
    assert said.stderr == "[warning] from Java\nfrom Spark\n"
