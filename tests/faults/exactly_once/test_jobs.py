"""A batch job whose driver dies: `transactions list` says what to do, and after that each row is there once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from spark_kafka_sink.exactly_once.failpoints import Failpoint
from tests.cli.command import ended
from tests.faults.exactly_once.conftest import MovedRows
from tests.faults.exactly_once.driver import Driver, Fleet
from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.numbered_rows import NumberedRows
from tests.faults.exactly_once.open_transactions import assert_nothing_open
from tests.faults.exactly_once.stepping import hold, running
from tests.kafka.brokers import Brokers
from tests.kafka.witness import read_topic

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.embedded, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Advice:
    """What `list` says to do. again: whether the job is then run again."""

    text: str
    command: tuple[str, ...]
    again: bool = False


NOT_PREPARED = Advice("if it no longer runs: abort --query {id}", ("abort", "--yes"), again=True)
PREPARED = Advice("recover --query {id}", ("recover",))
COMPLETE = Advice("", ())

ADVICE: Mapping[Failpoint, Advice] = {
    "message.before": NOT_PREPARED,
    "prepared.before": NOT_PREPARED,
    "prepared.after": PREPARED,
    "end.after": PREPARED,
    "complete.after": COMPLETE,
}


@pytest.mark.fault("spark", "the driver of a batch job dies for good")
@pytest.mark.whole("a driver's start each; tests/cli/test_transactions_recovered.py ends what a driver that is gone has left")
@pytest.mark.parametrize("failpoint", ADVICE)
def test_what_a_dead_job_has_left_is_ended_as_list_says(
    failpoint: Failpoint, three_brokers: Brokers, moved_rows: MovedRows, fleet: Fleet
) -> None:
    advice = ADVICE[failpoint]
    rows, job = a_job(three_brokers, moved_rows)
    hold_and_crash(fleet.take(), job, failpoint)
    (line,) = transactions(three_brokers, job, "list", "--json")
    assert line["to_do"].partition(";")[0] == advice.text.format(id=line["query_id"])
    if advice.command:
        name, *options = advice.command
        transactions(three_brokers, job, name, "--query", line["query_id"], *options)
    if advice.again:
        assert read_topic(three_brokers.direct_servers, job.topic, isolation_level="read_committed") == []
        with running(fleet, job):
            pass
    assert_nothing_open(three_brokers, prefix_of(job), job.topic)
    rows.check(read_topic(three_brokers.direct_servers, job.topic, isolation_level="read_committed"))


def a_job(brokers: Brokers, moved_rows: MovedRows) -> tuple[NumberedRows, Query]:
    """With a prefix and a commit log of its own, so that the commands show nothing else."""
    rows, query = moved_rows(brokers, 1)
    own = {"transactional.id.prefix": query.topic, "commit.log.topic": f"{query.topic}-log", "commit.log.partitions": "1"}
    return rows, replace(query, job=True, options={**query.options, **own})


def prefix_of(job: Query) -> str:
    return job.options["transactional.id.prefix"]


def hold_and_crash(driver: Driver, job: Query, failpoint: Failpoint) -> None:
    """When the job has come to the failpoint, the driver's machine goes: Java, and every Python."""
    try:
        driver.run(job)
        held = hold(driver, failpoint, 0)
        driver.crash()
        held.leave()
    finally:
        driver.stop()


def transactions(brokers: Brokers, job: Query, name: str, *options: str) -> list[dict[str, Any]]:
    """The lines of `spark-kafka-sink transactions NAME`, which succeeds."""
    where = ["--bootstrap-servers", brokers.bootstrap_servers, "--commit-log-topic", job.options["commit.log.topic"]]
    done = ended("transactions", name, *where, "--prefix", prefix_of(job), *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()] if "--json" in options else []
