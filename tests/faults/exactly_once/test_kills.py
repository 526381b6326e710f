"""Whatever dies, at whatever step of a batch, each row reaches readers of committed records once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_sink.exactly_once.steps import Step
from tests.faults.exactly_once.conftest import MovedRows
from tests.faults.exactly_once.driver import EXECUTORS, LOCAL
from tests.faults.exactly_once.fleet import Fleet
from tests.faults.exactly_once.kills import COMMIT_STEPS, SWEEP_STEPS, TASK_STEPS, Kill, Victim
from tests.faults.exactly_once.open_transactions import ongoing
from tests.faults.exactly_once.siege import Siege, judge
from tests.faults.exactly_once.stepping import hold, running
from tests.kafka.brokers import Brokers
from tests.kafka.fixtures import only_real_kafka

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(900)]

PYTHON, EXECUTOR, DRIVER, BROKER, BROKERS, ERROR = Victim
CALM_BATCHES = 3  # before the first kill, after the last

# Before and after each of: the first produce, the flush, the commit message, the prepared record, an EndTxn, the complete record,
# Spark's own commit log.
ALL_STEPS: Sequence[Step] = (
    "produce.before",
    "produce.after",
    "flush.before",
    "flush.after",
    "message.before",
    "commit.start",
    "prepared.before",
    "prepared.after",
    "end.before",
    "end.after",
    "complete.before",
    "complete.after",
    "commit.end",
    "task.start",
)

WORKERS = [
    *(Kill(PYTHON, step) for step in TASK_STEPS),
    *(Kill(PYTHON, step, nth=4) for step in TASK_STEPS),
    *(Kill(ERROR, step, nth=2) for step in TASK_STEPS),
    # The second attempt of a task as well.
    Kill(PYTHON, "flush.after"),
    Kill(PYTHON, "flush.after", again=True),
    Kill(ERROR, "produce.after"),
    Kill(PYTHON, "message.before", again=True),
]
COMMITTERS = [
    *(Kill(PYTHON, step) for step in COMMIT_STEPS),
    *(Kill(PYTHON, "end.after", nth=nth) for nth in (2, 3, 4)),
    *(Kill(ERROR, step) for step in ("log.after", "prepared.before", "prepared.after", "end.after", "complete.after")),
]
# Who makes a kill good is killed as well.
COMMITTERS_AGAIN = [
    Kill(PYTHON, "prepared.after"),
    Kill(PYTHON, "end.after", again=True),
    Kill(PYTHON, "complete.before", again=True),
    Kill(PYTHON, "complete.after", again=True),
    Kill(PYTHON, "commit.end", again=True),
    Kill(PYTHON, "end.after", nth=2),
    Kill(PYTHON, "flush.after", again=True),
    Kill(PYTHON, "log.after", again=True),
    Kill(PYTHON, "commit.end"),
    *(Kill(PYTHON, step, again=True) for step in SWEEP_STEPS),
]


def assert_each_row_once(
    brokers: Brokers, fleet: Fleet, moved_rows: MovedRows, kills: Sequence[Kill], *, master: str = LOCAL, **query: Any
) -> None:
    rows, moved = moved_rows(brokers, len(kills) + CALM_BATCHES)
    # Run again, a batch is written by other tasks than before, each with other rows.
    variants = [replace(moved, **query), replace(moved, **query, tasks=3)]
    with Siege(brokers, variants, fleet, master) as siege:
        siege.run(kills)
        siege.judge(rows)
    assert siege.made == list(kills)


class TestPython:
    """Workers, and the process that commits: Spark runs a task again, and a query is run again in the same driver."""

    @pytest.mark.embedded
    def test_workers(self, three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        assert_each_row_once(three_brokers, fleet, moved_rows, WORKERS)

    @only_real_kafka  # on embedded brokers: `make chaos`
    def test_who_commits(self, kafka3: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        assert_each_row_once(kafka3, fleet, moved_rows, [*COMMITTERS, *COMMITTERS_AGAIN])

    @only_real_kafka  # commits on embedded brokers with version 1: tests/exactly_once/
    def test_transactions_of_version_1(self, kafka_tv1: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        assert_each_row_once(kafka_tv1, fleet, moved_rows, [*WORKERS[:6:2], *COMMITTERS[3:12], *COMMITTERS_AGAIN])


@pytest.mark.embedded
class TestJava:
    """What takes seconds to start again. Each is killed on embedded brokers only: which brokers they are is nothing to it."""

    def test_executors(self, three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        kills = [Kill(EXECUTOR, step) for step in ALL_STEPS]
        assert_each_row_once(three_brokers, fleet, moved_rows, kills, master=EXECUTORS, shuffled=True)

    def test_drivers(self, three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        kills = [*(Kill(DRIVER, step) for step in ALL_STEPS), Kill(DRIVER, "end.after", nth=3)]
        assert_each_row_once(three_brokers, fleet, moved_rows, kills)

    def test_a_commit_that_outlives_its_driver(self, three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        """Its process goes on where it stood, and ends the transactions; the next driver finds them committed."""
        rows, query = moved_rows(three_brokers, CALM_BATCHES)
        with fleet.take() as dead:
            dead.run(query)
            held = hold(dead, "prepared.after", 1)
            dead.kill()
            assert len(ongoing(three_brokers, query.id)) == query.files
            held.go()
            dead.wait_for_workers()
        assert not ongoing(three_brokers, query.id)
        with running(fleet, query):
            pass
        judge(three_brokers, rows, query)


class TestBrokers:
    def test_one_broker_at_a_time(self, kafka3: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        """Each time the one that the step depends on: of a partition of rows, of a transaction's end, of the commit log."""
        assert_each_row_once(kafka3, fleet, moved_rows, [Kill(BROKER, step) for step in ALL_STEPS])

    @pytest.mark.embedded
    def test_all_brokers_at_once(self, three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        assert_each_row_once(three_brokers, fleet, moved_rows, [Kill(BROKERS, step) for step in ALL_STEPS])

    @only_real_kafka
    def test_all_brokers_at_once_on_disk(self, kafka3: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        """Where what was acked has to be found again: fewer, as three of these take long to start."""
        kills = [Kill(BROKERS, step) for step in ("prepared.after", "end.after", "complete.before")]
        assert_each_row_once(kafka3, fleet, moved_rows, kills)
