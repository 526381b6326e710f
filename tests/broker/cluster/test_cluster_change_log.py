"""What a broker's log tells of the cluster."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.cluster import Cluster, changes, log_changes
from spark_kafka_sink.broker.cluster.metadata_image import BrokerState


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def cluster(said: list[str]) -> Cluster:
    """Of two brokers, that tells `said` what happens."""
    made = Cluster(BrokerConfig())
    made.brokers_up(BrokerState(1, {"PLAINTEXT": ("localhost", 9092)}), BrokerState(2, {"PLAINTEXT": ("localhost", 9093)}))
    made.on_change(lambda before, after: said.extend(event.text for event in changes(before, after)))
    return made


def test_topics_come_grow_and_go(cluster: Cluster, said: list[str]) -> None:
    cluster.create_topic("one", 1, 1)
    cluster.create_topic("events", 2, 1)
    cluster.create_partitions("events", 3)
    cluster.alter_topic_configs("events", lambda before: {**before, "retention.ms": "5"})
    cluster.delete_topic("events")

    assert said == [
        "Created topic one with 1 partition",
        "Created topic events with 2 partitions",
        "Topic events has 3 partitions now",
        "Changed configs of topic events: retention.ms",
        "Deleted topic events",
    ]


def test_a_leader_that_moves_is_told_with_its_epoch(cluster: Cluster, said: list[str], caplog: pytest.LogCaptureFixture) -> None:
    cluster.create_topic("events", 1, 1)
    before = cluster.image.topics["events"].partitions[0].leader
    cluster.on_change(log_changes)
    with caplog.at_level(logging.INFO):
        cluster.move_leader("events", 0, 3 - before)

    assert said[1:] == [f"Broker {3 - before} now leads events-0, after broker {before}"]
    (event,) = caplog.records
    assert (event.__dict__["topic"], event.__dict__["partition"], event.__dict__["leader_epoch"]) == ("events", 0, 1)


def test_a_broker_that_goes_is_told_and_not_what_it_led(cluster: Cluster, said: list[str]) -> None:
    cluster.create_topic("events", 10, 2)
    cluster.broker_down(2)
    cluster.brokers_up(BrokerState(2, {"PLAINTEXT": ("localhost", 9093)}))

    assert said[1:] == ["Broker 2 is down", "Broker 2 is up at localhost:9093"]
