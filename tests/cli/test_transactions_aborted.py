"""`transactions abort`: what nobody has prepared is ended, who waits for it is said, and nobody commits it any more."""

from __future__ import annotations

import json

import pytest

from spark_kafka_sink.errors import CommitStoppedError
from spark_kafka_sink.exactly_once.commit_record import State
from tests.cli.left_over import LeftOver
from tests.kafka.fixtures import on_real_kafka
from tests.waiting import wait_until


@on_real_kafka
def test_orphans_of_a_query_are_aborted_and_its_batch_is_written_again(query: LeftOver) -> None:
    query.commit(0, query.task(0, "a"))
    orphans = [query.task(0, "b"), query.task(1, "c")]
    done = query.run("abort", "--query", query.query_id, "--yes")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(
        f"{query.query_id}: 2 transactions aborted; when the query starts again, it writes the uncommitted"
    )
    assert query.transactions.open_handles(query.ids, query.soon()) == ()
    assert query.listed()["state"] == "complete"
    # A driver that ran after all is kept from committing them.
    with pytest.raises(CommitStoppedError, match="aborted by an operator"):
        query.commit(1, *orphans)
    query.commit(1, query.task(0, "b"), query.task(1, "c"))
    wait_until(lambda: query.visible() == ["a", "b", "c"])


def test_a_query_whose_log_was_deleted_is_not_said_to_write_its_uncommitted_rows_again(query: LeftOver) -> None:
    query.commit(0, query.task(0, "a"))
    query.task(0, "b")
    query.log_topic = f"{query.log_topic}-again"
    query.log.ensure(query.soon())
    done = query.run("abort", "--query", query.query_id, "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(
        f"{query.query_id}: 1 transaction aborted; 1 other transaction of the query is committed, but the commit log has no"
        " record of it, so the log was deleted: look which rows are visible before you set commit.log.start"
    )
    assert "it writes the uncommitted rows again" not in done.stdout


def test_a_job_that_died_before_its_commit_has_nothing_open_afterwards(job: LeftOver) -> None:
    own = job.task(0, "a")
    assert job.listed()["state"] is None
    done = job.run("abort", "--query", job.query_id, "--yes", "--json")

    assert done.exit_code == 0
    assert json.loads(done.stdout)["transactions"][0]["outcome"] == "aborted"
    line = job.listed()
    assert (line["state"], line["to_do"], line["transactions"]) == ("closed", "run the job again", [])
    with pytest.raises(CommitStoppedError, match="aborted by an operator"):
        job.commit(0, own)
    assert job.visible() == []


def test_what_was_closed_but_is_open_still_is_aborted_by_the_next_abort(query: LeftOver) -> None:
    own = query.task(0, "a")
    query.write(0, State.CLOSED, [own], aborted=[own])
    line = query.listed()
    assert (line["to_do"], line["transactions"][0]["state"]) == (f"abort --query {query.query_id}", "closed")
    assert query.run("abort", "--query", query.query_id, "--yes").exit_code == 0
    assert query.listed()["transactions"] == []


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 1), ("", 1, 1)])
def test_it_asks_before_it_aborts_and_says_who_waits(query: LeftOver, answer: str, code: int, left: int) -> None:
    query.commit(0, query.task(0, "a"))
    query.task(0, "b")
    asked = query.run("abort", "--query", query.query_id, answer=answer)

    assert asked.exit_code == code
    assert "1 transaction is open and not prepared; the last batch in the commit log is 0, complete" in asked.stderr
    assert f"open   ?     {query.topic} 0" in asked.stderr
    assert "Readers with isolation.level=read_committed cannot read past them" in asked.stderr
    assert len(query.transactions.open_handles(query.ids, query.soon())) == left


def test_a_job_that_is_complete_is_not_to_be_run_again_when_its_orphans_are_aborted(job: LeftOver) -> None:
    own, orphan = job.task(0, "a"), job.task(0, "a")
    job.write(0, State.COMPLETE, [own])
    job.transactions.end([own.handle], True, job.soon())
    done = job.run("abort", "--query", job.query_id, "--yes")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == f"{job.query_id}: 1 transaction aborted"
    assert done.stdout.splitlines()[2].startswith(orphan.handle.transactional_id)
    assert job.listed()["state"] == "complete"
    wait_until(lambda: job.visible() == ["a"])


def test_what_is_prepared_is_not_aborted(query: LeftOver) -> None:
    query.prepared(0, [query.task(0, "a")])
    refused = query.run("abort", "--query", query.query_id, "--yes")

    assert refused.exit_code == 1
    assert (
        f"the batch is prepared; commit it with spark-kafka-sink transactions recover --query {query.query_id}" in refused.stderr
    )
    assert query.run("recover", "--query", query.query_id).exit_code == 0
    wait_until(lambda: query.visible() == ["a"])


def test_to_abort_where_nothing_is_open_writes_nothing(query: LeftOver) -> None:
    done = query.run("abort", "--query", query.query_id, "--yes")
    assert (done.exit_code, done.stdout) == (0, f"{query.query_id}: no transactions are open under the prefix {query.prefix}\n")
    assert query.last() is None
