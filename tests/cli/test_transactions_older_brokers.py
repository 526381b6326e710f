"""The commands at brokers that exactly-once refuses: what an older release, or another producer, left open is ended there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from tests.cli.left_over import LeftOver, until
from tests.exactly_once.opened import new_id, opened
from tests.kafka.brokers import Brokers
from tests.kafka.cluster import KafkaCluster
from tests.kafka.embedded import EmbeddedKafka

REAL = "a real 3.7"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("3.5", marks=pytest.mark.embedded),
        pytest.param("3.7", marks=pytest.mark.embedded),
        pytest.param(REAL, marks=pytest.mark.kafka),
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
    until(lambda: query.visible() == ["a", "b"])
