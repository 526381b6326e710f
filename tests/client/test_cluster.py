"""Cluster: a snapshot that answers from what was told, and says None for what was not."""

from __future__ import annotations

import uuid

import pytest

from spark_kafka_sink.client.cluster import Cluster, Node, TopicMetadata

ID = uuid.UUID(int=7)
NODES = {1: Node(1, "one", 9092, "a"), 2: Node(2, "two", 9093)}
CLUSTER = Cluster(NODES, {"orders": TopicMetadata(ID, 0, (2, -1, 1, 9), (5, 6, -1, 8)), "broken": TopicMetadata(None, 3)}, "c")


def test_a_leader_is_a_node_that_is_known() -> None:
    assert [CLUSTER.leader("orders", p) for p in range(4)] == [2, None, 1, None]


def test_an_epoch_is_what_the_broker_told() -> None:
    assert [CLUSTER.leader_epoch("orders", p) for p in range(4)] == [5, 6, None, 8]


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_is_not_there_has_neither_leader_nor_epoch(partition: int) -> None:
    assert CLUSTER.leader("orders", partition) is None
    assert CLUSTER.leader_epoch("orders", partition) is None


def test_available_partitions_have_a_leader() -> None:
    available = CLUSTER.available_partitions("orders")
    assert (available.tolist(), available.dtype.name) == ([0, 2], "int32")
    assert CLUSTER.available_partitions("orders") is available
    with pytest.raises(ValueError, match="read-only"):
        available[0] = 1


def test_partitions_are_all_of_them() -> None:
    assert CLUSTER.partitions("orders").tolist() == [0, 1, 2, 3]
    assert CLUSTER.partition_count("orders") == 4


@pytest.mark.parametrize("topic", ["broken", "unknown"])
def test_a_topic_without_partitions_has_no_count(topic: str) -> None:
    assert CLUSTER.partition_count(topic) is None
    assert CLUSTER.partitions(topic).tolist() == []
    assert CLUSTER.available_partitions(topic).tolist() == []
    assert CLUSTER.leader(topic, 0) is None
    assert CLUSTER.leader_epoch(topic, 0) is None


def test_a_topics_id_and_error() -> None:
    assert [CLUSTER.topic_id(t) for t in ("orders", "broken", "unknown")] == [ID, None, None]
    assert [CLUSTER.topic_error(t) for t in ("orders", "broken", "unknown")] == [0, 3, 0]


def test_a_snapshot_does_not_follow_what_it_was_made_of() -> None:
    nodes, topics = dict(NODES), {"orders": TopicMetadata(ID, 0, (1,), (0,))}
    cluster = Cluster(nodes, topics)
    nodes.clear()
    topics.clear()
    assert cluster.leader("orders", 0) == 1
    with pytest.raises(TypeError):
        cluster.nodes[3] = Node(3, "x", 1)  # type: ignore[index]


def test_an_empty_cluster_knows_nothing() -> None:
    assert (dict(Cluster().nodes), Cluster().partition_count("orders"), Cluster().cluster_id) == ({}, None, None)


@pytest.mark.parametrize(("host", "text"), [("h", "broker 1 (h:9092)"), ("::1", "broker 1 ([::1]:9092)")])
def test_a_node_names_itself(host: str, text: str) -> None:
    assert str(Node(1, host, 9092)) == text
