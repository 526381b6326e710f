"""The cluster at one moment: immutable, so that every request sees one state however long it takes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from spark_kafka_sink.protocol.wire_types import ZERO_UUID

NO_LEADER = -1

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})


@dataclass(frozen=True, slots=True)
class PartitionState:
    """`isr` are the replicas whose broker is up. The log itself exists once, whoever leads it."""

    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class TopicState:
    """`configs` are those that were set for this topic."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> PartitionState | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    def with_partition(self, changed: PartitionState) -> TopicState:
        every = list(self.partitions)
        every[changed.index] = changed
        return replace(self, partitions=tuple(every))


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker that was started once. `advertised`: listener -> where who came to that listener finds it (host, port); the
    first is the clients'."""

    node_id: int
    advertised: Mapping[str, tuple[str, int]]
    is_up: bool = True
    rack: str | None = None

    def endpoint(self, listener: str) -> tuple[str, int]:
        """Who came through a listener is sent to the same one of the others (Kafka's `getNode(listenerName)`)."""
        return self.advertised[listener]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """`configs` by broker id; those of every broker under -1."""

    topics: Mapping[str, TopicState] = field(default_factory=dict)
    names: Mapping[uuid.UUID, str] = field(default_factory=dict)
    brokers: Mapping[int, BrokerState] = field(default_factory=dict)
    configs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    def topic_of_id(self, topic_id: uuid.UUID) -> TopicState | None:
        name = self.names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def partition(self, topic: str, index: int) -> PartitionState | None:
        state = self.topics.get(topic)
        return None if state is None else state.partition(index)

    def up(self) -> tuple[int, ...]:
        """Brokers that can be reached, by their ids."""
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
    """Without topics of a cluster that has no topic ids."""
    return {topic.topic_id: name for name, topic in topics.items() if topic.topic_id != ZERO_UUID}
