"""Spark starts a copy of a task that seems slow, and both write side by side: one of them counts, nothing of the other is seen or
left open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from spark_kafka_sink.exactly_once.failpoints import Failpoint
from tests.faults.exactly_once import event_log
from tests.faults.exactly_once.conftest import MovedRows
from tests.faults.exactly_once.driver import Driver
from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.event_log import task_attempts
from tests.faults.exactly_once.fleet import Fleet
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
    pytest.mark.whole("a Spark cluster of its own, and ten seconds each"),
]

BATCHES = 4
SLOW_IN = 1
TASKS = 2  # one is slow, and the other is what it is slower than

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
        settings = {**SPECULATION, **self.cluster.settings, **event_log.settings(self._events)}
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
