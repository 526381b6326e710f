"""What changes of the cluster mean for groups: coordinators move with leaders, topics take their offsets along."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.cluster.metadata_image import GROUP_METADATA_TOPIC, NO_LEADER, MetadataImage
from spark_kafka_sink.broker.group.group_coordinator import GroupCoordinator
from spark_kafka_sink.broker.timer import Timer


def follow(cluster: Cluster, coordinator: GroupCoordinator, timer: Timer) -> None:
    """From now on. The cluster tells it under its lock, so that all is done later, on the timer's thread."""

    def changed(before: MetadataImage, after: MetadataImage) -> None:
        gone = before.topics.keys() - after.topics.keys()
        moved = frozenset(_moved(before, after))
        if gone:
            timer.after(0, lambda: coordinator.delete_topics(gone))
        if moved:
            timer.after(0, lambda: coordinator.move(moved))

    cluster.on_change(changed)


def _moved(before: MetadataImage, after: MetadataImage) -> Iterator[int]:
    """Partitions that had a leader and have another, or none."""
    old, new = before.topics.get(GROUP_METADATA_TOPIC), after.topics.get(GROUP_METADATA_TOPIC)
    if old is not None and new is not None and old is not new:
        for one, other in zip(old.partitions, new.partitions, strict=False):
            if one.leader not in {NO_LEADER, other.leader}:
                yield one.index
