"""A Kafka cluster at given addresses, and its topics, through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, TopicMetadata

# For a broker of Java that has just started, on a busy machine.
REQUEST_TIMEOUT_S = 60.0
# Shorter, for whoever waits asks again: one that was asked may be paused, or have died.
METADATA_TIMEOUT_S = 10.0


class Kafka:
    """A Kafka cluster that is used and not stopped.

    default_replication: the replication factor of topics that are created without one. -1 is the broker's default.
    """

    default_replication = -1

    def __init__(self, bootstrap_servers: str, direct_servers: str | None = None) -> None:
        """direct_servers: addresses past any proxy, for what is no part of a test: topics, waiting, reading back."""
        self.bootstrap_servers = bootstrap_servers
        self.direct_servers = direct_servers or bootstrap_servers
        # log_level 0: a broker that is down on purpose is no news; whoever waits in vain gets an error that says it.
        self.admin = AdminClient({"bootstrap.servers": self.direct_servers, "log_level": 0, "reconnect.backoff.max.ms": 200})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops what this object started: here, nothing."""

    def metadata(self, topic: str | None = None, *, timeout_s: float = METADATA_TIMEOUT_S) -> ClusterMetadata:
        """Returns the cluster's current metadata. Raises KafkaException if no broker answers in time."""
        if topic is None:
            return self.admin.list_topics(timeout=timeout_s)
        return self.admin.list_topics(topic, timeout=timeout_s)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
        *,
        deadline_s: float = 60.0,
    ) -> str:
        """Creates a topic and returns its name once every partition has a leader. `replication` None: the broker's default."""
        factor = replication or self.default_replication
        new = NewTopic(name, num_partitions=partitions, replication_factor=factor, config=dict(config or {}))
        self._create(new, time.monotonic() + deadline_s)
        self.wait_for(
            lambda: has_leaders(self.metadata(name).topics[name], partitions),
            f"leaders of all {partitions} partitions of {name}",
            deadline_s,
        )
        return name

    def _create(self, new: NewTopic, deadline: float) -> None:
        """Asks again if the broker that was asked has gone or is slow: an earlier test may just have restarted it.

        On a busy machine, brokers may also lose their sessions for a moment. Then there are too few for the default factor.
        """
        transient = {KafkaError._DESTROY_BROKER, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT}
        if new.replication_factor == self.default_replication:
            transient.add(KafkaError.INVALID_REPLICATION_FACTOR)
        tried = False
        while True:
            try:
                self.admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S)[new.topic].result(timeout=60)
            except KafkaException as error:
                code = error.args[0].code()
                if tried and code == KafkaError.TOPIC_ALREADY_EXISTS:
                    return
                if code not in transient or time.monotonic() >= deadline:
                    raise
                tried = True
                time.sleep(0.1)
            else:
                return

    def delete_topic(self, name: str, *, deadline_s: float = 60.0) -> None:
        """Returns once a broker does not list it any more, which is a moment after the controller has deleted it."""
        self.admin.delete_topics([name], request_timeout=deadline_s)[name].result(timeout=deadline_s)
        self.wait_for(lambda: name not in self.metadata().topics, f"the end of topic {name}", deadline_s)

    def wait_for(self, reached: Callable[[], bool], what: str, deadline_s: float) -> None:
        """Polls until `reached()` is true, also if brokers do not answer. Raises TimeoutError, with `what`, at the deadline."""
        deadline = time.monotonic() + deadline_s
        cause: KafkaException | None = None
        while True:
            try:
                if reached():
                    return
            except KafkaException as error:
                cause = error
            if time.monotonic() > deadline:
                raise TimeoutError(self.explain(f"{what}: not within {deadline_s:g} s at {self.bootstrap_servers}")) from cause
            time.sleep(0.05)

    def explain(self, message: str) -> str:
        """Returns `message` with more details: subclasses that have the brokers' logs add the last lines."""
        return message


def has_leaders(topic: TopicMetadata, partitions: int) -> bool:
    return len(topic.partitions) == partitions and all(p.leader >= 0 for p in topic.partitions.values())


def in_sync(metadata: ClusterMetadata) -> bool:
    """Returns whether every partition has a leader and all replicas have caught up with it."""
    every = [partition for topic in metadata.topics.values() for partition in topic.partitions.values()]
    return all(p.leader >= 0 and len(p.isrs) == len(p.replicas) for p in every)
