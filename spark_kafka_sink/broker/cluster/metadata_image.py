"""The cluster at one moment, immutable so that each request sees one consistent state; and pure functions for elections."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from spark_kafka_sink.broker.acl import Acl
from spark_kafka_sink.broker.cluster.credentials import ScramCredential, ScramKey

NO_LEADER = -1

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition and its replicas. `isr` are the replicas whose broker is up. The log itself exists only once."""

    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic. `configs`: those set for this topic."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=dict)

    def partition(self, index: int) -> PartitionState | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    def with_partition(self, changed: PartitionState) -> TopicState:
        every = list(self.partitions)
        every[changed.index] = changed
        return replace(self, partitions=tuple(every))


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker that was started once. `advertised`: the (host, port) for clients of each listener."""

    node_id: int
    advertised: Mapping[str, tuple[str, int]]
    is_up: bool = True


def address_text(host: str, port: int) -> str:
    """Returns host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The whole cluster state.

    `scram`: the credentials that clients have set, or None where they deleted one. `acls`: all ACLs, in the order of creation.
    """

    topics: Mapping[str, TopicState] = field(default_factory=dict)
    names: Mapping[uuid.UUID, str] = field(default_factory=dict)
    brokers: Mapping[int, BrokerState] = field(default_factory=dict)
    scram: Mapping[ScramKey, ScramCredential | None] = field(default_factory=dict)
    acls: tuple[Acl, ...] = ()

    def partition(self, topic: str, index: int) -> PartitionState | None:
        state = self.topics.get(topic)
        return None if state is None else state.partition(index)

    def up(self) -> tuple[int, ...]:
        """Returns the ids of reachable brokers, in order."""
        return tuple(sorted(broker.node_id for broker in self.brokers.values() if broker.is_up))

    def with_topics(self, *changed: TopicState) -> MetadataImage:
        topics = {**self.topics, **{topic.name: topic for topic in changed}}
        return replace(self, topics=topics, names=_names(topics))

    def without_topic(self, name: str) -> MetadataImage:
        topics = {known: topic for known, topic in self.topics.items() if known != name}
        return replace(self, topics=topics, names=_names(topics))

    def with_broker(self, broker: BrokerState) -> MetadataImage:
        return replace(self, brokers={**self.brokers, broker.node_id: broker})

    def partitions(self) -> Iterator[tuple[TopicState, PartitionState]]:
        return ((topic, partition) for topic in self.topics.values() for partition in topic.partitions)


def _names(topics: Mapping[str, TopicState]) -> dict[uuid.UUID, str]:
    return {topic.topic_id: name for name, topic in topics.items()}


def java_hash(text: str) -> int:
    """Returns Java's `String.hashCode`, over UTF-16 code units, as a signed 32-bit number."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def partition_for(key: str, partitions: int) -> int:
    """Returns the partition of an internal topic for a group or a transactional id. The partition's leader coordinates it.

    It equals `GroupMetadataManager.partitionFor` with Kafka's `Utils.abs`: the sign bit is masked out, so -2^31 becomes 0.
    """
    code = java_hash(key)
    return (0 if code == -(1 << 31) else abs(code)) % partitions


def new_partition(index: int, replicas: tuple[int, ...], up: tuple[int, ...]) -> PartitionState:
    isr = tuple(node for node in replicas if node in up)
    return PartitionState(index, replicas, isr, isr[0] if isr else NO_LEADER)


def with_leader(partition: PartitionState, leader: int) -> PartitionState:
    """Returns the partition with this leader and a new epoch, even if the leader stays: clients must see a change."""
    return replace(partition, leader=leader, leader_epoch=partition.leader_epoch + 1)


def elected(partition: PartitionState, up: tuple[int, ...]) -> PartitionState:
    """Returns the partition as it is while the brokers `up` run. A running leader stays."""
    isr = tuple(node for node in partition.replicas if node in up)
    changed = replace(partition, isr=isr)
    if partition.leader in isr:
        return changed
    leader = isr[0] if isr else NO_LEADER
    return changed if leader == partition.leader else with_leader(changed, leader)


def elected_everywhere(image: MetadataImage) -> MetadataImage:
    """Returns the image after brokers started or stopped."""
    up = image.up()
    return image.with_topics(
        *(replace(topic, partitions=tuple(elected(each, up) for each in topic.partitions)) for topic in image.topics.values())
    )
