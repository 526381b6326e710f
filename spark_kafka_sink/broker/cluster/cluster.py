"""The controller of this process's brokers. Every change of topics, leaders and configs goes through it."""

from __future__ import annotations

import base64
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from enum import Enum
from typing import Any, Final, TypeAlias

from spark_kafka_sink.broker.acl import Acl, AclFilter
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster import cluster_store, new_topics
from spark_kafka_sink.broker.cluster.cluster_store import StoredCluster
from spark_kafka_sink.broker.cluster.credentials import ScramCredential, ScramKey
from spark_kafka_sink.broker.cluster.metadata_image import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerState,
    MetadataImage,
    TopicState,
    elected_everywhere,
    new_partition,
    partition_for,
    with_leader,
)
from spark_kafka_sink.broker.server_properties import check_topic_defaults, checked_topic_configs
from spark_kafka_sink.counts import counted
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK = 1000
"""The number of producer ids reserved at once (KIP-730). A restart skips the rest of a block."""


_INTERNAL_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    GROUP_METADATA_TOPIC: {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    TRANSACTION_STATE_TOPIC: {"cleanup.policy": "compact", "compression.type": "uncompressed", "segment.bytes": "104857600"},
}
"""Kafka's values (GroupCoordinatorConfig, TransactionLogConfig). Segments are small because only closed ones are compacted."""

ConfigChange: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]


class CoordinatorType(Enum):
    """The coordinator types of FindCoordinator. The value is the internal topic whose leaders are the coordinators."""

    GROUP = GROUP_METADATA_TOPIC
    TRANSACTION = TRANSACTION_STATE_TOPIC


class Cluster:
    """The state of the cluster and every operation that changes it (Kafka's controller).

    Any thread may read `image`, which is replaced as a whole under the lock. Listeners to changes are called under the lock, in
    order, and must not block.
    """

    def __init__(self, config: BrokerConfig) -> None:
        check_topic_defaults(config)
        self.config = config
        self._lock = threading.RLock()
        self._listeners: list[Callable[[MetadataImage, MetadataImage], None]] = []
        stored = cluster_store.read(config.data_dir) if config.data_dir else None
        stored = stored or StoredCluster(_new_cluster_id())
        self.cluster_id = stored.cluster_id
        self._next_producer_id = self._reserved = stored.next_producer_id
        acls = tuple(dict.fromkeys((*stored.acls, *config.initial_acls())))
        self.image = MetadataImage(scram=stored.scram, acls=acls).with_topics(*stored.topics)

    def on_change(self, listener: Callable[[MetadataImage, MetadataImage], None]) -> None:
        """Registers a listener, which is called with the images before and after each change."""
        with self._lock:
            self._listeners.append(listener)

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        assignments: new_topics.Assignments = (),
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> TopicState:
        """Creates a topic. -1 is the broker's default; both counts must be -1 if replicas are assigned. Raises ApiException."""
        with self._lock:
            topic = self._new_topic(name, partitions, replication_factor, assignments, configs or {})
            if not validate_only:
                self._become(self.image.with_topics(topic))
            return topic

    def _new_topic(
        self, name: str, partitions: int, replication: int, assignments: new_topics.Assignments, configs: Mapping[str, str | None]
    ) -> TopicState:
        new_topics.check_name(name)
        if name in self.image.topics:
            raise ApiException(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        new_topics.check_collision(name, self.image.topics)
        texts = checked_topic_configs(self.config, configs)
        replicas = self._replicas_of_new(partitions, replication, assignments)
        up = self.image.up()
        states = tuple(new_partition(index, of, up) for index, of in enumerate(replicas))
        return TopicState(name, uuid.uuid4(), states, texts)

    def _replicas_of_new(self, partitions: int, replication: int, assignments: new_topics.Assignments) -> list[tuple[int, ...]]:
        if assignments:
            new_topics.check_no_counts(partitions, replication)
            return new_topics.assigned_replicas(self.image, assignments)
        new_topics.check_counts(partitions, replication)
        partitions = self.config.num_partitions if partitions == new_topics.DEFAULT else partitions
        replication = self.config.default_replication_factor if replication == new_topics.DEFAULT else replication
        failure = f"Unable to replicate the partition {replication} time(s): "
        return new_topics.placed_replicas(self.image, partitions, replication, failure=failure)

    def delete_topic(self, name: str, topic_id: uuid.UUID | None = None) -> None:
        """Deletes a topic. With `topic_id`, a newer topic of the same name is kept. Raises ApiException."""
        with self._lock:
            topic = self._known(name)
            if topic_id not in (None, topic.topic_id):
                raise ApiException(ErrorCode.UNKNOWN_TOPIC_ID)
            self._become(self.image.without_topic(name))

    def create_partitions(
        self, name: str, count: int, *, assignments: Sequence[new_topics.Replicas] | None = None, validate_only: bool = False
    ) -> None:
        """Extends a topic to `count` partitions. `assignments`: the replicas of each new one, in order. Raises ApiException."""
        with self._lock:
            topic = self._known(name)
            new_topics.check_growth(topic, count, assignments)
            there, factor = len(topic.partitions), len(topic.partitions[0].replicas)
            if assignments is None:
                replicas = new_topics.placed_replicas(self.image, count, factor, begin=there)
            else:
                replicas = [new_topics.checked(self.image, there + index, of, factor) for index, of in enumerate(assignments)]
            up = self.image.up()
            added = tuple(new_partition(there + index, of, up) for index, of in enumerate(replicas))
            if not validate_only:
                self._become(self.image.with_topics(replace(topic, partitions=topic.partitions + added)))

    # Configs

    def alter_topic_configs(self, name: str, change: ConfigChange, *, validate_only: bool = False) -> None:
        """Replaces a topic's configs with the result of `change`. Raises ApiException."""
        with self._lock:
            if not name:  # as in `ControllerConfigurationValidator.validateTopicName`
                raise ApiException(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            new_topics.check_name(name)
            topic = self.image.topics.get(name)
            # The values are checked first, even if the topic does not exist, as in
            # `ConfigurationControlManager.validateAlterConfig`.
            texts = checked_topic_configs(self.config, change({} if topic is None else topic.configs))
            if topic is None:
                raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            if not validate_only:
                self._become(self.image.with_topics(replace(topic, configs=texts)))

    def _known(self, name: str) -> TopicState:
        topic = self.image.topics.get(name)
        if topic is None:
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    # Users

    def alter_scram(self, changes: Mapping[ScramKey, ScramCredential | None]) -> None:
        """Changes SCRAM credentials of users; None deletes one."""
        with self._lock:
            self._become(replace(self.image, scram={**self.image.scram, **changes}))

    def add_acls(self, acls: Iterable[Acl]) -> None:
        """Adds ACLs. Existing ones stay unchanged."""
        with self._lock:
            self._become(replace(self.image, acls=tuple(dict.fromkeys((*self.image.acls, *acls)))))

    def delete_acls(self, acl_filter: AclFilter) -> list[Acl]:
        """Deletes the ACLs that match a filter and returns them."""
        with self._lock:
            deleted = [acl for acl in self.image.acls if acl_filter.matches(acl)]
            if deleted:
                self._become(replace(self.image, acls=tuple(acl for acl in self.image.acls if acl not in set(deleted))))
            return deleted

    # Brokers and leaders

    def brokers_up(self, *brokers: BrokerState) -> None:
        """Adds brokers that started, and elects leaders for partitions without one.

        All brokers of a cluster are added at once; otherwise the first one would lead everything.
        """
        with self._lock:
            image = self.image
            for broker in brokers:
                image = image.with_broker(replace(broker, is_up=True))
            self._become(elected_everywhere(image))

    def broker_down(self, node_id: int) -> None:
        """Moves leadership to replicas that are up. The broker counts as down even if that cannot be stored, such as on a full
        disk.
        """
        with self._lock:
            known = self.image.brokers.get(node_id)
            if known is not None:  # otherwise it stopped before it was up
                self._become(elected_everywhere(self.image.with_broker(replace(known, is_up=False))), must_be_noted=False)

    def move_leader(self, topic: str, partition: int, leader: int) -> None:
        """Moves a partition's leadership to a running broker, which becomes a replica if it is not one."""
        with self._lock:
            state = self._known(topic)
            there = state.partition(partition)
            if there is None or leader not in self.image.up():
                raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition} cannot be led by broker {leader}")
            if leader not in there.replicas:
                there = replace(there, replicas=(*there.replicas, leader), isr=(*there.isr, leader))
            self._become(self.image.with_topics(state.with_partition(with_leader(there, leader))))

    def controller_id(self) -> int:
        """Returns the first running broker. Any broker can act as the controller."""
        return next(iter(self.image.up()), -1)

    def coordinator(self, kind: CoordinatorType, key: str) -> int:
        """Returns the broker that coordinates a group or a transactional id; -1: none now. Creates the internal topic."""
        topic = self.internal_topic(kind.value)
        return topic.partitions[partition_for(key, len(topic.partitions))].leader

    def internal_topic(self, name: str) -> TopicState:
        """Returns an internal topic. The first call creates it on up to three brokers."""
        with self._lock:
            topic = self.image.topics.get(name)
            if topic is not None:
                return topic
            up = self.image.up()
            if not up:
                raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            count = {
                GROUP_METADATA_TOPIC: self.config.offsets_topic_num_partitions,
                TRANSACTION_STATE_TOPIC: self.config.transaction_state_log_num_partitions,
            }[name]
            replication = min(3, len(up))
            return self.create_topic(name, count, replication, configs=_INTERNAL_CONFIGS[name])

    # Producer ids

    def next_producer_id(self) -> int:
        """Returns an id that was never given out, even across SIGKILL. Raises COORDINATOR_NOT_AVAILABLE if the disk is full."""
        with self._lock:
            given = self._next_producer_id
            if given == self._reserved:
                self._reserved += PRODUCER_ID_BLOCK
                try:
                    self._store()
                except OSError as error:
                    self._reserved = given  # otherwise the next call would return ids that are not stored
                    text = f"Producer ids cannot be reserved: {error}"
                    raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, text) from error
            self._next_producer_id += 1
            return given

    def _become(self, image: MetadataImage, *, must_be_noted: bool = True) -> None:
        before, self.image = self.image, image
        try:
            # A broker that is down is up again after a restart, whatever is stored.
            with nullcontext() if must_be_noted else suppress(OSError):
                self._store()
            for listener in self._listeners:
                listener(before, image)
        except BaseException:
            self.image = before
            # A failed change must not reappear after a restart. If this write fails, so did the first.
            with suppress(OSError):
                self._store()
            raise

    def _store(self) -> None:
        if self.config.data_dir is not None:
            topics = tuple(self.image.topics.values())
            stored = StoredCluster(self.cluster_id, topics, self._reserved, self.image.scram, self.image.acls)
            cluster_store.write(self.config.data_dir, stored)


def _new_cluster_id() -> str:
    """Returns an id like Kafka's: 22 characters of URL-safe base64. A leading dash would look like an option to tools."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


Event: TypeAlias = tuple[str, dict[str, Any]]
"""A change as text, and as facts for programs."""


def log_changes(before: MetadataImage, after: MetadataImage) -> None:
    """Logs the changes between two images. It is a listener of `Cluster.on_change`."""
    if logger.isEnabledFor(logging.INFO):
        for text, facts in changes(before, after):
            logger.info(text, extra=facts)


def changes(before: MetadataImage, after: MetadataImage) -> Iterator[Event]:
    """Yields the changes to topics, brokers and settings, except leaders that move because a broker started or stopped."""
    for node, broker in after.brokers.items():
        if node not in before.brokers or before.brokers[node].is_up != broker.is_up:
            address = ":".join(map(str, next(iter(broker.advertised.values()))))
            text = f"Broker {node} is up at {address}" if broker.is_up else f"Broker {node} is down"
            yield text, {"broker": node, "address": address}
    moves = before.up() == after.up()
    for name, topic in after.topics.items():
        known = before.topics.get(name)
        if known is None or known.topic_id != topic.topic_id:
            count = len(topic.partitions)
            yield (f"Created topic {name} with {counted(count, 'partition')}", {"topic": name, "partitions": count})
        elif known is not topic:
            yield from _topic_events(known, topic, moves=moves)
    for name in before.topics:
        if name not in after.topics:
            yield (f"Deleted topic {name}", {"topic": name})
    yield from _security_events(before, after)


def _security_events(before: MetadataImage, after: MetadataImage) -> Iterator[Event]:
    for key, credential in after.scram.items():
        if key not in before.scram or before.scram[key] is not credential:
            mechanism, user = key
            what = "Deleted" if credential is None else "Changed"
            yield (f"{what} the credentials of user {user} for {mechanism}", {"user": user, "mechanism": mechanism})
    for acl in after.acls:
        if acl not in before.acls:
            yield (f"Added ACL {acl}", {"acl": str(acl)})
    for acl in before.acls:
        if acl not in after.acls:
            yield (f"Deleted ACL {acl}", {"acl": str(acl)})


def _topic_events(before: TopicState, after: TopicState, *, moves: bool) -> Iterator[Event]:
    name = after.name
    if len(before.partitions) != len(after.partitions):
        count = len(after.partitions)
        yield (f"Topic {name} now has {counted(count, 'partition')}", {"topic": name, "partitions": count})
    if before.configs != after.configs:
        yield (f"Changed configs of topic {name}: {', '.join(after.configs) or 'none'}", {"topic": name})
    for old, new in zip(before.partitions, after.partitions, strict=False):
        if moves and old.leader != new.leader:
            facts = {"topic": name, "partition": new.index, "leader": new.leader, "leader_epoch": new.leader_epoch}
            yield (f"Broker {new.leader} now leads {name}-{new.index}, after broker {old.leader}", facts)
