"""Whatever dies, at whatever failpoint of a batch, each row reaches readers of committed records once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.exactly_once.failpoints import Failpoint
from tests.faults.exactly_once.conftest import MovedRows
from tests.faults.exactly_once.driver import EXECUTORS, LOCAL
from tests.faults.exactly_once.fleet import Fleet
from tests.faults.exactly_once.kills import (
    ALL_FAILPOINTS,
    BROKERS_OF_EVERY_RUN,
    COMMITTED_IN_PART,
    COMMITTERS,
    COMMITTERS_OF_VERSION_1,
    DRIVERS_OF_EVERY_RUN,
    EXECUTORS_OF_EVERY_RUN,
    LATER,
    MORE_COMMITTERS,
    MORE_OF_VERSION_1,
    MORE_WORKERS,
    SOONER,
    WORKERS,
    Kill,
    Victim,
)
from tests.faults.exactly_once.open_transactions import ongoing
from tests.faults.exactly_once.siege import Siege, judge
from tests.faults.exactly_once.stepping import hold, running
from tests.kafka.brokers import Brokers
from tests.kafka.fixtures import only_real_kafka

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(900)]

PYTHON, EXECUTOR, DRIVER, BROKER, BROKERS = Victim.PYTHON, Victim.EXECUTOR, Victim.DRIVER, Victim.BROKER, Victim.BROKERS
CALM_BATCHES = 2  # before the first kill, after the last


# In the run that `make test` has time for. An executor's death is that of its workers, with another Java to start.
ONE_OF_EACH = [
    Kill(PYTHON, "flush.after"),
    COMMITTED_IN_PART,  # in the first run of the query, which has four tasks
    Kill(BROKER, "end.after"),
    Kill(DRIVER, "prepared.before"),
]


def in_parts(kills: Sequence[Kill], more: Sequence[Kill]) -> pytest.MarkDecorator:
    """Parametrizes a test with the kills that show most, and with all others; a failure of one does not hide the other."""
    mark = pytest.mark.whole("each kill takes 4 to 16 s; test_one_of_each kills a worker, a commit, a broker and the driver")
    return pytest.mark.parametrize(
        "kills", [pytest.param(each, id=name, marks=mark) for name, each in (("first", kills), ("more", more))]
    )


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


@pytest.mark.fault("spark", "SIGKILL of a Python worker")
@pytest.mark.fault("spark", "the driver or its commit process killed before, during and after the commit")
@pytest.mark.fault("spark", "brokers killed")
@pytest.mark.embedded
def test_one_of_each(three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
    """A worker, the process that commits, a broker and the driver, one after the other in one query."""
    assert_each_row_once(three_brokers, fleet, moved_rows, ONE_OF_EACH)


class TestPython:
    """Workers, and the process that commits: Spark runs a task again, and a query is run again in the same driver."""

    @pytest.mark.fault("spark", "SIGKILL of a Python worker")
    @pytest.mark.embedded
    @in_parts(WORKERS, MORE_WORKERS)
    def test_workers(self, kills: Sequence[Kill], three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        assert_each_row_once(three_brokers, fleet, moved_rows, kills)

    @pytest.mark.fault("spark", "the driver or its commit process killed before, during and after the commit")
    @only_real_kafka  # on embedded brokers: `make chaos`
    @in_parts(COMMITTERS, MORE_COMMITTERS)
    def test_who_commits(self, kills: Sequence[Kill], kafka3: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        assert_each_row_once(kafka3, fleet, moved_rows, kills)

    @pytest.mark.fault("spark", "SIGKILL of processes that write dead letters")
    @pytest.mark.whole("tests/spark/task/test_bad_rows_in_transactions.py has letters in transactions; each kill takes 4 to 16 s")
    @only_real_kafka
    def test_dead_letters(self, kafka3: Brokers, fleet: Fleet, tmp_path: Path, moved_rows: MovedRows) -> None:
        """They are in the transactions of their tasks, so each bad row is there once, too."""
        kills = [Kill(PYTHON, failpoint) for failpoint in ("produce.after", "flush.after", "message.before", "prepared.after")]
        kills += [Kill(PYTHON, "end.after"), COMMITTED_IN_PART, Kill(PYTHON, "complete.after")]
        letters = kafka3.create_topic(f"letters-{tmp_path.parent.name}", 2)
        rows, moved = moved_rows(kafka3, len(kills) + CALM_BATCHES, **{"on.error": "dead-letter", "dead.letter.topic": letters})
        moved = replace(moved, bad_every=7)
        with Siege(kafka3, [moved, replace(moved, tasks=3)], fleet, LOCAL) as siege:
            siege.run(kills)
            siege.judge(rows)
        assert siege.made == kills

    @only_real_kafka  # commits on embedded brokers with version 1: tests/exactly_once/
    @pytest.mark.whole("each kill takes 4 to 16 s; tests/exactly_once has commits with version 1 on real Kafka")
    @pytest.mark.parametrize("kills", [COMMITTERS_OF_VERSION_1, MORE_OF_VERSION_1], ids=["first", "more"])
    def test_transactions_of_version_1(
        self, kills: Sequence[Kill], kafka_tv1: Brokers, fleet: Fleet, moved_rows: MovedRows
    ) -> None:
        assert_each_row_once(kafka_tv1, fleet, moved_rows, kills)


@pytest.mark.embedded
class TestJava:
    """What takes seconds to start again. Each is killed on embedded brokers only: which brokers they are is nothing to it."""

    @pytest.mark.fault("spark", "SIGKILL of an executor")
    @in_parts(
        [Kill(EXECUTOR, failpoint) for failpoint in EXECUTORS_OF_EVERY_RUN],
        [Kill(EXECUTOR, failpoint) for failpoint in ALL_FAILPOINTS if failpoint not in EXECUTORS_OF_EVERY_RUN],
    )
    def test_executors(self, kills: Sequence[Kill], three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        assert_each_row_once(three_brokers, fleet, moved_rows, kills, master=EXECUTORS, shuffled=True)

    @pytest.mark.fault("spark", "the driver or its commit process killed before, during and after the commit")
    @in_parts(
        [Kill(DRIVER, failpoint) for failpoint in DRIVERS_OF_EVERY_RUN],
        [
            *(Kill(DRIVER, failpoint) for failpoint in ALL_FAILPOINTS if failpoint not in DRIVERS_OF_EVERY_RUN),
            Kill(DRIVER, "end.after", nth=3),
        ],
    )
    def test_drivers(self, kills: Sequence[Kill], three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        assert_each_row_once(three_brokers, fleet, moved_rows, kills)

    @pytest.mark.fault("spark", "the driver or its commit process killed before, during and after the commit")
    @pytest.mark.whole("test_one_of_each kills a driver whose commit goes on beside its successor")
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
    @pytest.mark.fault("spark", "brokers killed")
    @in_parts(
        [Kill(BROKER, failpoint) for failpoint in BROKERS_OF_EVERY_RUN],
        [Kill(BROKER, failpoint) for failpoint in ALL_FAILPOINTS if failpoint not in BROKERS_OF_EVERY_RUN],
    )
    def test_one_broker_at_a_time(self, kills: Sequence[Kill], kafka3: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        """Each time the one that the failpoint depends on: of a partition of rows, of a transaction's end, of the commit log."""
        assert_each_row_once(kafka3, fleet, moved_rows, kills)

    @pytest.mark.fault("spark", "brokers killed")
    @pytest.mark.embedded
    @pytest.mark.whole("each kill takes 4 to 16 s; the test before it kills one broker after the other")
    @pytest.mark.parametrize("failpoints", [SOONER, LATER], ids=["first", "more"])
    def test_all_brokers_at_once(
        self, failpoints: Sequence[Failpoint], three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows
    ) -> None:
        assert_each_row_once(three_brokers, fleet, moved_rows, [Kill(BROKERS, failpoint) for failpoint in failpoints])

    @pytest.mark.fault("spark", "brokers killed")
    @pytest.mark.whole("the first half of a minute is the start of brokers")
    @only_real_kafka
    def test_all_brokers_at_once_on_disk(self, kafka3: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        """Where what was acked has to be found again: fewer, as three of these take long to start."""
        kills = [Kill(BROKERS, failpoint) for failpoint in ("prepared.after", "end.after", "complete.before")]
        assert_each_row_once(kafka3, fleet, moved_rows, kills)
