"""A driver that is away for longer than transactions live: what is proved to be lost is written again, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from spark_kafka_sink.exactly_once.failpoints import Failpoint
from tests.cli.command import ended
from tests.faults.exactly_once.conftest import MovedRows
from tests.faults.exactly_once.driver import Driver, Fleet, Said
from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.kills import COMMITTED_IN_PART
from tests.faults.exactly_once.open_transactions import open_transactions
from tests.faults.exactly_once.siege import ERROR_TEXT, judge
from tests.faults.exactly_once.stepping import hold, run_to_the_end
from tests.kafka.brokers import Brokers

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.embedded, pytest.mark.timeout(300)]

BATCHES = 3
# Three quarters of it are a micro-batch's; the rest is waited for.
SOON = {"kafka.transaction.timeout.ms": "20000"}


@pytest.fixture
def driver(fleet: Fleet) -> Iterator[Driver]:
    taken = fleet.take()
    yield taken
    fleet.give_back(taken)


def run(driver: Driver, query: Query) -> Said:
    """How the query ended."""
    driver.run(query)
    return run_to_the_end(driver)


def end_at(driver: Driver, query: Query, failpoint: Failpoint, batch: int, nth: int = 1) -> None:
    driver.run(query)
    assert hold(driver, failpoint, batch, nth).fail(ERROR_TEXT)
    # Nor does Spark's abort come to an end, which would commit what is prepared.
    assert hold(driver, "log.after", batch).fail(ERROR_TEXT)
    assert run_to_the_end(driver).event == "failed"


def be_away(driver: Driver, query: Query, brokers: Brokers, since: Failpoint, nth: int = 1) -> None:
    """From a failpoint of the second batch until all that is open has timed out.

    The first one has the time it needs, for it has to start Spark's Python processes: only then transactions time out soon.
    """
    end_at(driver, query, "commit.end", 0)
    end_at(driver, replace(query, options=query.options | SOON), since, 1, nth)
    assert open_transactions(brokers, query.id)
    brokers.wait_for(lambda: not open_transactions(brokers, query.id), "transactions timed out", 40)


@pytest.mark.fault("spark", "downtime over the transaction timeout")
@pytest.mark.whole("waits for time-outs; tests/exactly_once/test_committer.py has such commits without Spark")
def test_a_batch_that_was_prepared_and_is_lost_as_a_whole_is_written_again(
    three_brokers: Brokers, moved_rows: MovedRows, driver: Driver
) -> None:
    rows, query = moved_rows(three_brokers, BATCHES)
    be_away(driver, query, three_brokers, "prepared.after")
    assert run(driver, query).event == "done"
    judge(three_brokers, rows, query)


@pytest.mark.fault("spark", "downtime over the transaction timeout")
@pytest.mark.whole("waits for time-outs; tests/exactly_once/test_committer.py has such commits without Spark")
def test_one_that_is_lost_in_part_stops_the_query_and_the_lost_rows_are_written_again_when_somebody_says_so(
    three_brokers: Brokers, moved_rows: MovedRows, driver: Driver
) -> None:
    rows, query = moved_rows(three_brokers, BATCHES)
    be_away(driver, query, three_brokers, COMMITTED_IN_PART.failpoint, COMMITTED_IN_PART.nth)
    stopped = run(driver, query)
    assert "are not proved to be committed, and not all are proved to be aborted" in stopped.facts["text"]
    assert f"transactions resolve --query {query.id} --batch 1" in stopped.facts["text"]
    resolve = ["transactions", "resolve", "--query", query.id, "--batch", "1", "--replay", "--yes"]
    replay = ended(*resolve, "--bootstrap-servers", three_brokers.bootstrap_servers)
    assert replay.returncode == 0, replay.stderr
    assert run(driver, query).event == "done"
    judge(three_brokers, rows, query)
