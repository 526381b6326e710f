"""What is known of a cluster at one moment (Kafka's Cluster and MetadataSnapshot): brokers, topics, leaders. Never changes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

NO_LEADER = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and where it listens. Java's Node.

    id: its node.id. host, port: where it said that it listens. rack: its broker.rack, None without one.
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
    """leaders and epochs: a node id (NO_LEADER) and a leader epoch (NO_EPOCH: the broker told none) for each partition.

    With an error code (other than 0) there are no partitions. topic_id is None where brokers have none (before Kafka 2.8).
    """

    topic_id: uuid.UUID | None
    error: int
    leaders: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """A snapshot for any thread to read without a lock; the next answer makes another one. Java's Cluster.

    nodes: brokers by id. topics: what is known of each by its name. cluster_id: the cluster's own, None while not known.
    controller_id: the broker that creates topics, None while not known; in KRaft mode any broker, as each forwards the request.

    Topics are those the client asked for. A leader that is not among the nodes counts as none, as in Java's Cluster.
    """

    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    cluster_id: str | None = None
    controller_id: int | None = None
    # Filled when first asked for; two threads that do so at once write the same.
    _available: dict[str, NDArray[np.int32]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", MappingProxyType(dict(self.nodes)))
        object.__setattr__(self, "topics", MappingProxyType(dict(self.topics)))

    def partition_count(self, topic: str) -> int | None:
        """How many partitions `topic` has; None when that is not known."""
        known = self.topics.get(topic)
        return len(known.leaders) or None if known is not None else None

    def partitions(self, topic: str) -> NDArray[np.int32]:
        """The partitions of `topic`: int32, 0 to partition_count - 1; empty for an unknown topic."""
        return np.arange(self.partition_count(topic) or 0, dtype=np.int32)

    def available_partitions(self, topic: str) -> NDArray[np.int32]:
        """The partitions of `topic` that have a leader: int32, ascending; the same array at each call, not to be written to."""
        available = self._available.get(topic)
        if available is None:
            leaders = self.topics[topic].leaders if topic in self.topics else ()
            available = np.array([p for p, leader in enumerate(leaders) if leader in self.nodes], np.int32)
            available.flags.writeable = False
            self._available[topic] = available
        return available

    def leader(self, topic: str, partition: int) -> int | None:
        """The id of the leader of a partition of `topic`; None when there is none or it is not known."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.leaders):
            return None
        leader = known.leaders[partition]
        return leader if leader in self.nodes else None

    def leader_epoch(self, topic: str, partition: int) -> int | None:
        """The epoch of the leader of a partition of `topic`, as `leader` names it; None when it is not known."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.epochs):
            return None
        epoch = known.epochs[partition]
        return None if epoch == NO_EPOCH else epoch

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of `topic`; None when it is not known, or brokers are older than Kafka 2.8."""
        known = self.topics.get(topic)
        return None if known is None else known.topic_id

    def topic_error(self, topic: str) -> int:
        """The error code of the last answer about `topic`; 0 for none, and for a topic nothing was said of."""
        known = self.topics.get(topic)
        return 0 if known is None else known.error
