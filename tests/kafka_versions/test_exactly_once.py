"""Exactly-once on other versions of Kafka than the default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from tests.exactly_once.opened import client_of, new_id, soon
from tests.exactly_once.queries import Query
from tests.faults.exactly_once.driver import Fleet
from tests.faults.exactly_once.kills import COMMITTED_IN_PART
from tests.faults.exactly_once.numbered_rows import moved
from tests.faults.exactly_once.siege import Siege
from tests.kafka.cluster import KafkaCluster
from tests.kafka.fixtures import IN_ZOOKEEPER_MODE, only_versions
from tests.kafka.versions import NEWEST

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

BATCHES = 3


# The default version is in tests/faults/exactly_once/.
@only_versions(
    IN_ZOOKEEPER_MODE,
    "3.9",
    "4.0",
    NEWEST,
    whole="a Spark driver; test_kills.py has the default version, test_transactions.py each",
)
def test_each_row_is_visible_once_though_the_commit_is_killed_halfway(
    versioned_kafka: KafkaCluster, topic: str, tmp_path: Path, fleet: Fleet
) -> None:
    rows, query = moved(versioned_kafka, topic, tmp_path, BATCHES)
    with Siege(versioned_kafka, [query], fleet) as siege:
        siege.run([COMMITTED_IN_PART])
        siege.judge(rows)
    assert siege.made == [COMMITTED_IN_PART]


# Commits of exactly-once on a cluster in ZooKeeper mode, whose topics have no ids and of whose brokers one creates topics


@pytest.fixture
def client(versioned_kafka: KafkaCluster) -> Iterator[ClusterClient]:
    with client_of(versioned_kafka) as made:
        yield made


@only_versions(IN_ZOOKEEPER_MODE)
def test_any_client_can_create_the_commit_log(versioned_kafka: KafkaCluster) -> None:
    for _ in range(8):  # the first broker that a client asks is any of the two
        with client_of(versioned_kafka) as client:
            CommitLog(client, CommitLogSettings(new_id("commits"), partitions=1)).ensure(soon(10))


@only_versions(IN_ZOOKEEPER_MODE)
def test_batches_are_committed_once_without_topic_ids(versioned_kafka: KafkaCluster, topic: str, client: ClusterClient) -> None:
    query = Query(versioned_kafka, client, topic, new_id("commits"))
    assert query.run(0, "a", "b").rows == 2
    assert query.run(0, "b", "a").rows == 0
    query.write("lost", batch=1)
    report = query.run(1, "c")
    assert (report.rows, report.aborted) == (1, 1)
    assert query.open_ids() == []
    query.expect("a", "b", "c")
