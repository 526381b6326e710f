"""A driver that was paused comes back when another one has taken its place: it stops, and says why; each row is there once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest

from spark_kafka_sink.exactly_once.failpoints import Failpoint
from tests.faults.exactly_once.conftest import MovedRows
from tests.faults.exactly_once.driver import Driver, Fleet
from tests.faults.exactly_once.siege import judge
from tests.faults.exactly_once.stepping import hold, pair, replaced_while_paused, run_to_the_end
from tests.kafka.brokers import Brokers

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.embedded, pytest.mark.timeout(600)]

BATCHES = 6
PAUSED_IN = 2
BEHIND = r"\[COMMIT_STOPPED\] batch 2 .* the commit log is ahead: another driver runs this query"
SPARKS_OWN = "CONCURRENT_STREAM_LOG_UPDATE"  # both have committed, and Spark's commit log is the other's already
REFUSALS = re.compile(f"{BEHIND}|{SPARKS_OWN}")


@pytest.fixture
def drivers(fleet: Fleet) -> Iterator[tuple[Driver, Driver]]:
    with pair(fleet) as both:
        yield both


# Where the old driver was paused, and what it stops with.
STOPS: Mapping[Failpoint, str] = {
    "flush.after": BEHIND,
    "log.after": BEHIND,
    "prepared.before": BEHIND,
    "prepared.after": BEHIND,
    "end.after": BEHIND,
    "complete.after": SPARKS_OWN,
}


@pytest.mark.fault("spark", "two drivers of one query")
@pytest.mark.parametrize("failpoint", STOPS)
@pytest.mark.whole("half a minute each; tests/exactly_once/test_ended_runs.py has such commits without Spark")
def test_the_old_driver_stops_when_its_successor_has_done_all(
    failpoint: Failpoint, three_brokers: Brokers, moved_rows: MovedRows, drivers: tuple[Driver, Driver]
) -> None:
    rows, query = moved_rows(three_brokers, BATCHES)
    ended = replaced_while_paused(*drivers, query, failpoint, PAUSED_IN)
    assert ended.event == "failed"
    assert re.search(STOPS[failpoint], ended.facts["text"]), ended.facts["text"]
    judge(three_brokers, rows, query)


@pytest.mark.fault("spark", "two drivers of one query")
@pytest.mark.whole("each takes half a minute")
@pytest.mark.parametrize(("old_at", "new_at"), [("log.after", "prepared.before"), ("prepared.before", "end.before")])
def test_of_two_drivers_at_one_batch_one_stops(
    old_at: Failpoint, new_at: Failpoint, three_brokers: Brokers, moved_rows: MovedRows, drivers: tuple[Driver, Driver]
) -> None:
    rows, query = moved_rows(three_brokers, BATCHES)
    old, new = drivers
    old.run(query)
    held_old = hold(old, old_at, PAUSED_IN)
    old.pause()
    new.run(query)
    held_new = hold(new, new_at, PAUSED_IN)
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
