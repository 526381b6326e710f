"""Whatever dies, at whatever failpoint of a batch, each row reaches readers of committed records once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.spark.report_record import ReportRecord
from tests.faults.exactly_once.conftest import MovedRows
from tests.faults.exactly_once.driver import EXECUTORS, LOCAL, Fleet
from tests.faults.exactly_once.kills import (
    ALL_FAILPOINTS,
    COMMITTED_IN_PART,
    COMMITTERS,
    COMMITTERS_OF_VERSION_1,
    WORKERS,
    Kill,
    Victim,
)
from tests.faults.exactly_once.siege import Siege
from tests.kafka.brokers import Brokers
from tests.kafka.fixtures import only_real_kafka
from tests.kafka.witness import read_topic

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


each_failpoint = pytest.mark.whole(
    "each kill takes 4 to 16 s; test_one_of_each kills a worker, a commit, a broker and the driver"
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
    @each_failpoint
    def test_workers(self, three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        assert_each_row_once(three_brokers, fleet, moved_rows, WORKERS)

    @pytest.mark.fault("spark", "the driver or its commit process killed before, during and after the commit")
    @only_real_kafka  # on embedded brokers: `make chaos`
    @each_failpoint
    @pytest.mark.parametrize("kills", [COMMITTERS[:14], COMMITTERS[14:]], ids=["first", "more"])
    def test_who_commits(self, kills: Sequence[Kill], kafka3: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        assert_each_row_once(kafka3, fleet, moved_rows, kills)

    @pytest.mark.fault("spark", "SIGKILL of processes that write dead letters")
    @pytest.mark.whole("tests/spark/task/test_bad_rows.py has letters in transactions; each kill takes 4 to 16 s")
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

    @pytest.mark.whole("tests/spark/plan/test_report_topic.py stops a commit; each kill takes 4 to 16 s")
    @only_real_kafka
    def test_reports(self, kafka3: Brokers, fleet: Fleet, tmp_path: Path, moved_rows: MovedRows) -> None:
        """They are prepared with the transactions of tasks, so each batch has one."""
        kills = [Kill(PYTHON, failpoint) for failpoint in ("message.before", "commit.start", "prepared.after", "end.after")]
        kills += [COMMITTED_IN_PART, Kill(PYTHON, "complete.after"), Kill(DRIVER, "prepared.before")]
        topic = kafka3.create_topic(f"reports-{tmp_path.parent.name}", 2)
        rows, moved = moved_rows(kafka3, len(kills) + CALM_BATCHES, **{"report.topic": topic})
        with Siege(kafka3, [moved, replace(moved, tasks=3)], fleet, LOCAL) as siege:
            siege.run(kills)
            siege.judge(rows)
        assert siege.made == kills
        found = read_topic(kafka3.direct_servers, topic, isolation_level="read_committed")
        batches = sorted((ReportRecord.of(each.value).batch for each in found), key=lambda each: each.batch)
        assert [each.batch for each in batches] == list(range(len(kills) + CALM_BATCHES))
        assert sum(each.report.records for each in batches) == rows.total

    @only_real_kafka  # commits on embedded brokers with version 1: tests/exactly_once/
    @pytest.mark.whole("each kill takes 4 to 16 s; tests/exactly_once has commits with version 1 on real Kafka")
    def test_transactions_of_version_1(self, kafka_tv1: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        assert_each_row_once(kafka_tv1, fleet, moved_rows, COMMITTERS_OF_VERSION_1)


@pytest.mark.embedded
class TestJava:
    """What takes seconds to start again. Each is killed on embedded brokers only: which brokers they are is nothing to it."""

    @pytest.mark.fault("spark", "SIGKILL of an executor")
    @each_failpoint
    def test_executors(self, three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        kills = [Kill(EXECUTOR, failpoint) for failpoint in ALL_FAILPOINTS]
        assert_each_row_once(three_brokers, fleet, moved_rows, kills, master=EXECUTORS, shuffled=True)

    @pytest.mark.fault("spark", "the driver or its commit process killed before, during and after the commit")
    @each_failpoint
    def test_drivers(self, three_brokers: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        kills = [*(Kill(DRIVER, failpoint) for failpoint in ALL_FAILPOINTS), Kill(DRIVER, "end.after", nth=3)]
        assert_each_row_once(three_brokers, fleet, moved_rows, kills)


class TestBrokers:
    @pytest.mark.fault("spark", "brokers killed")
    @each_failpoint
    def test_one_broker_at_a_time(self, kafka3: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        """Each time the one that the failpoint depends on: of a partition of rows, of a transaction's end, of the commit log."""
        kills = [Kill(BROKER, failpoint) for failpoint in ALL_FAILPOINTS]
        assert_each_row_once(kafka3, fleet, moved_rows, kills)

    @pytest.mark.fault("spark", "brokers killed")
    @pytest.mark.whole("the first half of a minute is the start of brokers")
    @only_real_kafka
    def test_all_brokers_at_once_on_disk(self, kafka3: Brokers, fleet: Fleet, moved_rows: MovedRows) -> None:
        """Where what was acked has to be found again: fewer, as three of these take long to start."""
        kills = [Kill(BROKERS, failpoint) for failpoint in ("prepared.after", "end.after", "complete.before")]
        assert_each_row_once(kafka3, fleet, moved_rows, kills)
