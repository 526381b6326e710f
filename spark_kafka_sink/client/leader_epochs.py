"""Which of two things said about a partition's leader is the newer one (KIP-320). Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_kafka_sink.client.cluster import NO_EPOCH, NO_LEADER, TopicMetadata
from spark_kafka_sink.protocol.metadata import MetadataResponsePartition


def merge_partitions(
    answers: Sequence[MetadataResponsePartition], topic_id: uuid.UUID | None, seen: TopicMetadata | None, *, reliable_epochs: bool
) -> TopicMetadata:
    """A topic as just answered, but where a newer leader epoch was seen before: there it stays as it was.

    Brokers learn of a new leader at different times, so the last answer need not be the newest. Epochs seen under another topic
    id are those of a topic that is gone. Partition ids outside 0 to len(answers) - 1 are left out, as in Java's Cluster.
    """
    leaders, epochs = [NO_LEADER] * len(answers), [NO_EPOCH] * len(answers)
    for answer in answers:
        if 0 <= answer.partition_index < len(answers):
            leaders[answer.partition_index] = answer.leader_id
            epochs[answer.partition_index] = answer.leader_epoch if reliable_epochs else NO_EPOCH
    if seen is not None and (topic_id is None or topic_id == seen.topic_id):
        _keep_newer(leaders, epochs, seen)
        if topic_id is not None:  # a topic never shrinks: a broker that names fewer partitions is behind
            leaders += seen.leaders[len(leaders) :]
            epochs += seen.epochs[len(epochs) :]
    return TopicMetadata(topic_id, 0, tuple(leaders), tuple(epochs))


def _keep_newer(leaders: list[int], epochs: list[int], seen: TopicMetadata) -> None:
    """An answer without an epoch (a partition with an error) says who leads, but not that what was seen is out of date."""
    for partition, (leader, epoch) in enumerate(zip(seen.leaders[: len(leaders)], seen.epochs, strict=False)):
        if epoch > epochs[partition]:
            if epochs[partition] != NO_EPOCH:
                leaders[partition] = leader
            epochs[partition] = epoch


def is_newer(known: TopicMetadata, partition: int, epoch: int) -> bool:
    """Whether `epoch` is after what is known of a partition; never for a partition that is not known."""
    return 0 <= partition < len(known.epochs) and epoch > known.epochs[partition]


def with_leader(known: TopicMetadata, partition: int, leader: int, epoch: int) -> TopicMetadata:
    """The topic with one partition's leader and epoch changed."""
    leaders, epochs = list(known.leaders), list(known.epochs)
    leaders[partition], epochs[partition] = leader, epoch
    return TopicMetadata(known.topic_id, known.error, tuple(leaders), tuple(epochs))
