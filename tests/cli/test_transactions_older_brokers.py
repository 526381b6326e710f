"""The commands at brokers that exactly-once refuses: what an older release, or another producer, left open is ended there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from spark_kafka_sink.cli.main import main
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.cli.left_over import LeftOver
from tests.exactly_once.opened import new_id, opened
from tests.kafka.brokers import Brokers
from tests.kafka.cluster import KafkaCluster
from tests.kafka.embedded import EmbeddedKafka, hide
from tests.waiting import wait_until

REAL = "a real 3.7"
COMMANDS = (
    ("list",),
    ("recover", "--all"),
    ("abort", "--query", "job-0f4c2b7a9d3e4c51b6a7e8f901234567", "--yes"),
    ("resolve", "--query", "4b0e4a3c-52a1-4a0c-9a0d-0d3a3c8e2f10", "--batch", "1", "--accept-loss", "--yes"),
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("3.7", marks=pytest.mark.embedded),
        pytest.param(REAL, marks=[pytest.mark.kafka, pytest.mark.whole("a broker; the embedded one plays the same release")]),
    ],
)
def old_kafka(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    is_real = request.param == REAL
    made = KafkaCluster(version="3.7", heap_mb=256) if is_real else EmbeddedKafka(in_memory=True, like=request.param)
    yield made
    made.stop()


@pytest.fixture
def query(old_kafka: Brokers) -> Iterator[LeftOver]:
    commits = old_kafka.create_topic(new_id("commits"), 2, config={"cleanup.policy": "compact"})
    made = LeftOver(old_kafka, old_kafka.create_topic(new_id("events")), commits)
    yield made
    made.close()


def left_open(query: LeftOver, value: str, slot: int) -> PreparedTransaction:
    handle = opened(query.client, query.topic, value, query.ids.for_slot("ab", slot))
    return PreparedTransaction(handle, slot, 0)


def test_what_is_open_is_listed_and_aborted(query: LeftOver) -> None:
    left_open(query, "a", 0)
    assert len(query.listed()["transactions"]) == 1
    done = query.run("abort", "--query", query.query_id, "--yes")

    assert (done.exit_code, done.stderr) == (0, "")
    assert "1 transaction aborted" in done.stdout
    assert query.transactions.open_handles(query.ids, query.soon()) == ()
    assert query.visible() == []


def test_what_is_prepared_is_committed(query: LeftOver) -> None:
    query.prepared(0, [left_open(query, "a", 0), left_open(query, "b", 1)])
    done = query.run("recover", "--query", query.query_id)

    assert (done.exit_code, done.stderr) == (0, "")
    assert "committed, with 2 rows" in done.stdout
    wait_until(lambda: query.visible() == ["a", "b"])


@pytest.mark.embedded
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("like", "lacking"), [("2.1", "FindCoordinator and DescribeTransactions"), ("4.1", "DescribeTransactions")]
)
def test_brokers_that_no_command_works_with_are_an_error_at_once(like: str, lacking: str, command: tuple[str, ...]) -> None:
    with EmbeddedKafka(in_memory=True, like=like) as kafka:
        hide(kafka, ApiKey.DESCRIBE_TRANSACTIONS)
        done = CliRunner().invoke(main, ["transactions", *command, "--bootstrap-servers", kafka.bootstrap_servers])

    assert done.exit_code == 1
    assert done.stdout == ""
    assert "requires Kafka 3.0 or newer" in done.stderr
    assert f"it does not serve {lacking} as needed" in done.stderr
    assert "it has left no transactions open there" in done.stderr


@pytest.fixture(params=["without the API", "refusing it"])
def unlisted(request: pytest.FixtureRequest) -> Iterator[LeftOver]:
    """A query at a service that lists no transactions, whose last batch is prepared; another task's transaction is open."""
    with EmbeddedKafka(in_memory=True) as kafka:
        query = LeftOver(
            kafka, kafka.create_topic("events"), kafka.create_topic("commits", 2, config={"cleanup.policy": "compact"})
        )
        query.prepared(0, [left_open(query, "a", 0)])
        if request.param == "refusing it":
            kafka.broker.faults.fail(ApiKey.LIST_TRANSACTIONS, ErrorCode.UNSUPPORTED_VERSION, times=None)
        else:
            hide(kafka, ApiKey.LIST_TRANSACTIONS)
        yield query
        kafka.broker.faults.clear()
        query.close()


def test_what_is_prepared_is_listed_where_brokers_list_no_transactions(unlisted: LeftOver) -> None:
    listed = unlisted.run("list")
    assert listed.exit_code == 1
    assert f"restart the query, or: recover --query {unlisted.query_id}" in listed.stdout
    assert "Commits work without the list, and so do the commands `transactions recover` and `resolve`" in listed.stderr

    assert unlisted.run("recover", "--query", unlisted.query_id).exit_code == 0
    wait_until(lambda: unlisted.visible() == ["a"])


def test_nothing_can_be_aborted_where_brokers_list_no_transactions(unlisted: LeftOver) -> None:
    assert unlisted.run("recover", "--query", unlisted.query_id).exit_code == 0
    aborted = unlisted.run("abort", "--query", unlisted.query_id, "--yes")
    assert aborted.exit_code == 1
    assert "those that lost tasks left open end when they time out" in aborted.stderr


def test_an_empty_log_does_not_look_like_no_open_transactions_there(unlisted: LeftOver) -> None:
    unlisted.kafka.create_topic("empty", 2, config={"cleanup.policy": "compact"})
    listed = unlisted.run("list", "--commit-log-topic", "empty")
    assert (listed.exit_code, listed.stdout) == (1, "empty is empty.\n")
