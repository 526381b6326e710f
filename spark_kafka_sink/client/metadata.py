"""The cluster metadata (Kafka's Metadata): the newest snapshot, when to refresh it, and each broker's last response."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from spark_kafka_sink.change_signal import Changes
from spark_kafka_sink.client.backoff import ExponentialBackoff
from spark_kafka_sink.client.cluster import Cluster, Node, TopicIds, TopicMetadata, merge_partitions
from spark_kafka_sink.errors import AuthenticationError, ClusterChangedError
from spark_kafka_sink.network.selector import END_OF_TIME_MS
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from spark_kafka_sink.protocol.apis.produce import LeaderIdAndEpoch, NodeEndpoint
from spark_kafka_sink.protocol.error_codes import error_facts
from spark_kafka_sink.protocol.fields import ZERO_UUID

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_RELIABLE_EPOCHS: Final = 9
"""KAFKA-9212: brokers with older versions may send a leader epoch that never belonged to the partition."""

NEVER_MS: Final = 2**31 - 1
"""A delay that ends when an update is requested."""

MAX_RESPONSES: Final = 1000
"""A bound, because brokers and topics come and go during a producer's life; far more than one cluster has."""

MAX_NAMED: Final = 20
"""Maximum number of brokers in one error text."""

EARLIEST_REFRESH: Final = 0.8
"""Earliest refresh for age, as a share of metadata.max.age.ms. Java's client takes the whole age, so workers that start together
refresh together ever after: 1,000 sent 318 requests in a second, where 100 is the average (`make scale`)."""


@dataclass(slots=True)
class _Response:
    text: str
    times: int
    last: int


class BrokerResponses:
    """The last response or failure of each broker and its repetitions, for error texts. Not thread-safe.

    Java's error text has only the topic and the time; the reason is in the debug log, which a Spark task does not have.
    """

    def __init__(self) -> None:
        self._responses: dict[tuple[str, str | None], _Response] = {}
        self._count = 0
        self._asking: tuple[str, str] | None = None

    def mark(self) -> int:
        """Returns a mark of the current moment, for the `since` of `about`."""
        return self._count

    def asking(self, node_label: str, state: str) -> None:
        """Records the one broker that is being asked, and the state of that, such as "no response yet"."""
        self._asking = node_label, state

    def failed(self, node_label: str, error: str) -> None:
        self._asking = None
        self._add(node_label, None, error)

    def answered(self, node_label: str, topics: Mapping[str, str | None]) -> None:
        """Records a response: the error of each topic, or None."""
        self._asking = None
        self._responses.pop((node_label, None), None)
        for topic, text in topics.items():
            if text is None:
                self._responses.pop((node_label, topic), None)
            else:
                self._add(node_label, topic, text)

    def about(self, topic: str, since: int) -> str:
        """Returns the responses about a topic after the mark `since`, and the pending one; empty if no broker was asked."""
        texts = [
            f"{node_label}: {response.text}" + (f" ({response.times} times)" if response.times > 1 else "")
            for (node_label, about), response in self._responses.items()
            if about in (None, topic) and response.last > since
        ]
        if self._asking is not None:
            texts.append(": ".join(self._asking))
        left_out = [f"and {len(texts) - MAX_NAMED} earlier"] if len(texts) > MAX_NAMED else []
        return "; ".join([*texts[-MAX_NAMED:], *left_out])

    def _add(self, node_label: str, topic: str | None, text: str) -> None:
        before = self._responses.pop((node_label, topic), None)
        self._count += 1
        times = before.times + 1 if before is not None and before.text == text else 1
        self._responses[node_label, topic] = _Response(text, times, self._count)
        if len(self._responses) > MAX_RESPONSES:
            del self._responses[next(iter(self._responses))]


@dataclass(frozen=True, slots=True)
class MetadataRequestAndVersion:
    """A request for metadata; the same object is passed back with its response.

    `body` makes the message for the version of the Metadata API negotiated with the broker. `update_version` is the last result
    of `request_update()`: the response serves that version and all older ones. `partial`: whether it requests new topics only,
    so that its response says nothing about the others.
    """

    body: Callable[[int], MetadataRequest]
    update_version: int
    partial: bool


class Metadata:
    """The newest Cluster and the state of its updates.

    Any thread may fetch, request updates and wait; everything else belongs to the thread that polls the NetworkClient. `_lock`,
    which is re-entrant, guards every attribute; `_changes` is notified of each response and of the close. `fetch` and `nodes`
    read one attribute without it, because that attribute is only ever replaced. Times are monotonic milliseconds. A `node_label`
    is a readable broker name: `bootstrap server host:port`, or `broker 1 (host:port)`.

    Every `request_update` makes a new version. A request carries the newest version, and its response serves that and all older
    ones, so a response that was already in flight when a new update was requested does not count for it.
    """

    # Java's producer also requests auto-creation; whether it happens is the brokers' setting.
    allow_auto_topic_creation: ClassVar[bool] = True

    def __init__(self, config: ProducerConfig, rng: random.Random | None = None) -> None:
        """rng: spreads the refreshes of many clients. Tests pass their own."""
        self._lock = threading.RLock()
        self._changes = Changes()
        self._rng = rng or random.Random()
        self._cluster = Cluster()
        self._seen: dict[str, TopicMetadata] = {}  # each topic's last partitions and newest epochs, kept through errors
        self._ids: dict[str, TopicIds] = {}
        self._max_age_ms = config.metadata_max_age_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._version = self._full_version = 1  # nothing is known yet: an update is due
        self._partial_version = self._answered = self._answered_full = 0
        self._last_full_ms = self._expires_ms = 0
        self._failures = self._unchanged = 0  # consecutive failed attempts, and consecutive responses without news
        self._not_before_ms = self._unchanged_until_ms = -(2**63)
        self._spoken_version = 0  # of the Metadata API, in the request in flight
        self._answers = BrokerResponses()
        self._rejection: tuple[int, AuthenticationError] | None = None  # the version up to which it ends the wait
        self.cluster_change: ClusterChangedError | None = None  # the last one
        self._closed = False
        # When the next update is due; None after a change, until it is asked for. The sender asks in each of its rounds.
        self._due_ms: int | None = None

    # For subclasses (the lock is held).

    def _topics_to_ask(self, partial: bool) -> Iterable[str] | None:
        """Returns the topics of the next request; None for all. With `partial` only unknown ones."""
        return None

    def _retains(self, topic: str, now_ms: int) -> bool:
        """Returns whether a topic is still of interest."""
        return True

    def _answered_topics(self, topics: Iterable[str]) -> None:
        """Called with the topics of a response, whether it has their partitions or an error."""

    # For any thread.

    def fetch(self) -> Cluster:
        return self._cluster

    @property
    def last_full_update_ms(self) -> int | None:
        """Returns the time of the last response about all topics; None before the first."""
        return self._last_full_ms if self._answered_full else None

    def request_update(self) -> int:
        """Requests all topics again, because metadata seems outdated. Returns the version that the response will serve."""
        with self._lock:
            self._version += 1
            self._full_version = self._version
            self._due_ms = None
            return self._version

    def request_update_for_new_topics(self) -> int:
        """Requests unknown topics at once, without backoff. Returns the version, as `request_update` does."""
        with self._lock:
            self._version += 1
            self._partial_version = self._version
            self._unchanged = 0
            self._not_before_ms = self._unchanged_until_ms = -(2**63)
            self._due_ms = None
            return self._version

    def made_again_with(self, topic: str) -> int | None:
        """Returns the partition count of a topic that was deleted and recreated while in use; None if that is not certain."""
        with self._lock:
            ids = self._ids.get(topic)
            if ids is None or not ids.is_made_again(len(self._cluster.nodes)):
                return None
            return self._cluster.partition_count(topic)

    def update_leaders(
        self, leaders: Mapping[tuple[str, int], LeaderIdAndEpoch], endpoints: Sequence[NodeEndpoint]
    ) -> set[tuple[str, int]]:
        """Takes the leaders in a broker's rejection (KIP-951). Returns the (topic, partition) pairs with a new leader.

        Only newer epochs of known partitions count, and only leaders whose address is known or among the endpoints.
        """
        with self._lock:
            nodes = {**self._cluster.nodes, **{e.node_id: Node(e.node_id, e.host, e.port, e.rack) for e in endpoints}}
            topics = dict(self._cluster.topics)
            # One copy for each topic: one for each of 16,667 partitions that moved, of 50,000, took 9.3 s instead of 4 ms.
            moved: dict[str, dict[int, tuple[int, int]]] = {}
            for (name, partition), leader in leaders.items():
                known = topics.get(name)
                if known is None or leader.leader_id not in nodes or not known.is_outdated_by(partition, leader.leader_epoch):
                    continue
                moved.setdefault(name, {})[partition] = leader.leader_id, leader.leader_epoch
            for name, leaders_of in moved.items():
                self._seen[name] = topics[name] = topics[name].with_leaders(leaders_of)
            if moved:
                self._cluster = replace(self._cluster, nodes=nodes, topics=topics)
                self._changes.notify_all()
            return {(name, partition) for name, partitions in moved.items() for partition in partitions}

    def close(self) -> None:
        """Wakes the waiting threads; later responses are ignored."""
        with self._lock:
            self._closed = True
            self._changes.notify_all()

    # For the thread that polls the NetworkClient. None of it may wait.

    def nodes(self) -> Mapping[int, Node]:
        """Returns the brokers of the last response by id; empty before the first, when bootstrap.servers are asked."""
        return self._cluster.nodes

    def time_to_next_update_ms(self, now_ms: int) -> int:
        """Returns 0 if an update is due. Includes backoff after `failed_attempt` and after an unchanged response."""
        due_ms = self._due_ms
        if due_ms is None:
            with self._lock:
                due_ms = self._due_ms = self._next_due_ms()
        if due_ms == END_OF_TIME_MS:
            return NEVER_MS
        return due_ms - now_ms if due_ms > now_ms else 0

    def next_request(self, now_ms: int) -> MetadataRequestAndVersion:
        """Returns the request to send now. No other request is made until `update` or `failed_attempt`."""
        with self._lock:
            due = self._full_version > self._answered_full or now_ms >= self._expires_ms
            names = self._topics_to_ask(partial=not due)
            partial = not due and names is not None
            topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]

            def body(version: int) -> MetadataRequest:
                self._spoken_version = version
                return MetadataRequest(topics=topics, allow_auto_topic_creation=self.allow_auto_topic_creation)

            return MetadataRequestAndVersion(body, self._version, partial)

    def asking(self, node_label: str, state: str) -> None:
        """Records for error texts that a broker is being asked or connected; ends with the next call of this group."""
        with self._lock:
            self._answers.asking(node_label, state)

    def update(self, request: MetadataRequestAndVersion, response: MetadataResponse, node_label: str, now_ms: int) -> bool:
        """Applies the response to `request`. Returns False if it has no brokers or a top-level error, which counts as a failed
        attempt."""
        with self._lock:
            if self._closed:
                return True
            if response.error_code or not response.brokers:
                # A broker that has just started may know of no brokers, not even of itself.
                reason = error_facts(response.error_code).name if response.error_code else "it knows of no brokers yet"
                self.failed_attempt(node_label, reason, now_ms)
                return False
            self._answered = max(self._answered, request.update_version)
            if not request.partial:
                self._answered_full = max(self._answered_full, request.update_version)
                self._last_full_ms = now_ms
                self._expires_ms = now_ms + int(self._max_age_ms * self._rng.uniform(EARLIEST_REFRESH, 1))
            self._failures = 0
            self._rejection = None
            self._not_before_ms = now_ms + self._backoff.backoff_ms(0)
            self._unchanged += 1
            self._take(response, request.partial, node_label, now_ms)
            self._unchanged_until_ms = now_ms + (self._backoff.backoff_ms(self._unchanged - 1) if self._unchanged else 0)
            self._due_ms = None
            self._changes.notify_all()
            return True

    def failed_attempt(self, node_label: str, error: str, now_ms: int) -> None:
        """Records that a broker could not be reached while an update was due, or that a request for metadata failed."""
        with self._lock:
            self._failures += 1
            self._unchanged = 0
            self._not_before_ms = now_ms + self._backoff.backoff_ms(self._failures - 1)
            self._due_ms = None
            self._answers.failed(node_label, error)

    def rejected(self, node_label: str, error: AuthenticationError, now_ms: int) -> bool:
        """Records that a broker rejected the login, and ends the waits for an update: no broker is asked until the next
        `request_update` or `accepted`. Returns False if no update was due."""
        with self._lock:
            is_wanted = self._full_version > self._answered_full or self._partial_version > self._answered
            if self._closed or not (is_wanted or now_ms >= self._expires_ms):
                return False
            self.failed_attempt(node_label, error.message, now_ms)
            self._rejection = (self._version, error)
            self._due_ms = None
            self._changes.notify_all()
            return True

    def accepted(self) -> None:
        """Records that a broker accepted the login, so that updates are due again, also those for age alone."""
        with self._lock:
            self._rejection = None
            self._due_ms = None

    def rejection(self, version: int) -> AuthenticationError | None:
        """Returns the error that ended the wait for this version, as returned by `request_update`; None if none did."""
        found = self._rejection  # read once: the lock is not held
        return None if found is None or found[0] < version else found[1]

    def rebootstrap(self) -> None:
        """Forgets the brokers, but not the topics, so that bootstrap.servers are asked again.

        Java's Metadata.rebootstrap also forgets the topics; every append would then wait for its topic again.
        """
        with self._lock:
            self._cluster = replace(self._cluster, nodes={})
            self._forget_past()
            self.request_update()

    # Internals (the lock is held).

    def _next_due_ms(self) -> int:
        if self._rejection is not None and self._rejection[0] >= self._version:
            return END_OF_TIME_MS
        if self._full_version > self._answered_full or self._partial_version > self._answered:
            return max(self._not_before_ms, self._unchanged_until_ms)
        # An update for age alone is not a retry, so responses without news do not delay it.
        return max(self._expires_ms, self._not_before_ms)

    def _forget_past(self) -> None:
        """Forgets the ids and epochs seen so far, because they mean nothing in another cluster."""
        self._seen.clear()
        self._ids.clear()

    def _take(self, response: MetadataResponse, partial: bool, node_label: str, now_ms: int) -> None:
        """Makes the next Cluster from the response's topics and, after a partial response, the other known topics."""
        known_id = self._cluster.cluster_id
        if None not in (response.cluster_id, known_id) and response.cluster_id != known_id:
            # The address leads to another cluster now, after a failover or a failback.
            text = f"{node_label} belongs to cluster {response.cluster_id} now, not to {known_id} as before"
            logger.warning("%s", text)
            self.cluster_change = ClusterChangedError(
                f"{text}. Check where the address leads, and write again what is to be in one cluster",
                broker=node_label,
                cluster_id=response.cluster_id,
                cluster_id_before=known_id,
            )
            self._forget_past()
            if partial:
                self.request_update()
        answers = {topic.name: topic for topic in response.topics if topic.name is not None}
        others = {name: known for name, known in self._cluster.topics.items() if partial and name not in answers}
        topics = {name: known for name, known in others.items() if self._retains(name, now_ms)}
        for name, answer in answers.items():
            if self._retains(name, now_ms):
                topics[name] = self._merge(name, answer, node_label, now_ms)
        nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        controller_id = response.controller_id if response.controller_id in nodes else None
        self._cluster = Cluster(nodes, topics, response.cluster_id or known_id, controller_id)
        self._answers.answered(node_label, {name: _unusable_reason(topics[name]) for name in answers if name in topics})
        self._answered_topics(answers)
        for name in [name for name in self._seen if not self._retains(name, now_ms)]:
            del self._seen[name]
            self._ids.pop(name, None)

    def _merge(self, name: str, answer: MetadataResponseTopic, node_label: str, now_ms: int) -> TopicMetadata:
        topic_id = None if answer.topic_id == ZERO_UUID else answer.topic_id
        errors = {answer.error_code, *(partition.error_code for partition in answer.partitions)}
        if any(error_facts(code).refreshes_metadata for code in errors):
            self.request_update()
        seen = self._seen.get(name)
        if answer.error_code:
            return TopicMetadata(topic_id, answer.error_code)
        ids = self._ids.setdefault(name, TopicIds())
        if not ids.take(topic_id, node_label, now_ms) and seen is not None:
            return seen
        reliable = self._spoken_version >= FIRST_VERSION_WITH_RELIABLE_EPOCHS
        merged = merge_partitions(answer.partitions, topic_id, seen, reliable_epochs=reliable)
        if merged != seen:
            self._unchanged = 0
        self._seen[name] = merged
        return merged


def _unusable_reason(topic: TopicMetadata) -> str | None:
    """Returns why records cannot be sent to a topic; None if they can."""
    if topic.error:
        return error_facts(topic.error).name
    return None if topic.leaders else "the topic has no partitions"
