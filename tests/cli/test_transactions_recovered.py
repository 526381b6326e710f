"""`transactions recover`: what a driver that is gone has prepared becomes visible once, and nothing else changes."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer

from spark_kafka_sink.exactly_once import commit_log
from spark_kafka_sink.exactly_once.commit_log import partition_of
from spark_kafka_sink.exactly_once.commit_record import State, encode_key
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from tests.cli.left_over import LeftOver
from tests.kafka.fixtures import on_real_kafka
from tests.waiting import wait_until


@on_real_kafka
def test_what_a_driver_that_is_gone_has_prepared_is_committed(query: LeftOver) -> None:
    own = [query.task(0, "a", "b"), query.task(1, "c")]
    query.prepared(0, own)
    assert query.visible() == []
    done = query.run("recover", "--all")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"{query.query_id}, batch 0: committed, with 3 rows\n"
    wait_until(lambda: query.visible() == ["a", "b", "c"])
    # The driver comes back: its batch is done, and its next one is as if nothing had been.
    assert query.commit(0, query.task(0, "a", "b"), query.task(1, "c")).rows == 0
    query.commit(1, query.task(0, "d"))
    wait_until(lambda: query.visible() == ["a", "b", "c", "d"])


def test_a_batch_that_was_aborted_altogether_is_written_again(query: LeftOver) -> None:
    lost = query.task(0, "a")
    query.prepared(0, [lost])
    query.aborted_by_brokers(lost)
    done = query.run("recover", "--all")

    assert done.exit_code == 0
    assert "none of its rows are visible: restart the query to write the batch again" in done.stdout
    assert query.listed()["state"] == "aborted"
    query.commit(0, query.task(0, "a"))
    wait_until(lambda: query.visible() == ["a"])


def test_what_was_committed_in_part_is_committed_as_a_whole_though_its_topic_was_replaced(query: LeftOver) -> None:
    own = query.task(0, "a"), query.task(1, "b", "c")
    query.prepared(0, own)
    query.transactions.end([own[0].handle], True, query.soon())
    query.kafka.delete_topic(query.topic)
    query.kafka.create_topic(query.topic)
    done = query.run("recover", "--all")

    assert done.exit_code == 0
    assert done.stdout.startswith(f"{query.query_id}, batch 0: committed, with 3 rows, but acknowledged records are gone with")
    assert done.stdout.endswith(f": {query.topic}\n")


def test_what_was_committed_in_part_is_left_to_be_resolved(query: LeftOver) -> None:
    kept, lost = query.task(0, "a"), query.task(1, "b", "c")
    query.prepared(0, [kept, lost])
    query.aborted_by_brokers(lost)
    refused = query.run("recover", "--all")

    assert (refused.exit_code, refused.stdout) == (1, "")
    said, head, line = refused.stderr.splitlines()
    assert said.startswith(f"{query.query_id}, batch 0: 1 of its transactions with 2 rows is not committed: ")
    assert said.endswith(f"resolve --query {query.query_id} --batch 0 --replay (or --accept-loss)")
    assert head.split() == ["TRANSACTION", "STATE", "ROWS", "PARTITIONS"]
    assert line.split() == [lost.handle.transactional_id, "aborted", "2", query.topic, "0"]
    wait_until(lambda: query.visible() == ["a"])


def test_one_that_cannot_be_recovered_keeps_no_other_from_it(query: LeftOver) -> None:
    other = LeftOver(query.kafka, query.topic, query.log_topic)
    other.prefix = query.prefix
    kept, lost = query.task(0, "a"), query.task(1, "b")
    query.prepared(0, [kept, lost])
    query.aborted_by_brokers(lost)
    other.prepared(3, [other.task(0, "other")])
    done = query.run("recover", "--all", "--json")
    other.close()

    results = {each["query_id"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert done.exit_code == 1
    assert {query_id: each["done"] for query_id, each in results.items()} == {query.query_id: False, other.query_id: True}
    wait_until(lambda: query.visible() == ["a", "other"])


def test_another_prefix_is_not_touched_as_its_driver_would_keep_its_claim(query: LeftOver) -> None:
    own = query.task(0, "a")
    query.prepared(0, [own])
    right, query.prefix = query.prefix, "other"
    everything = query.run("recover", "--all")
    refused = [
        query.run("recover", "--query", query.query_id),
        query.run("abort", "--query", query.query_id, "--yes"),
        query.run("resolve", "--query", query.query_id, "--batch", "0", "--accept-loss", "--yes"),
    ]
    line = query.listed()
    query.prefix = right

    assert (everything.exit_code, everything.stdout) == (0, "Nothing is prepared under the prefix other.\n")
    assert [each.exit_code for each in refused] == [1, 1, 1]
    assert {each.stderr for each in refused} == {
        f"Error: [OPTION] {query.query_id} has another transactional.id.prefix: set --prefix {right}\n"
    }
    assert (line["to_do"], line["transactions"]) == (f"list --prefix {right}", [])
    assert [each["state"] for each in query.listed()["transactions"]] == ["prepared"]


def test_a_batch_without_rows_is_left_to_its_driver(query: LeftOver) -> None:
    query.prepared(3, [])
    done = query.run("recover", "--all")
    refused = query.run("resolve", "--query", query.query_id, "--batch", "3", "--accept-loss", "--yes")
    assert (done.exit_code, done.stdout) == (
        0,
        f"{query.query_id}, batch 3: there is nothing to commit, because it has no rows\n",
    )
    assert (refused.exit_code, refused.stderr) == (
        1,
        f"{query.query_id}, batch 3: there is nothing to resolve: the batch has no rows\n",
    )
    assert query.listed()["state"] == "prepared"


def test_a_query_that_the_log_does_not_know_is_said(query: LeftOver) -> None:
    refused = query.run("recover", "--query", "nobody")
    assert refused.exit_code == 1
    assert refused.stderr == "Error: nobody: the commit log has no record of it\n"


def test_a_job_that_ended_long_ago_is_forgotten_and_one_that_just_did_is_not(
    job: LeftOver, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write(0, State.COMPLETE, [])
    assert job.run("recover", "--all").stdout == f"Nothing is prepared under the prefix {job.prefix}.\n"
    assert job.last() is not None
    monkeypatch.setattr(commit_log, "_KEPT_FOR_MS", {State.COMPLETE: -1000})
    done = job.run("recover", "--all")

    assert (done.exit_code, done.stdout) == (0, f"{job.query_id}, batch 0: the job has ended and is forgotten\n")
    assert job.last() is None
    assert job.listed() == {}


def test_a_query_that_ended_long_ago_is_never_forgotten(query: LeftOver, monkeypatch: pytest.MonkeyPatch) -> None:
    query.write(0, State.COMPLETE, [])
    monkeypatch.setattr(commit_log, "_KEPT_FOR_MS", {State.COMPLETE: -1000})
    assert query.run("recover", "--all").exit_code == 0
    assert query.last() is not None


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (State.COMPLETE, "all rows of the batch are visible (0 rows); do not run the job again"),
        (State.ABORTED, "no rows of the batch are visible; run the job again"),
        (State.CLOSED, "none of its rows are visible; run the job again"),
    ],
)
def test_who_asks_about_a_job_hears_what_became_of_it_and_it_is_not_forgotten_by_that(
    job: LeftOver, monkeypatch: pytest.MonkeyPatch, state: State, said: str
) -> None:
    job.write(0, state, [])
    monkeypatch.setattr(commit_log, "_KEPT_FOR_MS", {state: -1000})
    done = job.run("recover", "--query", job.query_id)
    assert (done.exit_code, done.stdout) == (0, f"{job.query_id}, batch 0: nothing is prepared: {said}\n")
    assert job.last() is not None


def test_of_a_job_without_a_record_it_is_said_when_that_means_that_nothing_is_visible(job: LeftOver) -> None:
    other = MicroBatch.of_new_job().query_id
    job.write(0, State.COMPLETE, [])
    refused = job.run("recover", "--query", other)
    job.query_id = other
    job.task(0, "a")
    still_open = job.run("recover", "--query", other)
    assert refused.exit_code == still_open.exit_code == 1
    assert "if it failed less than 48 hours ago, none of its rows are visible: run the job again" in refused.stderr
    assert (
        f"visible: run spark-kafka-sink transactions abort --query {other}, because it has open transactions,"
        in still_open.stderr
    )


@pytest.mark.parametrize("command", [["recover"], ["abort", "--yes"]])
def test_of_a_job_whose_record_was_lost_it_is_said_that_rows_are_visible(job: LeftOver, command: list[str]) -> None:
    job.write(0, State.COMPLETE, [])
    job.query_id = MicroBatch.of_new_job().query_id
    committed, still_open = job.task(0, "a"), job.task(1, "b")
    job.transactions.end([committed.handle], True, job.soon())
    done = job.run(*command, "--query", job.query_id)
    assert done.exit_code == 1
    assert (
        "1 of its transactions is committed, so its record was removed, or the commit log was deleted. Its rows, or some of them,"
        " are visible. Look which before you run the job again: an open transaction hides committed rows"
    ) in done.stderr
    assert "none of its rows are visible" not in done.output
    assert [each.transactional_id for each in job.transactions.open_handles(job.ids, job.soon())] == [
        still_open.handle.transactional_id
    ]


def test_a_record_that_only_another_version_reads_keeps_no_other_from_being_committed(query: LeftOver) -> None:
    query.prepared(0, [query.task(0, "a")])
    newer = Producer({"bootstrap.servers": query.kafka.bootstrap_servers})
    newer.produce(query.log_topic, b'{"format": 5}', encode_key("newer", 0), partition=0)
    newer.produce(query.log_topic, b"", b"user-7", partition=1 - partition_of(query.query_id, 2))
    assert newer.flush(30) == 0
    listed = query.run("list")
    one = query.run("recover", "--query", query.query_id)
    everything = query.run("recover", "--all")
    unreadable = query.run("recover", "--query", "newer")

    assert listed.exit_code == everything.exit_code == unreadable.exit_code == 1
    assert query.query_id in listed.stdout
    for said in (listed, everything):
        assert "query newer: query None has a record of format 5" in said.stderr
        assert "a record with the key b'user-7'" in said.stderr
    assert (one.exit_code, one.stdout) == (0, f"{query.query_id}, batch 0: committed, with 1 row\n")
    assert "reads formats up to 4" in unreadable.stderr
    wait_until(lambda: query.visible() == ["a"])
