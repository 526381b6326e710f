"""What the writing stage has to read is gone with an executor: Spark runs the stage before it again, and then a second attempt of
the writing one, beside tasks of the first that still run. Each row is there once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.exactly_once import event_log
from tests.faults.exactly_once.conftest import MovedRows
from tests.faults.exactly_once.driver import Driver
from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.event_log import task_attempts
from tests.faults.exactly_once.failpoint_watch import Reached
from tests.faults.exactly_once.fleet import Fleet
from tests.faults.exactly_once.siege import judge
from tests.faults.exactly_once.stepping import hold, running
from tests.kafka.brokers import Brokers

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.embedded, pytest.mark.timeout(300)]

BATCHES = 4
LOST_IN = 1
TASKS = 2
# Of two cores each: beside a task that is held there is room for those that take its place.
EXECUTORS = "local-cluster[2,2,1024]"
BOTH_AT_ONCE = {"spark.cores.max": "4", "spark.scheduler.minRegisteredResourcesRatio": "1"}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def executors(events: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("executors"), settings={**BOTH_AT_ONCE, **event_log.settings(events)}) as made:
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
@pytest.mark.whole("a minute; the kills of executors in make test lose shuffled rows as well")
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
@pytest.mark.whole("as long as the test before it")
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
