"""Queries that share a prefix and a commit log do not disturb each other, whatever becomes of one of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from spark_kafka_sink.exactly_once.failpoints import Failpoint
from tests.faults.exactly_once.conftest import PARTITIONS, Moved
from tests.faults.exactly_once.fleet import Fleet
from tests.faults.exactly_once.kills import Kill, Victim
from tests.faults.exactly_once.moved import moved
from tests.faults.exactly_once.open_transactions import ongoing
from tests.faults.exactly_once.siege import Siege, judge
from tests.faults.exactly_once.stepping import hold, run_to_the_end, running
from tests.kafka.brokers import Brokers

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.embedded, pytest.mark.timeout(300)]

HELD_IN = 1
BATCHES = 5
# Each leaves something open, or prepared, that the next run has to end.
KILLS = [Kill(Victim.PYTHON, "flush.after"), Kill(Victim.DRIVER, "end.after")]


@pytest.fixture
def pair(three_brokers: Brokers, tmp_path: Path) -> tuple[Moved, Moved]:
    """All records of both queries are in one partition of one commit log."""
    name = f"{tmp_path.parent.name}-{tmp_path.name}"
    log = {"commit.log.topic": f"{name}-log", "commit.log.partitions": "1"}
    first, second = (
        moved(three_brokers, three_brokers.create_topic(f"{name}-{each}", PARTITIONS), tmp_path / each, BATCHES, **log)
        for each in ("first", "second")
    )
    return first, second


@pytest.mark.fault("spark", "several queries with one prefix and one log")
@pytest.mark.whole("80 s; without Spark two queries share a log in tests/exactly_once/test_commit_log_faults.py")
@pytest.mark.parametrize("failpoint", ["flush.after", "prepared.after"])
def test_a_query_that_is_killed_and_restarted_ends_no_transaction_of_another(
    failpoint: Failpoint, three_brokers: Brokers, pair: tuple[Moved, Moved], fleet: Fleet
) -> None:
    (rows, query), (killed_rows, killed) = pair
    with running(fleet, query) as driver:
        held = hold(driver, failpoint, HELD_IN)
        before = ongoing(three_brokers, query.id)
        assert before
        with Siege(three_brokers, [killed], fleet) as siege:
            siege.run(KILLS)
            siege.judge(killed_rows)
        # The task beside the held one may have begun its own meanwhile.
        assert ongoing(three_brokers, query.id) >= before
        held.go()
    judge(three_brokers, rows, query)


@pytest.mark.fault("spark", "several queries with one prefix and one log")
@pytest.mark.whole("as long as the test before it")
def test_what_a_dead_query_has_prepared_waits_for_it_while_another_is_killed_and_done(
    three_brokers: Brokers, pair: tuple[Moved, Moved], fleet: Fleet
) -> None:
    (rows, query), (other_rows, other) = pair
    driver = fleet.take()
    driver.run(query)
    held = hold(driver, "prepared.after", HELD_IN)
    os.kill(held.pid, signal.SIGKILL)
    held.leave()
    assert run_to_the_end(driver).event == "failed"
    fleet.give_back(driver)
    prepared = ongoing(three_brokers, query.id)
    assert len(prepared) == query.files
    with Siege(three_brokers, [other], fleet) as siege:
        siege.run(KILLS[:1])
        siege.judge(other_rows)
    assert ongoing(three_brokers, query.id) == prepared
    with running(fleet, query):
        pass
    judge(three_brokers, rows, query)
