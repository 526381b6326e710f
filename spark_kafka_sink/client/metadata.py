"""Metadata (Kafka's class of that name): what brokers said of the cluster, when to ask again, and who said what meanwhile."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from spark_kafka_sink.client.backoff import ExponentialBackoff
from spark_kafka_sink.client.broker_answers import BrokerAnswers
from spark_kafka_sink.client.cluster import Cluster, Node, TopicMetadata
from spark_kafka_sink.client.leader_epochs import is_newer, merge_partitions, with_leader
from spark_kafka_sink.client.metadata_updater import MetadataRequestAndVersion
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.protocol.error_codes import error_facts
from spark_kafka_sink.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from spark_kafka_sink.protocol.produce import LeaderIdAndEpoch, NodeEndpoint
from spark_kafka_sink.protocol.wire_types import ZERO_UUID

# KAFKA-9212: brokers that speak less may tell a leader epoch that was never one of the partition's.
FIRST_VERSION_WITH_RELIABLE_EPOCHS = 9


class Metadata:
    """The newest Cluster, and the state of asking for it.

    Threads: the one that polls the NetworkClient calls what MetadataUpdater lists; any other may fetch, request updates and wait.
    `_changed` (a condition with a re-entrant lock) guards every attribute and is notified when an answer came and at close;
    `fetch` and `nodes` read one attribute that is only ever replaced, without it. Times are monotonic milliseconds.

    Every `request_update` makes a new version; a request carries the newest, and its answer serves that and all older ones. So an
    answer that was on its way already when something new was wanted does not pass for an answer to it.
    """

    # Java's producer asks with auto-creation as well; whether it happens is the brokers' setting.
    allow_auto_topic_creation: ClassVar[bool] = True

    def __init__(self, config: ProducerConfig) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._cluster = Cluster()
        self._seen: dict[str, TopicMetadata] = {}  # each topic's last partitions and newest epochs, kept through errors
        # Ids under which a topic was deleted. A broker that has not heard of that yet would bring the dead topic back (Java takes
        # whichever id came last): epochs do not tell, as each topic counts its own.
        self._gone_ids: dict[str, set[uuid.UUID | None]] = {}
        self._max_age_ms = config.metadata_max_age_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._version = self._full_version = 1  # nothing is known yet: an update is wanted
        self._partial_version = self._answered = self._answered_full = 0
        self._last_full_ms = 0
        self._failures = self._unchanged = 0  # failed attempts, and answers that said nothing new, in a row
        self._not_before_ms = self._unchanged_until_ms = -(2**63)
        self._spoken_version = 0  # of the Metadata API, in the request that is on its way
        self._answers = BrokerAnswers()
        self._closed = False

    # What a subclass decides (the lock is held).

    def _topics_to_ask(self, partial: bool) -> Iterable[str] | None:
        """Topics of the next request, or None for all there are; `partial`: only those nothing is known of yet."""
        return None

    def _retains(self, topic: str, now_ms: int) -> bool:
        """Whether a topic is still of interest."""
        return True

    def _answered_topics(self, topics: Iterable[str]) -> None:
        """These were in an answer, whether with partitions or with an error."""

    # For any thread.

    def fetch(self) -> Cluster:
        return self._cluster

    @property
    def last_full_update_ms(self) -> int | None:
        """When the last answer about all topics came; None before the first."""
        return self._last_full_ms if self._answered_full else None

    def request_update(self) -> int:
        """Ask for all topics again, because what is known seems out of date; returns the version that the answer will serve."""
        with self._changed:
            self._version += 1
            self._full_version = self._version
            return self._version

    def request_update_for_new_topics(self) -> int:
        """Ask at once, without back-off, for topics that nothing is known of; returns as `request_update` does."""
        with self._changed:
            self._version += 1
            self._partial_version = self._version
            self._unchanged = 0
            self._not_before_ms = self._unchanged_until_ms = -(2**63)
            return self._version

    def update_leaders(
        self, leaders: Mapping[tuple[str, int], LeaderIdAndEpoch], endpoints: Sequence[NodeEndpoint]
    ) -> set[tuple[str, int]]:
        """KIP-951: take leaders that a refusing broker named; returns the (topic, partition)s whose leader is new.

        Only newer epochs of known partitions count, and only leaders whose address is known or among the endpoints.
        """
        with self._changed:
            nodes = {**self._cluster.nodes, **{e.node_id: Node(e.node_id, e.host, e.port, e.rack) for e in endpoints}}
            topics = dict(self._cluster.topics)
            taken = set()
            for (name, partition), leader in leaders.items():
                known = topics.get(name)
                if known is None or leader.leader_id not in nodes or not is_newer(known, partition, leader.leader_epoch):
                    continue
                self._seen[name] = topics[name] = with_leader(known, partition, leader.leader_id, leader.leader_epoch)
                taken.add((name, partition))
            if taken:
                self._cluster = replace(self._cluster, nodes=nodes, topics=topics)
                self._changed.notify_all()
            return taken

    def close(self) -> None:
        """Wakes whoever waits; later answers are ignored."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # MetadataUpdater, for the thread that polls the NetworkClient.

    def nodes(self) -> Mapping[int, Node]:
        return self._cluster.nodes

    def time_to_next_update_ms(self, now_ms: int) -> int:
        with self._changed:
            if self._update_requested():
                return max(self._not_before_ms - now_ms, self._unchanged_until_ms - now_ms, 0)
            # An update for age alone is no retry: answers that said nothing new do not put it off.
            return max(self._last_full_ms + self._max_age_ms - now_ms, self._not_before_ms - now_ms, 0)

    def next_request(self, now_ms: int) -> MetadataRequestAndVersion:
        with self._changed:
            due = self._full_version > self._answered_full or now_ms >= self._last_full_ms + self._max_age_ms
            names = self._topics_to_ask(partial=not due)
            partial = not due and names is not None
            topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]

            def body(version: int) -> MetadataRequest:
                self._spoken_version = version
                return MetadataRequest(topics=topics, allow_auto_topic_creation=self.allow_auto_topic_creation)

            return MetadataRequestAndVersion(body, self._version, partial)

    def asking(self, node_label: str, doing: str) -> None:
        with self._changed:
            self._answers.asking(node_label, doing)

    def update(self, request: MetadataRequestAndVersion, response: MetadataResponse, node_label: str, now_ms: int) -> bool:
        with self._changed:
            if self._closed:
                return True
            if response.error_code or not response.brokers:
                # A broker that has just started may know of no brokers, not even of itself.
                reason = error_facts(response.error_code).name if response.error_code else "it knows of no brokers yet"
                self.failed_attempt(node_label, reason, now_ms)
                return False
            self._count_answer(request, now_ms)
            self._take(response, request.partial, node_label, now_ms)
            self._unchanged_until_ms = now_ms + (self._backoff.backoff_ms(self._unchanged - 1) if self._unchanged else 0)
            self._changed.notify_all()
            return True

    def failed_attempt(self, node_label: str, error: str, now_ms: int) -> None:
        with self._changed:
            self._failures += 1
            self._unchanged = 0
            self._not_before_ms = now_ms + self._backoff.backoff_ms(self._failures - 1)
            self._answers.failed(node_label, error)

    def rebootstrap(self) -> None:
        """Java's Metadata.rebootstrap, which forgets the topics as well: every append would wait for one of them again."""
        with self._changed:
            self._cluster = replace(self._cluster, nodes={})
            self.request_update()

    # Inside (the lock is held).

    def _update_requested(self) -> bool:
        return self._full_version > self._answered_full or self._partial_version > self._answered

    def _count_answer(self, request: MetadataRequestAndVersion, now_ms: int) -> None:
        self._answered = max(self._answered, request.update_version)
        if not request.partial:
            self._answered_full = max(self._answered_full, request.update_version)
            self._last_full_ms = now_ms
        self._failures = 0
        self._not_before_ms = now_ms + self._backoff.backoff_ms(0)
        self._unchanged += 1

    def _take(self, response: MetadataResponse, partial: bool, node_label: str, now_ms: int) -> None:
        """Make the next Cluster: the answer's topics and, after a partial answer, the others that were there."""
        answers = {topic.name: topic for topic in response.topics if topic.name is not None}
        others = {name: known for name, known in self._cluster.topics.items() if partial and name not in answers}
        topics = {name: known for name, known in others.items() if self._retains(name, now_ms)}
        for name, answer in answers.items():
            if self._retains(name, now_ms):
                topics[name] = self._merge(name, answer)
        nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        controller_id = response.controller_id if response.controller_id in nodes else None
        self._cluster = Cluster(nodes, topics, response.cluster_id, controller_id)
        self._answers.answered(node_label, {name: _trouble(known) for name, known in topics.items() if name in answers})
        self._answered_topics(answers)
        for name in [name for name in self._seen if not self._retains(name, now_ms)]:
            del self._seen[name]
            self._gone_ids.pop(name, None)

    def _merge(self, name: str, answer: MetadataResponseTopic) -> TopicMetadata:
        topic_id = None if answer.topic_id == ZERO_UUID else answer.topic_id
        errors = {answer.error_code, *(partition.error_code for partition in answer.partitions)}
        if any(error_facts(code).refreshes_metadata for code in errors):
            self.request_update()
        seen = self._seen.get(name)
        if answer.error_code:
            return TopicMetadata(topic_id, answer.error_code)
        if seen is not None and topic_id in self._gone_ids.get(name, ()):
            return seen
        if seen is not None and topic_id is not None and seen.topic_id not in (None, topic_id):
            self._gone_ids.setdefault(name, set()).add(seen.topic_id)
        reliable = self._spoken_version >= FIRST_VERSION_WITH_RELIABLE_EPOCHS
        merged = merge_partitions(answer.partitions, topic_id, seen, reliable_epochs=reliable)
        if merged != seen:
            self._unchanged = 0
        self._seen[name] = merged
        return merged


def _trouble(topic: TopicMetadata) -> str | None:
    """What keeps records from going to a topic that was answered about."""
    if topic.error:
        return error_facts(topic.error).name
    return None if topic.leaders else "the topic has no partitions"
