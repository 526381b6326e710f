"""A driver that was paused comes back when another one has taken its place: it stops, and says why; each row is there once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from spark_kafka_sink.exactly_once.steps import Step
from tests.faults.exactly_once.conftest import MovedRows
from tests.faults.exactly_once.driver import Driver, Ended, Said
from tests.faults.exactly_once.fleet import Fleet
from tests.faults.exactly_once.siege import judge
from tests.faults.exactly_once.step_watch import Reached
from tests.kafka.brokers import Brokers

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.embedded, pytest.mark.timeout(600)]

BATCHES = 6
PAUSED_IN = 2
BEHIND = r"\[COMMIT_STOPPED\] batch 2 .* the commit log is ahead: another driver runs this query"
ABORTED = r"\[BATCH_ABORTED\] batch 2 "  # the successor has ended what the old driver was about to prepare
SPARKS_OWN = "CONCURRENT_STREAM_LOG_UPDATE"  # both have committed, and Spark's commit log is the other's already
REFUSALS = re.compile(f"{BEHIND}|{ABORTED}|{SPARKS_OWN}")


@pytest.fixture
def drivers(fleet: Fleet) -> Iterator[tuple[Driver, Driver]]:
    """Both ready, as they share two processors."""
    with ExitStack() as stack:
        pair = fleet.take(), fleet.take()
        for driver in pair:
            stack.callback(fleet.give_back, driver)
        yield pair[0].ready(), pair[1].ready()


def run_until(driver: Driver, step: Step, batches: int) -> Reached:
    """Where the driver stands then."""
    committed = 0
    while True:
        event = driver.next()
        assert isinstance(event, Reached), driver.explain(f"{event}")
        if event.name == step and committed == batches:
            return event
        committed += event.name == "commit.end"
        event.go()


def run_to_the_end(driver: Driver) -> Said:
    """How the query ended."""
    while True:
        event = driver.next()
        if isinstance(event, Reached):
            event.go()
        assert not isinstance(event, Ended), driver.explain("the driver is gone")
        if isinstance(event, Said):
            return event


# Where the old driver was paused, and what it stops with.
STOPS: Mapping[Step, str] = {
    "flush.after": BEHIND,
    "log.after": ABORTED,
    "prepared.before": BEHIND,
    "prepared.after": BEHIND,
    "end.after": BEHIND,
    "complete.after": SPARKS_OWN,
}


@pytest.mark.parametrize("step", STOPS)
def test_the_old_driver_stops_when_its_successor_has_done_all(
    step: Step, three_brokers: Brokers, moved_rows: MovedRows, drivers: tuple[Driver, Driver]
) -> None:
    rows, query = moved_rows(three_brokers, BATCHES)
    old, new = drivers
    old.run(query)
    held = run_until(old, step, PAUSED_IN)
    old.pause()
    new.run(query)
    assert run_to_the_end(new).event == "done"
    old.resume()
    held.go()
    ended = run_to_the_end(old)
    assert ended.event == "failed"
    assert re.search(STOPS[step], ended.facts["text"]), ended.facts["text"]
    judge(three_brokers, rows, query)


@pytest.mark.parametrize(("old_at", "new_at"), [("log.after", "prepared.before"), ("prepared.before", "end.before")])
def test_of_two_drivers_at_one_batch_one_stops(
    old_at: Step, new_at: Step, three_brokers: Brokers, moved_rows: MovedRows, drivers: tuple[Driver, Driver]
) -> None:
    rows, query = moved_rows(three_brokers, BATCHES)
    old, new = drivers
    old.run(query)
    held_old = run_until(old, old_at, PAUSED_IN)
    old.pause()
    new.run(query)
    held_new = run_until(new, new_at, 0)
    old.resume()
    held_old.go()
    ends = [run_to_the_end(old)]
    held_new.go()
    ends.append(run_to_the_end(new))
    refused = [end.facts["text"] for end in ends if end.event == "failed"]
    assert refused
    assert all(REFUSALS.search(text) for text in refused), refused
    new.run(query)  # where both have stopped, whoever comes next finishes
    assert run_to_the_end(new).event == "done"
    judge(three_brokers, rows, query)
