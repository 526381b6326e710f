"""Questions to a cluster from a thread that waits for the answers: to one broker, any, all, a leader, or coordinators."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from spark_kafka_sink.client.backoff import ExponentialBackoff
from spark_kafka_sink.client.cluster import Cluster, Node
from spark_kafka_sink.client.cluster_metadata import ClusterMetadata
from spark_kafka_sink.client.connections import Body
from spark_kafka_sink.client.coordinators import Coordinators, Found
from spark_kafka_sink.client.exchange import Exchange
from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.client.question import Answer, Question
from spark_kafka_sink.client.waiting import Waiting
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import DisconnectedError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.protocol.api import Api, RequestT, ResponseT
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts

PATIENCE_MS: Final = 10_000
"""How long one answer is waited for: a broker that is stopped, not dead, keeps its connections, and whoever took over what it did
answers long before a deadline of minutes. All that is asked here may be asked twice."""

_PIPELINED: Final = 100_000
_IDLE_MS: Final = 1000


class ClusterClient:
    """Asks brokers, for one thread, without a thread of its own. Java's Admin has such a thread; here callers wait anyway.

    Deadlines are on time.monotonic's clock. A lost connection, or a broker that cannot be reached, is asked again until then;
    error codes in answers are the caller's to read. DeadlineError says what was asked of whom, and what came of it last. In a
    forked child it connects anew, and leaves the parent's connections alone.
    """

    def __init__(self, config: ProducerConfig) -> None:
        """config: a producer's; addresses, time-outs and back-offs count. Nothing is connected to yet."""
        # The limit on requests in flight is there for the order of batches; here answers are told apart by their requests.
        self._patience_ms = min(config.request_timeout_ms, PATIENCE_MS)
        self._config = replace(config, enable_idempotence=False, max_in_flight=_PIPELINED, request_timeout_ms=self._patience_ms)
        self._backoff = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
        self._coordinators = Coordinators(self.ask_any)
        self._closed = False
        self._pid = -1
        self._client: NetworkClient
        self._metadata: ClusterMetadata
        self._used_ms = 0
        self._inherited: list[NetworkClient] = []

    @property
    def config(self) -> ProducerConfig:
        return self._config

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, but not a parent's."""
        self._closed = True
        if self._pid == os.getpid():
            self._client.close()

    # Questions

    def try_many(
        self, questions: Sequence[Question], deadline: float, on_answer: Callable[[], None] | None = None
    ) -> list[Answer]:
        """Ask each once, all at the same time; what came of each, in their order, without an error being raised.

        on_answer: is called as each answer arrives, while others are on their way.
        """
        self._open(deadline)
        answers = Exchange(self._client, self._metadata, questions, deadline, self._patience_ms, on_answer).run()
        self._used_ms = monotonic_ms()
        return answers

    def ask_many(self, questions: Sequence[Question], deadline: float) -> list[Answer]:
        """The answers, in order, pipelined on each connection; raises where one of them is not to be had."""
        found: dict[int, Answer] = {}
        waiting = Waiting(deadline, self._backoff)
        while left := [number for number in range(len(questions)) if number not in found]:
            for number, answer in zip(left, self.try_many([questions[n] for n in left], deadline), strict=True):
                if isinstance(answer, DisconnectedError):
                    waiting.note(f"{questions[number].api.name}", answer.message)
                elif isinstance(answer, Exception):
                    raise answer
                else:
                    found[number] = answer
            if len(found) < len(questions):
                waiting.again()
        return [found[number] for number in range(len(questions))]

    def ask(self, node_id: int | None, api: Api[RequestT, ResponseT], body: Body, deadline: float) -> ResponseT:
        """The answer of one broker, or of any for None."""
        (answer,) = self.ask_many([Question(node_id, api, body)], deadline)
        assert isinstance(answer, api.response)
        return answer

    def ask_any(self, api: Api[RequestT, ResponseT], body: Body, deadline: float) -> ResponseT:
        """The answer of whichever broker can be asked. Not for what only a controller does: `ask_controller`."""
        return self.ask(None, api, body, deadline)

    def ask_controller(
        self, api: Api[RequestT, ResponseT], body: Body, code_of: Callable[[ResponseT], int], deadline: float
    ) -> ResponseT:
        """Asks the controller that brokers name, and after NOT_CONTROLLER or a lost connection another broker.

        Brokers of KRaft hand requests on to the controller, those of ZooKeeper answer NOT_CONTROLLER; and what they know of the
        controller may be old. `code_of` reads the error code of an answer. DeadlineError names each broker and what it said.
        """
        self._open(deadline)
        waiting = Waiting(deadline, self._backoff)
        named, refused = self._metadata.fetch().controller_id, set[int]()
        while True:
            node = self._controller(named, refused)
            with waiting.told_as_well():
                (answer,) = self.try_many([Question(node.id, api, body)], deadline)
            if isinstance(answer, api.response) and code_of(answer) != ErrorCode.NOT_CONTROLLER:
                return answer
            if isinstance(answer, Exception) and not isinstance(answer, DisconnectedError):
                raise answer
            said = answer.message if isinstance(answer, DisconnectedError) else ErrorCode.NOT_CONTROLLER.name
            waiting.note(f"{api.name} of {node}", said)
            refused.add(node.id)
            waiting.again()
            with waiting.told_as_well():
                self._refresh(self._metadata.refresh(), "the brokers", "", deadline)
            before, named = named, self._metadata.fetch().controller_id
            if named != before:
                refused.clear()

    # What is known of the cluster

    def brokers(self, deadline: float) -> Mapping[int, Node]:
        """All brokers by id, as one of them says now."""
        self._open(deadline)
        self._refresh(self._metadata.refresh(), "the brokers", "", deadline)
        return self._metadata.nodes()

    def leader(self, topic: str, partition: int, deadline: float) -> int:
        """The node id of a partition's leader as far as it is known; waits for one where none is. A topic is never created."""
        self._open(deadline)
        self._metadata.add(topic)
        waiting = Waiting(deadline, self._backoff)
        while (node_id := self._metadata.fetch().leader(topic, partition)) is None:
            self._refresh(self._metadata.refresh(), f"the leader of {topic}-{partition}", topic, deadline)
            if self._metadata.fetch().leader(topic, partition) is None:
                waiting.note(f"the leader of {topic}-{partition}", self._trouble(topic))
                waiting.again()
        return node_id

    def finalized_feature(self, name: str, deadline: float) -> int:
        """The cluster's level of a feature, as "transaction.version"; 0 where it is not finalized."""
        self._open(deadline)
        return self._client.finalized_feature(name)

    def known(self) -> Cluster:
        """What was said last of brokers, and of the topics that were asked about; empty before the first question."""
        return self._metadata.fetch() if self._pid == os.getpid() else Cluster()

    def stale(self) -> None:
        """What is known of leaders proved wrong: the next question asks for metadata first."""
        if self._pid == os.getpid():
            self._metadata.refresh()

    def topic(self, topic: str, deadline: float) -> tuple[int, int]:
        """Asked anew: how many partitions a topic has (0 where it is not to be had), and the error code that says why."""
        self._open(deadline)
        self._metadata.add(topic)
        self._refresh(self._metadata.refresh(), f"topic {topic}", topic, deadline)
        cluster = self._metadata.fetch()
        return cluster.partition_count(topic) or 0, cluster.topic_error(topic)

    def coordinators(self, transactional_ids: Collection[str], deadline: float) -> Found:
        """Each one's coordinator, asked for once where it is not known; `forget_coordinators` makes it ask again.
        BrokerError where the client may not know (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)."""
        return self._coordinators.find(transactional_ids, deadline)

    def forget_coordinators(self, transactional_ids: Iterable[str]) -> None:
        self._coordinators.forget(transactional_ids)

    # Inside

    def _controller(self, named: int | None, refused: set[int]) -> Node:
        """The broker that is `named` unless it has refused; else another that has not; once all have, they are asked again."""
        nodes = self._metadata.nodes()
        if refused >= nodes.keys():
            refused.clear()
        if named is not None and named in nodes and named not in refused:
            return nodes[named]
        return random.choice([node for node in nodes.values() if node.id not in refused])

    def _open(self, deadline: float) -> None:
        """A client of this process, that knows brokers; what happened while nobody asked is taken notice of."""
        if self._closed:
            raise UsageError("this client is closed")
        if self._pid != os.getpid():
            # A parent's NetworkClient is kept as it is: to close it would take its sockets out of an epoll that both share.
            if self._pid != -1:
                self._inherited.append(self._client)
            self._metadata = ClusterMetadata(self._config)
            self._client = NetworkClient(self._config, self._metadata)
            self._pid = os.getpid()
        elif monotonic_ms() - self._used_ms > _IDLE_MS:
            self._client.poll(0, monotonic_ms())
        if not self._metadata.nodes():
            self._refresh(1, "the brokers", "", deadline)
        elif (self._client.least_loaded_node(monotonic_ms()) or 0) < 0:
            # Known brokers have failed, so that bootstrap.servers may be asked as well, but for metadata only: without it nobody
            # would be asked until the deadline.
            self._refresh(self._metadata.refresh(), "the brokers", "", deadline)

    def _refresh(self, version: int, what: str, topic: str, deadline: float) -> None:
        """Until an answer has served this version of metadata."""
        waiting = Waiting(deadline, self._backoff)
        while self._metadata.answered < version or not self._metadata.nodes():
            left_ms = round((deadline - time.monotonic()) * 1000)
            if left_ms <= 0:
                servers = ",".join(self._config.bootstrap_servers)
                waiting.note(what, self._metadata.said(topic) or f"nobody of bootstrap.servers {servers} was asked yet")
                waiting.again()
            self._client.poll(left_ms, monotonic_ms())
        self._used_ms = monotonic_ms()

    def _trouble(self, topic: str) -> str:
        code = self._metadata.fetch().topic_error(topic)
        return self._metadata.said(topic) or (error_facts(code).name if code else "it has no leader now")
