"""An immutable snapshot of a cluster (Kafka's Cluster and MetadataSnapshot), and rules for merging newer metadata."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # a task's first imports need no messages
    from spark_kafka_sink.protocol.apis.metadata import MetadataResponsePartition

NO_LEADER = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and its address. Java's Node.

    Attributes:
        id: The broker's node.id.
        host: The advertised host.
        port: The advertised port.
        rack: The broker's broker.rack; None if not set.
    """

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"broker {self.id} ({host}:{self.port})"


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """The partitions of a topic, or the error code of its metadata.

    leaders and epochs: node id (or NO_LEADER) and leader epoch (NO_EPOCH if the broker sent none) of each partition. With an
    error code other than 0 there are no partitions. topic_id is None if brokers have no topic ids (before Kafka 2.8).
    """

    topic_id: uuid.UUID | None
    error: int
    leaders: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()

    def is_outdated_by(self, partition: int, epoch: int) -> bool:
        """Returns whether `epoch` is newer than the known epoch of a partition; False for an unknown partition."""
        return 0 <= partition < len(self.epochs) and epoch > self.epochs[partition]

    def with_leaders(self, moved: Mapping[int, tuple[int, int]]) -> TopicMetadata:
        """Returns a copy in which some partitions have a new leader and epoch."""
        leaders, epochs = list(self.leaders), list(self.epochs)
        for partition, (leader, epoch) in moved.items():
            leaders[partition], epochs[partition] = leader, epoch
        return replace(self, leaders=tuple(leaders), epochs=tuple(epochs))


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """An immutable snapshot that any thread may read without a lock. Java's Cluster.

    It has the topics that the client requested. A leader that is not among the nodes counts as none, as in Java's Cluster.

    Attributes:
        nodes: Brokers by id.
        cluster_id: The cluster's id; None if unknown.
    """

    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    cluster_id: str | None = None
    # The broker that creates topics; None if unknown. In KRaft mode any broker, because each forwards requests.
    controller_id: int | None = None
    # Filled at first use; two threads that do so at once write the same.
    _available: dict[str, NDArray[np.int32]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", MappingProxyType(dict(self.nodes)))
        object.__setattr__(self, "topics", MappingProxyType(dict(self.topics)))

    def partition_count(self, topic: str) -> int | None:
        """Returns the partition count of `topic`; None if unknown."""
        known = self.topics.get(topic)
        return len(known.leaders) or None if known is not None else None

    def partitions(self, topic: str) -> NDArray[np.int32]:
        """Returns the partitions of `topic` as int32, 0 to partition_count - 1; empty for an unknown topic."""
        return np.arange(self.partition_count(topic) or 0, dtype=np.int32)

    def available_partitions(self, topic: str) -> NDArray[np.int32]:
        """Returns the partitions of `topic` that have a leader, as int32, ascending. The array is shared: do not modify it."""
        available = self._available.get(topic)
        if available is None:
            leaders = self.topics[topic].leaders if topic in self.topics else ()
            available = np.array([p for p, leader in enumerate(leaders) if leader in self.nodes], np.int32)
            available.flags.writeable = False
            self._available[topic] = available
        return available

    def leader(self, topic: str, partition: int) -> int | None:
        """Returns the id of the leader of a partition of `topic`; None if there is none or it is unknown."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.leaders):
            return None
        leader = known.leaders[partition]
        return leader if leader in self.nodes else None

    def leader_epoch(self, topic: str, partition: int) -> int | None:
        """Returns the epoch of the leader of a partition of `topic`, as returned by `leader`; None if unknown."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.epochs):
            return None
        epoch = known.epochs[partition]
        return None if epoch == NO_EPOCH else epoch

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """Returns the id of `topic`; None if it is unknown, or brokers are older than Kafka 2.8."""
        known = self.topics.get(topic)
        return None if known is None else known.topic_id

    def topic_error(self, topic: str) -> int:
        """Returns the error code of the last metadata of `topic`; 0 if there was no error or no metadata."""
        known = self.topics.get(topic)
        return 0 if known is None else known.error


CONFIRMED_AFTER_MS: Final = 5_000
"""A broker learns of a recreated topic within a second. One that is cut off from the controller does not, but still responds.
If no other broker responds, its answer counts once it has been the same for this long."""


class TopicIds:
    """The ids under which a topic of one cluster was seen: which one is current, and how certain that is.

    A broker that does not know of a deletion yet would bring the dead topic back (Java takes the id that came last). Leader
    epochs do not help, because each topic counts its own.
    """

    __slots__ = ("_current", "_gone", "_last_ms", "_since_ms", "_votes")

    def __init__(self) -> None:
        self._current: uuid.UUID | None = None
        self._gone: set[uuid.UUID] = set()
        self._votes: dict[str, int] = {}  # responses with the current id since it was new, by broker
        self._since_ms = self._last_ms = 0  # of those responses

    def take(self, topic_id: uuid.UUID | None, node_label: str, now_ms: int) -> bool:
        """Takes the id in a response (None if brokers have none). Returns False if it belongs to a deleted topic."""
        if topic_id in self._gone:
            self._votes.clear()  # brokers disagree: nothing is certain
            return False
        if topic_id is None:
            return True
        if topic_id != self._current:
            if self._current is not None:
                self._gone.add(self._current)
            self._current = topic_id
            self._votes.clear()
        if not self._votes:
            self._since_ms = now_ms
        self._votes[node_label] = self._votes.get(node_label, 0) + 1
        self._last_ms = now_ms
        return True

    def is_made_again(self, brokers: int) -> bool:
        """Returns whether the topic was certainly recreated.

        One response may come from an outdated broker. Two brokers must agree, or the only one of the cluster must say it twice,
        or one must say it for a while without contradiction.
        """
        if not self._gone or not self._votes:
            return False
        lasting = self._last_ms - self._since_ms >= CONFIRMED_AFTER_MS
        return len(self._votes) > 1 or lasting or (brokers == 1 and max(self._votes.values()) > 1)


def merge_partitions(
    answers: Sequence[MetadataResponsePartition], topic_id: uuid.UUID | None, seen: TopicMetadata | None, *, reliable_epochs: bool
) -> TopicMetadata:
    """Returns the topic of a response, keeping partitions with a newer leader epoch seen before (KIP-320).

    Brokers learn of a new leader at different times, so the last response need not be the newest. Epochs seen under another topic
    id belong to a deleted topic. Partition ids outside 0 to len(answers) - 1 are ignored, as in Java's Cluster.
    """
    leaders, epochs = [NO_LEADER] * len(answers), [NO_EPOCH] * len(answers)
    for answer in answers:
        if 0 <= answer.partition_index < len(answers):
            leaders[answer.partition_index] = answer.leader_id
            epochs[answer.partition_index] = answer.leader_epoch if reliable_epochs else NO_EPOCH
    if seen is not None and (topic_id is None or topic_id == seen.topic_id):
        for partition, (leader, epoch) in enumerate(zip(seen.leaders[: len(leaders)], seen.epochs, strict=False)):
            if epoch > epochs[partition]:
                # A response without an epoch (a partition with an error) names the leader, but keeps the known epoch.
                if epochs[partition] != NO_EPOCH:
                    leaders[partition] = leader
                epochs[partition] = epoch
        if topic_id is not None:  # a topic never shrinks: a broker that reports fewer partitions is outdated
            leaders += seen.leaders[len(leaders) :]
            epochs += seen.epochs[len(epochs) :]
    return TopicMetadata(topic_id, 0, tuple(leaders), tuple(epochs))
