"""Who leads what: placement of new partitions, and what the coming and going of brokers means. Pure."""

from __future__ import annotations

from dataclasses import replace

from spark_kafka_sink.broker.cluster.metadata_image import NO_LEADER, MetadataImage, PartitionState, TopicState


def placed(brokers: tuple[int, ...], partitions: int, replicas: int, *, first: int = 0, begin: int = 0) -> list[tuple[int, ...]]:
    """Replicas for partitions `begin` to `partitions` - 1, leaders in turn over the brokers."""
    count = len(brokers)
    return [tuple(brokers[(first + index + step) % count] for step in range(replicas)) for index in range(begin, partitions)]


def new_partition(index: int, replicas: tuple[int, ...], up: tuple[int, ...]) -> PartitionState:
    isr = tuple(node for node in replicas if node in up)
    return PartitionState(index, replicas, isr, isr[0] if isr else NO_LEADER)


def with_leader(partition: PartitionState, leader: int) -> PartitionState:
    """A new epoch, also where the leader stays: clients must see that something changed."""
    return replace(partition, leader=leader, leader_epoch=partition.leader_epoch + 1)


def elected(partition: PartitionState, up: tuple[int, ...]) -> PartitionState:
    """What becomes of a partition when `up` are the brokers that run. A leader that runs keeps it."""
    isr = tuple(node for node in partition.replicas if node in up)
    changed = replace(partition, isr=isr)
    if partition.leader in isr:
        return changed
    leader = isr[0] if isr else NO_LEADER
    return changed if leader == partition.leader else with_leader(changed, leader)


def elected_everywhere(image: MetadataImage) -> MetadataImage:
    """The image after brokers came or went."""
    up = image.up()
    return image.with_topics(*(_elected_in(topic, up) for topic in image.topics.values()))


def _elected_in(topic: TopicState, up: tuple[int, ...]) -> TopicState:
    return replace(topic, partitions=tuple(elected(partition, up) for partition in topic.partitions))
