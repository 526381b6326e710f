"""Metadata of the topics that a producer writes to, the wait for topics that are not known yet, and their retention.ms."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.client.metadata import Metadata
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import AuthenticationError, KafkaSinkError, MetadataTimeoutError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.option import INT64_MAX
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.base.bad_rows import check_topic
from spark_kafka_sink.producer.base.lifecycle import NO_WAIT, Lifecycle, wait_until
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.records.columns import NO_TIMESTAMP
from spark_kafka_sink.reports.delivery_report import DELETED_SOON
from spark_kafka_sink.security.acls import rights_of

logger = logging.getLogger(__name__)

# Topic errors that waiting does not cure, with advice (Java's maybeThrowExceptionForTopic). Others are retried: a topic may be
# about to be created, or a broker may be starting.
FATAL_TOPIC_ERRORS = {
    int(ErrorCode.INVALID_TOPIC_EXCEPTION): "topic names have at most 249 of the characters a-z A-Z 0-9 . _ -",
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED): "",  # security/acls.py names the permission to grant
}


CREATE_IT = "create the topic, or set auto.create.topics.enable=true on the brokers"


class ProducerMetadata(Metadata):
    """Metadata of the topics passed to `add`, each kept for metadata.max.idle.ms after its last use.

    Threads and lock as in Metadata: task threads add and wait, the sender thread sends the requests.
    """

    def __init__(self, config: ProducerConfig, *, on_wait: Callable[[int], None] = lambda waited_ns: None) -> None:
        """`on_wait` receives the duration of each wait for metadata, in ns, however it ended. It is called without the lock."""
        super().__init__(config)
        self._on_wait = on_wait
        self._bootstrap_servers = config.bootstrap_servers
        self._rights = partial(rights_of, config.bootstrap_servers, config.security)
        self._recovers = config.metadata_recovery_strategy == "rebootstrap"
        self._max_idle_ms = config.metadata_max_idle_ms
        self._expiry_ms: dict[str, int] = {}
        self._new_topics: set[str] = set()  # added, but not in any response yet
        self._waiting: Counter[str] = Counter()  # number of threads that wait for each topic

    def add(self, topic: str, now_ms: int) -> bool:
        """Marks a topic as used and requests metadata if it is new. Returns whether it is. Raises RecordError for a bad name."""
        check_topic(topic)
        with self._lock:
            is_new = topic not in self._expiry_ms
            if is_new:
                self._new_topics.add(topic)
                self.request_update_for_new_topics()
            self._expiry_ms[topic] = now_ms + self._max_idle_ms
            return is_new

    def request_update_for_topic(self, topic: str) -> int:
        """Requests metadata of a topic (with the others, unless it is new). Returns the version that the response serves."""
        with self._lock:
            return self.request_update_for_new_topics() if topic in self._new_topics else self.request_update()

    def waiting_topics(self) -> set[str]:
        with self._lock:
            return set(self._waiting)

    def why_no_leader(self, topic: str) -> str:
        """Returns why a topic, or one of its partitions, cannot be written to, and what to do."""
        with self._lock:
            code = self._cluster.topic_error(topic)
            if self._cluster.partition_count(topic) is not None:
                return "the partition has no leader"
            advice = CREATE_IT if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ""
            return "; ".join(filter(None, [self._answers.about(topic, 0) or "no broker has been asked yet", advice]))

    def wait_on(self, topic: str, partition: int, deadline: float, wakeup: Callable[[], None]) -> Cluster:
        """Returns a cluster in which the topic has partitions. Java's KafkaProducer.waitOnMetadata.

        If `partition` is not known (NO_PARTITION: any), the metadata is refreshed once. Waits and raises as `wait_for_topic`
        does; with NO_WAIT it uses what is known.
        """
        self.add(topic, monotonic_ms())
        cluster = self.fetch()
        if cluster.partition_count(topic) is None:
            cluster = self.wait_for_topic(topic, deadline, wakeup)
        if partition >= (cluster.partition_count(topic) or 0) and deadline != NO_WAIT:  # partitions may have been added
            self.refresh_topic(topic, deadline, wakeup)
            cluster = self.wait_for_topic(topic, deadline, wakeup)
        return cluster

    def wait_for_topic(self, topic: str, deadline: float, wakeup: Callable[[], None]) -> Cluster:
        """Returns a cluster in which the topic has partitions.

        Args:
            topic: name of the topic.
            deadline: end of the wait, on time.monotonic's clock.
            wakeup: wakes the sender thread; called without the lock.

        Raises:
            MetadataTimeoutError: The deadline passed.
            BrokerError: The brokers will never return this topic. AuthorizationError if the client may not describe it.
            AuthenticationError: A broker rejected the login.
            UsageError: The producer is closed.
        """
        begun = time.monotonic()
        mark = self._answers.mark()
        while True:
            with self._lock:
                self._check_open(topic)
                self.add(topic, monotonic_ms())
                if self._cluster.partition_count(topic) is not None:
                    return self._cluster
            self._ask(topic, begun, mark, deadline, wakeup)

    def refresh_topic(self, topic: str, deadline: float, wakeup: Callable[[], None]) -> Cluster:
        """Returns the cluster after one more response about a topic, with new partitions. Raises as `wait_for_topic`."""
        self._ask(topic, time.monotonic(), self._answers.mark(), deadline, wakeup)
        return self.fetch()

    def _ask(self, topic: str, begun: float, mark: int, deadline: float, wakeup: Callable[[], None]) -> None:
        """Requests an update and waits for the response. Raises only if the topic's error is final."""
        with self._lock:
            version = self.request_update_for_topic(topic)
            self._waiting[topic] += 1
        waiting_ns = time.monotonic_ns()
        try:
            wakeup()
            wait_until(
                self._changes,
                lambda: self._answered >= version or self._closed or self.rejection(version) is not None,
                deadline,
                lambda: self._timeout(topic, begun, mark),
                lambda: None,
            )
            with self._lock:
                self._check_open(topic)
                self._check_login(topic, version)
                self._check_topic(topic)
        finally:
            with self._lock:
                self._waiting -= Counter((topic,))
            self._on_wait(time.monotonic_ns() - waiting_ns)

    def _check_open(self, topic: str) -> None:
        if self._closed:
            raise UsageError(f"topic {topic}: the producer was closed while waiting for metadata", topic=topic)

    def _check_login(self, topic: str, version: int) -> None:
        error = self.rejection(version)
        if error is not None and self._answered < version:
            text = f"topic {topic}: no broker can be asked for metadata: {error.message}"
            raise AuthenticationError(text, **error.facts | {"topic": topic})

    def _check_topic(self, topic: str) -> None:
        code = self._cluster.topic_error(topic)
        if code in FATAL_TOPIC_ERRORS:
            text = ": ".join(filter(None, [f"topic {topic}", error_facts(code).name, FATAL_TOPIC_ERRORS[code]]))
            raise self._rights().error(text, ApiKey.METADATA, code, topic, topic=topic)

    def _timeout(self, topic: str, begun: float, mark: int) -> MetadataTimeoutError:
        waited_ms = round((time.monotonic() - begun) * 1000)
        with self._lock:
            code = self._cluster.topic_error(topic)
            return MetadataTimeoutError(
                f"topic {topic}: timed out waiting for metadata after {waited_ms} ms; {self._what_was_said(topic, mark)}."
                f" {self._advice(code)}",
                topic=topic,
                error=error_facts(code).name if code else None,
            )

    def _what_was_said(self, topic: str, mark: int) -> str:
        if said := self._answers.about(topic, mark):
            return f"asked {said}"
        # All brokers are in reconnect back-off, so their last failure is the reason.
        if before := self._answers.about(topic, 0):
            return f"no broker was asked during this time; before it {before}"
        return f"no broker of bootstrap.servers {','.join(self._bootstrap_servers)} has been asked yet"

    def _advice(self, code: int) -> str:
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return CREATE_IT.capitalize()
        if code:
            return "Check the health of the brokers, or raise max.block.ms"
        if self._cluster.nodes and not self._recovers:
            return (
                "With metadata.recovery.strategy=none only known brokers are asked: if all of them were replaced, set it"
                " to rebootstrap, or restart"
            )
        return "Check that bootstrap.servers names brokers that this machine can reach"

    # Metadata's decisions

    def _topics_to_ask(self, partial: bool) -> Iterable[str]:
        return sorted(self._new_topics if partial else self._expiry_ms)

    def _answered_topics(self, topics: Iterable[str]) -> None:
        # A topic with an error is no longer new: the next request about it is a retry with back-off.
        self._new_topics.difference_update(topics)

    def _retains(self, topic: str, now_ms: int) -> bool:
        expiry_ms = self._expiry_ms.get(topic)
        if expiry_ms is None:
            return False
        if expiry_ms <= now_ms and topic not in self._new_topics:
            del self._expiry_ms[topic]
            return False
        return True


_RECENT_MS: Final = 60_000
_PATIENCE_S: Final = 5.0


class Retention:
    """Counts records that are older than their topic's retention.ms.

    When a topic gets a record that is older than a minute, it asks the brokers about all of the producer's topics at once, over a
    connection of its own. If they do not respond it never asks again. Any thread may call it; where none may wait, it does not
    ask.
    """

    def __init__(self, config: ProducerConfig, lifecycle: Lifecycle, metadata: ProducerMetadata, *, warns: bool) -> None:
        """warns: whether to log a warning for each topic that gets such records."""
        self._config = replace(config, transactional_id=None)  # without idempotence, as a ClusterClient is, it has none
        self._lifecycle = lifecycle
        self._metadata = metadata
        self._warns = warns
        self._known: dict[str, int] = {}
        self._asks = True
        self._asking = Lock()
        self._warned: set[str] = set()

    def count(self, topic: str, times: NDArray[np.int64]) -> int:
        now = time.time_ns() // 1_000_000
        if times.min(initial=INT64_MAX) >= now - _RECENT_MS:
            return 0
        given = times[times != NO_TIMESTAMP]
        self.learn(topic, int(given.min(initial=now)))
        old = int(np.count_nonzero(given < now - self._known.get(topic, now)))
        if old and self._warns and topic not in self._warned:
            self._warned.add(topic)
            records, limit = counted(old, "record is", "records are"), self._known[topic]
            logger.warning("topic %s: %s older than its retention.ms=%d: %s", topic, records, limit, DELETED_SOON)
        return old

    def learn(self, topic: str, timestamp: int) -> None:
        """Asks the brokers about the topic if a timestamp may be too old and they were not asked before."""
        is_recent = timestamp >= time.time_ns() // 1_000_000 - _RECENT_MS
        if is_recent or topic in self._known or self._lifecycle.must_not_wait:
            return
        # Here, because few tasks need it.
        from spark_kafka_sink.client.cluster_client import ClusterClient
        from spark_kafka_sink.client.topics import RETENTION, all_time_limits

        with self._asking:
            known = self._metadata.fetch().topics.items()
            # Not those that brokers do not know: they would be asked for until the time is over.
            topics = {topic, *(name for name, each in known if not each.error)} - self._known.keys()
            found = dict.fromkeys(topics, INT64_MAX)  # if they do not tell
            try:
                if self._asks and topics:
                    with ClusterClient(self._config) as client:
                        for name, limits in all_time_limits(client, topics, time.monotonic() + _PATIENCE_S):
                            found[name] = limits.get(RETENTION, INT64_MAX)
            except KafkaSinkError as error:
                self._asks = False
                logger.info("whether records are older than the retention.ms of their topics is not known: %s", error)
            self._known.update(found)
