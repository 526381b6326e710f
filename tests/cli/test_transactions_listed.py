"""`transactions list`: what was left over, told from what is not, and what to do about it."""

from __future__ import annotations

import json

import pytest

from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.protocol.api import ApiKey
from tests.cli.left_over import LeftOver
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.fixtures import on_real_kafka


def test_nothing_is_listed_where_nothing_is(query: LeftOver) -> None:
    listed = query.run("list")
    assert (listed.exit_code, listed.stderr) == (0, "")
    assert listed.stdout == f"No transactions are open under the prefix {query.prefix}, and {query.log_topic} is empty.\n"


def test_a_commit_log_that_is_not_there_is_named_beside_what_is_open(query: LeftOver) -> None:
    query.task(0, "a")
    query.log_topic = f"{query.log_topic}-another"
    listed = query.run("list")
    assert listed.exit_code == 0
    assert query.query_id in listed.stdout
    why = f"there is no commit log: topic {query.log_topic} does not exist; check --commit-log-topic"
    assert listed.stderr == f"Note: {why}\n"
    line = json.loads(query.run("list", "--json").stdout)
    assert line["to_do"] == f"{why}; if there never was one, the transactions end when they time out"
    assert query.log_topic not in query.kafka.metadata().topics


def test_an_orphan_is_listed_with_its_partitions_and_what_to_do(query: LeftOver) -> None:
    orphan = query.task(0, "a", timeout_ms=45_000).handle
    line = query.listed()
    (transaction,) = line.pop("transactions")

    to_do = f"if it no longer runs: abort --query {query.query_id}; if it runs, its next commit ends them"
    record = dict.fromkeys(["name", "checkpoint", "batch", "state", "rows", "written"])
    assert line == {"query_id": query.query_id, **record, "to_do": to_do}
    assert 0 <= transaction.pop("age_ms") < 45_000
    assert 0 < transaction.pop("times_out_in_ms") <= 45_000
    assert transaction == {
        "transactional_id": orphan.transactional_id,
        "producer_id": orphan.producer_id,
        "epoch": orphan.epoch,
        "rows": None,
        "partitions": {query.topic: "0"},
        "state": "orphan",
    }


@on_real_kafka
def test_a_prepared_batch_is_listed_with_what_became_of_each_transaction(query: LeftOver) -> None:
    still_open, lost, orphan = query.task(0, "a", "b"), query.task(1, "c"), query.task(1, "c")
    query.prepared(7, [still_open, lost])
    query.aborted_by_brokers(lost)
    line = query.listed()

    assert (line["batch"], line["state"], line["rows"]) == (7, "prepared", 3)
    in_time = f"recover --query {query.query_id} before the open ones time out, then: "
    assert line["to_do"] == f"{in_time}resolve --query {query.query_id} --batch 7 --replay (or --accept-loss)"
    states = {each["transactional_id"]: (each["state"], each["rows"]) for each in line["transactions"]}
    assert states == {
        still_open.handle.transactional_id: ("prepared", 2),
        lost.handle.transactional_id: ("aborted", 1),
        orphan.handle.transactional_id: ("orphan", None),
    }


def test_a_list_for_people_has_two_tables(query: LeftOver) -> None:
    query.prepared(0, [query.task(0, "a")])
    queries, transactions = query.run("list").stdout.split("\n\n")

    head = " ".join(queries.splitlines()[0].split())
    assert head == "QUERY NAME CHECKPOINT BATCH STATE ROWS WRITTEN OPEN TO DO"
    assert f"restart the query, or: recover --query {query.query_id}" in queries
    assert transactions.splitlines()[0].split() == ["TRANSACTION", "STATE", "AGE", "TIMES", "OUT", "IN", "ROWS", "PARTITIONS"]
    assert transactions.splitlines()[1].split()[1] == "prepared"
    assert transactions.splitlines()[1].endswith(f"1     {query.topic} 0")


def test_a_query_is_listed_with_its_name_and_checkpoint(query: LeftOver) -> None:
    """People know it by these, and not by its id."""
    query.committer.commit(MicroBatch(query.query_id, 0, "/checkpoints/orders (topic events)", "orders"), ())
    listed = query.listed()
    assert (listed["name"], listed["checkpoint"]) == ("orders", "/checkpoints/orders (topic events)")
    assert f"{query.query_id}  orders  /checkpoints/orders (topic events)  0 " in query.run("list").stdout


def test_other_prefixes_are_not_listed(query: LeftOver) -> None:
    query.task(0, "a")
    shorter = query.run("list", "--json", "--prefix", query.prefix[:-1])  # the last one that is given counts
    assert (shorter.exit_code, shorter.stdout) == (0, "")


@pytest.mark.embedded
def test_a_list_that_a_broker_is_missing_from_is_none() -> None:
    with EmbeddedKafka(2, in_memory=True) as brokers:
        brokers.create_topic("rows", 1, 1, {})
        brokers.create_topic("commits", 2, 1, {"cleanup.policy": "compact"})
        query = LeftOver(brokers, "rows", "commits")
        query.task(0, "a")
        with brokers.broker.faults.hold(ApiKey.LIST_TRANSACTIONS, times=None, broker=2):
            listed = query.run("list", "--timeout", "2")
        assert (listed.exit_code, listed.stdout) == (1, "")
        assert f"ListTransactions of broker 2 ({brokers.address(2)})" in listed.stderr
        query.close()


@pytest.mark.embedded
@pytest.mark.parametrize("recorded", [True, False])
def test_a_committed_transaction_without_markers_is_listed_as_committing(recorded: bool) -> None:
    """Readers wait for it as for an open one."""
    with EmbeddedKafka(in_memory=True) as broker:
        broker.create_topic("rows", 1, 1, {})
        broker.create_topic("commits", 2, 1, {"cleanup.policy": "compact"})
        query = LeftOver(broker, "rows", "commits")
        task = query.task(0, "a")
        if recorded:
            query.prepared(7, [task])
            query.listed()  # when the log's own markers are written
        with broker.broker.faults.hold_markers():
            query.transactions.end([task.handle], True, query.soon())
            line = query.listed()
        (transaction,) = line["transactions"]
        assert (transaction["state"], transaction["times_out_in_ms"]) == ("committing", None)
        assert transaction["age_ms"] >= 0
        assert line["to_do"].startswith("its rows are visible when the brokers have written the markers")
        query.close()
