"""`transactions resolve`: of what was committed in part the rest is given up or written again, and no row is doubled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from spark_kafka_sink.errors import CommitStoppedError
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction, State, TaskRows
from tests.cli.left_over import LeftOver
from tests.kafka.fixtures import on_real_kafka
from tests.waiting import wait_until


def half_lost(query: LeftOver, batch: int = 0) -> None:
    """Two tasks' rows: `a`, which is or will be visible, and `b`, `c`, which never will be."""
    kept, lost = query.task(0, "a"), query.task(1, "b", "c")
    query.prepared(batch, [kept, lost])
    query.aborted_by_brokers(lost)


def test_a_loss_is_accepted_and_the_query_goes_on(query: LeftOver) -> None:
    half_lost(query)
    with pytest.raises(CommitStoppedError):
        query.commit(0, query.task(0, "a"), query.task(1, "b", "c"))
    done = query.run("resolve", "--query", query.query_id, "--batch", "0", "--accept-loss", "--yes")

    assert done.exit_code == 0
    assert done.stderr.startswith(f"{query.query_id}, batch 0: 1 row is committed, 2 are lost, in these transactions:\n")
    asked = query.run("recover", "--query", query.query_id)
    assert asked.stdout.endswith("1 row of the batch is visible; 2 are lost, and the loss was accepted\n")
    assert done.stdout.startswith(f"{query.query_id}, batch 0: complete, without 2 lost rows; the query continues")
    assert query.commit(0, query.task(0, "a"), query.task(1, "b", "c")).rows == 0
    query.commit(1, query.task(0, "d"))
    wait_until(lambda: query.visible() == ["a", "d"])


@on_real_kafka
def test_lost_rows_are_written_again_by_the_next_run_and_no_others(query: LeftOver) -> None:
    half_lost(query)
    done = query.run("resolve", "--query", query.query_id, "--batch", "0", "--replay", "--yes")

    assert done.exit_code == 0
    assert done.stdout.startswith(f"{query.query_id}, batch 0: 2 rows will be written again: start the query")
    assert query.listed()["to_do"] == "restart the query to write the lost rows again"
    query.commit(0, query.task(0, "a"), query.task(1, "b", "c"))
    query.commit(1, query.task(0, "d"))
    wait_until(lambda: query.visible() == ["a", "b", "c", "d"])


def test_lost_rows_are_written_again_though_a_broker_rejects_one_of_them_now(query: LeftOver) -> None:
    kept, lost = query.task(0, "a"), query.task(1, "b", "c")
    query.prepared(0, [kept, lost])
    query.aborted_by_brokers(lost)
    assert query.run("resolve", "--query", query.query_id, "--batch", "0", "--replay", "--yes").exit_code == 0
    passed = TaskRows(0, 1, kept.checksum), TaskRows(1, 2, lost.checksum)
    again = query.task(0, "a"), replace(query.task(1, "c"), checksum=lost.checksum)
    assert query.commit(0, *again, tasks=passed).rows == 2
    last = query.last()
    assert last is not None
    assert last.tasks == passed
    assert query.commit(1, query.task(0, "d")).rows == 1
    wait_until(lambda: query.visible() == ["a", "c", "d"])


def test_other_rows_than_those_that_were_lost_are_not_written(query: LeftOver) -> None:
    half_lost(query)
    assert query.run("resolve", "--query", query.query_id, "--batch", "0", "--replay", "--yes").exit_code == 0
    with pytest.raises(CommitStoppedError, match="not proved to be the lost ones"):
        query.commit(0, query.task(0, "a"), query.task(1, "b", "x"))
    # What is left then is to do without them.
    done = query.run("resolve", "--query", query.query_id, "--batch", "0", "--accept-loss", "--yes")
    assert done.exit_code == 0
    assert "2 are lost" in done.stderr
    query.commit(1, query.task(0, "d"))
    wait_until(lambda: query.visible() == ["a", "d"])


def test_what_timed_out_in_part_is_resolved(query_of_each_version: LeftOver) -> None:
    query = query_of_each_version
    kept, lost = query.task(0, "a"), query.task(1, "b", timeout_ms=1000)
    query.prepared(0, [kept, lost])
    wait_until(lambda: [each["state"] for each in query.listed()["transactions"]] == ["prepared", "aborted"])
    assert query.run("resolve", "--query", query.query_id, "--batch", "0", "--replay", "--yes").exit_code == 0
    query.commit(0, query.task(0, "a"), query.task(1, "b"))
    wait_until(lambda: query.visible() == ["a", "b"])


def test_all_that_can_be_committed_is_whatever_is_answered(query: LeftOver) -> None:
    half_lost(query)
    asked = query.run("resolve", "--query", query.query_id, "--batch", "0", "--replay", answer="n\n")
    assert asked.exit_code == 1
    assert query.listed()["state"] == "prepared"
    wait_until(lambda: query.visible() == ["a"])


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (State.COMPLETE, "the batch is complete"),
        (State.ABORTED, "nothing of the batch is visible, and the next run writes it again"),
        (State.CLOSED, "nothing is prepared"),
        (State.REPLAY, "the next run writes the lost rows again"),
    ],
)
def test_where_there_is_nothing_to_resolve_that_is_said(query: LeftOver, state: State, text: str) -> None:
    query.write(4, state, [own := query.task(0, "a")])
    query.aborted_by_brokers(own)
    refused = query.run("resolve", "--query", query.query_id, "--batch", "4", "--replay", "--yes")
    assert refused.exit_code == 1
    assert refused.stderr == f"{query.query_id}, batch 4: there is nothing to resolve: {text}\n"


def test_another_batch_than_the_last_is_refused(query: LeftOver) -> None:
    half_lost(query, batch=5)
    refused = query.run("resolve", "--query", query.query_id, "--batch", "4", "--accept-loss", "--yes")
    assert refused.exit_code == 1
    assert refused.stderr.endswith("there is nothing to resolve: the commit log is at batch 5, prepared\n")


def forgotten(query: LeftOver, *tasks: PreparedTransaction) -> None:
    """Their coordinators know other transactions of their ids now, and abort what is open of them."""
    for each in 2 * tasks:
        query.transactions.init_producer_id(each.handle.transactional_id, 60_000, query.soon())


def without_records(query: LeftOver) -> None:
    """As retention leaves a topic."""
    end = TopicPartition(query.topic, 0, -1)
    query.kafka.admin.delete_records([end])[end].result(timeout=30)


def test_rows_are_written_again_if_the_topic_proves_that_they_are_not_visible(query_of_each_version: LeftOver) -> None:
    query = query_of_each_version
    kept, lost = query.task(0, "a"), query.task(1, "b")
    query.prepared(0, [kept, lost])
    forgotten(query, lost)
    assert [each["state"] for each in query.listed()["transactions"]] == ["prepared", "unknown"]
    done = query.run("resolve", "--query", query.query_id, "--batch", "0", "--replay", "--yes")

    assert (done.exit_code, "unknown" in done.stderr) == (0, False)
    assert done.stdout.startswith(f"{query.query_id}, batch 0: 1 row will be written again: start the query")
    query.commit(0, query.task(0, "a"), query.task(1, "b"))
    wait_until(lambda: query.visible() == ["a", "b"])


def test_a_batch_is_complete_if_the_topic_proves_that_all_of_it_is_visible(query: LeftOver) -> None:
    own = query.task(0, "a"), query.task(1, "b")
    query.prepared(0, own)
    query.transactions.end([each.handle for each in own], True, query.soon())
    forgotten(query, *own)
    done = query.run("resolve", "--query", query.query_id, "--batch", "0", "--replay")

    assert (done.exit_code, done.stdout) == (0, f"{query.query_id}, batch 0: committed, with 2 rows\n")
    assert query.commit(0, query.task(0, "a"), query.task(1, "b")).rows == 0
    wait_until(lambda: query.visible() == ["a", "b"])


def test_what_became_of_nobody_knows_is_not_written_again(query: LeftOver) -> None:
    kept, lost = query.task(0, "a"), query.task(1, "b")
    query.prepared(0, [kept, lost])
    query.transactions.end([kept.handle], True, query.soon())
    forgotten(query, lost)
    wait_until(lambda: query.visible() == ["a"])
    without_records(query)
    refused = query.run("resolve", "--query", query.query_id, "--batch", "0", "--replay", "--yes")

    assert refused.exit_code == 1
    assert "Transactions in state `unknown` may be visible" in refused.stderr
    assert "a replay could duplicate rows: --accept-loss" in refused.stderr
    assert f"topic {query.topic}, partition 0 has no marker of {lost.handle.transactional_id} since" in refused.stderr
    assert query.run("resolve", "--query", query.query_id, "--batch", "0", "--accept-loss", "--yes").exit_code == 0
    query.commit(1, query.task(0, "d"))
    wait_until(lambda: query.visible() == ["d"])


def test_nothing_is_written_again_if_the_topic_is_gone(query: LeftOver) -> None:
    lost = query.task(0, "a")
    query.prepared(0, [lost])
    forgotten(query, lost)
    query.kafka.delete_topic(query.topic)
    refused = query.run("resolve", "--query", query.query_id, "--batch", "0", "--replay", "--yes")

    assert refused.exit_code == 1
    assert f"topic '{query.topic}' does not exist" in refused.stderr
    query.kafka.create_topic(query.topic, 1, 1, {})  # for the fixture, which deletes it


def test_a_job_is_not_replayed(job: LeftOver) -> None:
    half_lost(job)
    refused = job.run("resolve", "--query", job.query_id, "--batch", "0", "--replay", "--yes")
    assert refused.exit_code == 2
    assert "a job cannot be replayed" in refused.stderr
    assert job.listed()["to_do"].endswith(f"then: resolve --query {job.query_id} --batch 0 --accept-loss")
