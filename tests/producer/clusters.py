"""Clusters for tests that need no broker: one node leads everything."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_kafka_sink.client.cluster import NO_LEADER, Cluster, Node, TopicMetadata


def cluster_of(partitions: Mapping[str, int], *, leader: int = 0, leaderless: Collection[tuple[str, int]] = ()) -> Cluster:
    """`partitions`: topic to its number of partitions; all but the `leaderless` ones are led by node `leader`."""
    topics = {
        topic: TopicMetadata(
            None, 0, tuple(NO_LEADER if (topic, p) in leaderless else leader for p in range(count)), (0,) * count
        )
        for topic, count in partitions.items()
    }
    return Cluster({leader: Node(leader, "localhost", 9092)}, topics)
