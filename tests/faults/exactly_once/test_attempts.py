"""Attempts of tasks and of stages write side by side: each row is there once, and nothing of the others is seen or left open."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.exactly_once.failpoints import Failpoint
from tests.faults.exactly_once.conftest import MovedRows
from tests.faults.exactly_once.driver import Driver, Fleet
from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.failpoint_watch import Reached
from tests.faults.exactly_once.open_transactions import open_transactions
from tests.faults.exactly_once.siege import judge
from tests.faults.exactly_once.standalone import HOSTS, StandaloneCluster
from tests.faults.exactly_once.stepping import hold, running
from tests.kafka.brokers import Brokers

pytestmark = [
    pytest.mark.spark,
    pytest.mark.chaos,
    pytest.mark.embedded,
    pytest.mark.timeout(300),
    pytest.mark.whole("a Spark cluster or executors of their own, and ten seconds each"),
]

BATCHES = 4
TASKS = 2


# What Spark itself wrote down of a query's tasks: which attempts of which there were


def event_log(folder: Path) -> dict[str, str]:
    """Of a driver that writes its events into a file of the folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


@dataclass(frozen=True)
class TaskAttempt:
    """One that has begun. index: of the task in its stage. speculative: it is a copy of one that seemed slow."""

    stage: int
    stage_attempt: int
    index: int
    speculative: bool
    host: str


def task_attempts(folder: Path, query_id: str) -> list[TaskAttempt]:
    """Those of a query that is done. Spark writes them out at the end of each job at the latest."""
    stages = set[int]()
    found = []
    for event in _events(folder):
        match event:
            case {"Event": "SparkListenerStageSubmitted", "Stage Info": info, "Properties": {"sql.streaming.queryId": query}}:
                if query == query_id:
                    stages.add(info["Stage ID"])
            case {"Event": "SparkListenerTaskStart", "Stage ID": stage, "Stage Attempt ID": again, "Task Info": info}:
                if stage in stages:
                    found.append(TaskAttempt(stage, again, info["Index"], info["Speculative"], info["Host"]))
    return found


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.iterdir():
        if not path.name.startswith("."):  # Hadoop's checksums
            yield from (json.loads(line) for line in path.read_text().splitlines())


# Spark starts a copy of a task that seems slow. One of two is, and the other is what it is slower than.
SLOW_IN = 1

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "3",
    "spark.speculation.minTaskRuntime": "4s",  # a copy of one that nobody holds might write after the last commit
    "spark.speculation.efficiency.enabled": "false",
    "spark.python.task.killTimeout": "300s",  # who has lost is not killed for it, and writes on
}


class Speculation:
    """A cluster of two hosts, and drivers on it that copy slow tasks."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._events = folder / "events"
        self.cluster = stack.enter_context(StandaloneCluster(folder))
        settings = {**SPECULATION, **self.cluster.settings, **event_log(self._events)}
        self.fleet = stack.enter_context(Fleet(folder, settings=settings))

    def assert_a_copy_ran(self, query: Query) -> None:
        attempts = task_attempts(self._events, query.id)
        copied = {(each.stage, each.stage_attempt, each.index) for each in attempts if each.speculative}
        hosts = [{each.host for each in attempts if (each.stage, each.stage_attempt, each.index) == task} for task in copied]
        assert set(HOSTS) in hosts, attempts


@pytest.fixture(scope="module")
def speculation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speculation]:
    with ExitStack() as stack:
        yield Speculation(tmp_path_factory.mktemp("speculation"), stack)


@contextmanager
def copying(brokers: Brokers, moved_rows: MovedRows, speculation: Speculation) -> Iterator[tuple[Driver, Query]]:
    """A query and its driver; at the end it goes on until it is done, each row is there once, and a task has had a copy."""
    rows, moved = moved_rows(brokers, BATCHES)
    query = replace(moved, tasks=TASKS)
    with running(speculation.fleet, query, speculation.cluster.master) as driver:
        yield driver, query
    judge(brokers, rows, query)
    speculation.assert_a_copy_ran(query)


@pytest.mark.fault("spark", "speculation")
@pytest.mark.parametrize("until", ["commit.start", "commit.end"])
def test_the_copy_wins_and_what_it_was_copied_from_writes_on(
    until: Failpoint, three_brokers: Brokers, moved_rows: MovedRows, speculation: Speculation
) -> None:
    with copying(three_brokers, moved_rows, speculation) as (driver, _):
        slow = hold(driver, "flush.after", SLOW_IN)
        hold(driver, until, SLOW_IN).go()
        slow.go()


@pytest.mark.fault("spark", "speculation")
def test_the_slow_one_wins_and_its_copy_writes_on(
    three_brokers: Brokers, moved_rows: MovedRows, speculation: Speculation
) -> None:
    with copying(three_brokers, moved_rows, speculation) as (driver, _):
        slow = hold(driver, "produce.after", SLOW_IN)
        copy = hold(driver, "flush.after", SLOW_IN, nth=2)  # the first is the other task
        slow.go()
        hold(driver, "commit.start", SLOW_IN).go()
        copy.go()


@pytest.mark.fault("spark", "speculation")
def test_both_tell_the_driver_at_the_same_time(three_brokers: Brokers, moved_rows: MovedRows, speculation: Speculation) -> None:
    with copying(three_brokers, moved_rows, speculation) as (driver, _):
        slow = hold(driver, "message.before", SLOW_IN)
        copy = hold(driver, "message.before", SLOW_IN, nth=2)
        copy.go()
        slow.go()


def test_what_the_loser_writes_when_the_batch_is_committed_ends_with_the_next_one(
    three_brokers: Brokers, moved_rows: MovedRows, speculation: Speculation
) -> None:
    with copying(three_brokers, moved_rows, speculation) as (driver, query):
        slow = hold(driver, "produce.before", SLOW_IN)
        committed = hold(driver, "complete.after", SLOW_IN)
        assert not open_transactions(three_brokers, query.id)
        slow.go()
        late = hold(driver, "flush.after", SLOW_IN)
        assert late.pid == slow.pid
        assert len(open_transactions(three_brokers, query.id)) == 1
        late.go()
        committed.go()


# What the writing stage has to read is gone with an executor: Spark runs the stage before it again, and then a second attempt of
# the writing one, beside tasks of the first that still run.
LOST_IN = 1
# Of two cores each: beside a task that is held there is room for those that take its place.
EXECUTORS = "local-cluster[2,2,1024]"
BOTH_AT_ONCE = {"spark.cores.max": "4", "spark.scheduler.minRegisteredResourcesRatio": "1"}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def executors(events: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("executors"), settings={**BOTH_AT_ONCE, **event_log(events)}) as made:
        yield made


def lose_rows_of_the_first_stage(driver: Driver) -> Reached:
    """Kills the executor of a writing task, and what the first stage has left there. The other task has written, and is held."""
    lost = hold(driver, "task.start", LOST_IN)
    written = hold(driver, "flush.after", LOST_IN)
    executor = driver.executor_of(lost.pid)
    assert executor not in (driver.jvm, driver.executor_of(written.pid))
    executor.kill()
    lost.leave()
    return written


def assert_all_was_written_by_a_second_attempt(events: Path, query: Query) -> None:
    """Of one stage at least: of both tasks, also of the one that ran."""
    tasks = defaultdict[tuple[int, int], set[int]](set)
    for each in task_attempts(events, query.id):
        tasks[each.stage, each.stage_attempt].add(each.index)
    both = set(range(TASKS))
    assert any(tasks[stage, 0] == both and tasks[stage, 1] == both for stage, attempt in list(tasks) if attempt), tasks


@pytest.mark.fault("spark", "a stage that is run again")
def test_the_second_attempt_of_the_stage_wins(
    three_brokers: Brokers, moved_rows: MovedRows, executors: Fleet, events: Path
) -> None:
    rows, moved = moved_rows(three_brokers, BATCHES)
    query = replace(moved, tasks=TASKS, shuffled=True)
    with running(executors, query, EXECUTORS) as driver:
        old = lose_rows_of_the_first_stage(driver)
        hold(driver, "commit.start", LOST_IN).go()
        old.go()
    judge(three_brokers, rows, query)
    assert_all_was_written_by_a_second_attempt(events, query)


@pytest.mark.fault("spark", "a stage that is run again")
def test_tasks_of_both_attempts_of_the_stage_end_together(
    three_brokers: Brokers, moved_rows: MovedRows, executors: Fleet, events: Path
) -> None:
    rows, moved = moved_rows(three_brokers, BATCHES)
    query = replace(moved, tasks=TASKS, shuffled=True)
    with running(executors, query, EXECUTORS) as driver:
        written = [lose_rows_of_the_first_stage(driver), *(hold(driver, "flush.after", LOST_IN) for _ in range(TASKS))]
        for each in written:
            each.go()
    judge(three_brokers, rows, query)
    assert_all_was_written_by_a_second_attempt(events, query)
