"""Commits of exactly-once on a cluster in ZooKeeper mode, whose topics have no ids and of whose brokers one creates topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.options.commit_log_options import CommitLogSettings
from tests.exactly_once.opened import client_of, new_id, soon
from tests.exactly_once.queries import Query
from tests.kafka.cluster import KafkaCluster
from tests.kafka.version_fixtures import IN_ZOOKEEPER_MODE, only_versions


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
