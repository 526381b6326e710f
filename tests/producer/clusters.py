"""Clusters for tests that need no broker."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_kafka_sink.client.cluster import NO_LEADER, Cluster, Node, TopicMetadata


def cluster_of(partitions: Mapping[str, int], *, leader: int = 0, leaderless: Collection[tuple[str, int]] = ()) -> Cluster:
    """`partitions`: topic to its number of partitions; all but the `leaderless` ones are led by node `leader`."""
    leaders = {
        topic: [NO_LEADER if (topic, p) in leaderless else leader for p in range(count)] for topic, count in partitions.items()
    }
    return led_by(leaders, nodes=[leader])


def led_by(leaders: Mapping[str, Sequence[int]], nodes: Collection[int]) -> Cluster:
    """`leaders`: topic to the node that leads each partition, or NO_LEADER."""
    topics = {topic: TopicMetadata(None, 0, tuple(own), (0,) * len(own)) for topic, own in leaders.items()}
    return Cluster({node: Node(node, "localhost", 9092) for node in nodes}, topics)
