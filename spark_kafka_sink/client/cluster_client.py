"""Blocking requests to a cluster: to one broker, any broker, all brokers, a leader, or coordinators."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Self

from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.client.backoff import ExponentialBackoff, ResponseWaiter
from spark_kafka_sink.client.cluster import Cluster, Node
from spark_kafka_sink.client.cluster_requests import Answer, ClusterMetadata, ClusterRequest, RequestRound
from spark_kafka_sink.client.connections import Body
from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.errors import BrokerError, DisconnectedError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.protocol.api import Api, ApiKey, RequestT, ResponseT
from spark_kafka_sink.protocol.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.security.acls import Rights, rights_of

PATIENCE_MS: Final = 10_000
"""Time limit of one response. A suspended broker keeps its connections, and its replacement responds long before a deadline of
minutes. All requests made here may be repeated."""

_PIPELINED: Final = 200
"""Requests in flight on a connection. A broker serves them one after the other, so more are not faster, and the last of
thousands would wait longer than `PATIENCE_MS`: then the connection is closed, and all of them are sent again."""

_IDLE_MS: Final = 1000
_LOOK_MS: Final = 1000
"""Interval at which a wait for metadata checks whether a warning is due."""


_TRANSACTION: Final = 1  # CoordinatorType.TRANSACTION
_BATCHED: Final = FIND_COORDINATOR.limited_to(4, FIND_COORDINATOR.max_version)
"""Kafka 3.0 and later, as are DescribeTransactions and ListTransactions."""
_AT_ONCE: Final = 1000
_MAX_KEPT: Final = 100_000
"""Coordinators kept, 15 MB. Micro-batches of 10,000 tasks use more than 10,000 ids, and lost all with that limit."""

_PASSING: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Transient codes: a cluster that is new to transactions must first create the topic of their states."""


class Found(NamedTuple):
    """nodes: coordinator's node id by transactional id. late: reason by id for those without a coordinator yet."""

    nodes: dict[str, int]
    late: dict[str, str]


class ClusterClient:
    """Sends requests to brokers in the calling thread. Java's Admin has its own thread; here callers wait anyway.

    Deadlines are on time.monotonic's clock. If a connection is lost or a broker cannot be reached, it retries until the deadline;
    callers read the error codes in responses. A DeadlineError names the request, the broker and the last result. In a forked
    child it opens new connections and leaves the parent's alone. A rejected login raises AuthenticationError at once.
    """

    def __init__(self, config: ProducerConfig) -> None:
        """config: a producer's settings; addresses, timeouts and backoffs are used. Does not connect yet."""
        # The limit of requests in flight keeps batches in order; there are none here.
        self._patience_ms = min(config.request_timeout_ms, PATIENCE_MS)
        self.config = replace(config, enable_idempotence=False, max_in_flight=_PIPELINED, request_timeout_ms=self._patience_ms)
        self._backoff = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
        self._coordinators: dict[str, int] = {}  # node ids by transactional id, until one proves wrong
        self._closed = False
        self._pid = -1
        self._client: NetworkClient
        self._metadata: ClusterMetadata
        self._used_ms = 0
        self._inherited: list[NetworkClient] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self) -> bool:
        """Reads certificates and keys, and prepares the login. Does not connect. Returns False if this was done before.

        The first request does this otherwise. Raises OptionError if a file or a reference is invalid, InstallationError if a
        library is missing.
        """
        if self._closed:
            raise UsageError("this client is closed")
        if self._pid == os.getpid():
            return False
        # A parent's NetworkClient is left open: closing it would remove its sockets from an epoll that both processes share.
        if self._pid != -1:
            self._inherited.append(self._client)
        self._metadata = ClusterMetadata(self.config)
        self._client = NetworkClient(self.config, self._metadata)
        self._pid = os.getpid()
        return True

    def close(self) -> None:
        """Closes the connections, but not those of a parent process."""
        self._closed = True
        if self._pid == os.getpid():
            self._client.close()

    # Requests

    def try_many(
        self, requests: Sequence[ClusterRequest], deadline: float, on_response: Callable[[], None] | None = None
    ) -> list[Answer]:
        """Sends each request once, all at the same time. Returns the responses or errors in order; raises none of the errors.

        on_response: called as each response arrives, while others are in flight.
        """
        self._open(deadline)
        answers = RequestRound(self._client, self._metadata, requests, deadline, self._patience_ms).run(on_response)
        self._used_ms = monotonic_ms()
        self._check_cluster()
        return answers

    def ask_many(self, requests: Sequence[ClusterRequest], deadline: float) -> list[Answer]:
        """Sends requests pipelined on each connection and returns the responses in order. Raises if one of them fails."""
        found: dict[int, Answer] = {}
        waiter = ResponseWaiter(deadline, self._backoff)
        while left := [number for number in range(len(requests)) if number not in found]:
            for number, answer in zip(left, self.try_many([requests[n] for n in left], deadline), strict=True):
                if isinstance(answer, DisconnectedError):
                    waiter.note(requests[number].api.name, answer.message)
                elif isinstance(answer, Exception):
                    raise answer
                else:
                    found[number] = answer
            if len(found) < len(requests):
                waiter.again()
        return [found[number] for number in range(len(requests))]

    def ask(self, node_id: int | None, api: Api[RequestT, ResponseT], body: Body, deadline: float) -> ResponseT:
        """Returns the response of one broker, or of any broker if node_id is None."""
        (answer,) = self.ask_many([ClusterRequest(node_id, api, body)], deadline)
        assert isinstance(answer, api.response)
        return answer

    def ask_any(self, api: Api[RequestT, ResponseT], body: Body, deadline: float) -> ResponseT:
        """Returns the response of any broker. For requests that only a controller handles, use `ask_controller`."""
        return self.ask(None, api, body, deadline)

    def ask_controller(
        self, api: Api[RequestT, ResponseT], body: Body, code_of: Callable[[ResponseT], int], deadline: float
    ) -> ResponseT:
        """Sends a request to the controller in the metadata, and after NOT_CONTROLLER or a lost connection to another broker.

        KRaft brokers forward requests to the controller. ZooKeeper brokers return NOT_CONTROLLER, and their knowledge of the
        controller may be outdated. `code_of` reads the error code of a response. DeadlineError names the brokers and responses.
        """
        self._open(deadline)
        waiter = ResponseWaiter(deadline, self._backoff)
        named, refused = self._metadata.fetch().controller_id, set[int]()
        while True:
            node = self._controller(named, refused)
            with waiter.told_as_well():
                (answer,) = self.try_many([ClusterRequest(node.id, api, body)], deadline)
            if isinstance(answer, api.response) and code_of(answer) != ErrorCode.NOT_CONTROLLER:
                return answer
            if isinstance(answer, Exception) and not isinstance(answer, DisconnectedError):
                raise answer
            reason = answer.message if isinstance(answer, DisconnectedError) else ErrorCode.NOT_CONTROLLER.name
            waiter.note(f"{api.name} of {node}", reason)
            refused.add(node.id)
            waiter.again()
            with waiter.told_as_well():
                self._refresh(self._metadata.refresh(), "the brokers", "", deadline)
            before, named = named, self._metadata.fetch().controller_id
            if named != before:
                refused.clear()

    # The cluster

    def brokers(self, deadline: float) -> Mapping[int, Node]:
        """Returns all brokers by id, from fresh metadata."""
        self._open(deadline)
        self._refresh(self._metadata.refresh(), "the brokers", "", deadline)
        return self._metadata.nodes()

    def leader(self, topic: str, partition: int, deadline: float) -> int:
        """Returns the node id of a partition's leader, waiting for one if there is none. Never creates the topic.

        Raises AuthorizationError if the client may not describe the topic.
        """
        self._open(deadline)
        self._metadata.add(topic)
        waiter = ResponseWaiter(deadline, self._backoff)
        while (node_id := self._metadata.fetch().leader(topic, partition)) is None:
            self._refresh(self._metadata.refresh(), f"the leader of {topic}-{partition}", topic, deadline)
            if self._metadata.fetch().leader(topic, partition) is None:
                code = self._metadata.fetch().topic_error(topic)
                if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    text = f"topic {topic}: {error_facts(code).name}"
                    raise self.rights.error(text, ApiKey.METADATA, code, topic, topic=topic)
                reason = self._metadata.said(topic) or (error_facts(code).name if code else "it has no leader now")
                waiter.note(f"the leader of {topic}-{partition}", reason)
                waiter.again()
        return node_id

    def finalized_feature(self, name: str, deadline: float) -> int:
        """Returns the cluster's level of a feature such as "transaction.version"; 0 if it is not finalized."""
        self._open(deadline)
        return self._client.finalized_feature(name)

    def versions(self, deadline: float) -> list[NodeApiVersions]:
        """Returns the API versions of the brokers that have been connected to, at least of one. Asks nothing more of them."""
        self._open(deadline)
        return self._client.all_versions()

    def known(self) -> Cluster:
        """Returns the known brokers and requested topics; empty before the first request."""
        return self._metadata.fetch() if self._pid == os.getpid() else Cluster()

    def stale(self) -> None:
        """Makes the next request fetch metadata first, because a known leader proved wrong."""
        if self._pid == os.getpid():
            self._metadata.refresh()

    def topic(self, topic: str, deadline: float) -> tuple[int, int]:
        """Fetches metadata. Returns the partition count of a topic (0 if it has none) and its error code."""
        self._open(deadline)
        self._metadata.add(topic)
        self._refresh(self._metadata.refresh(), f"topic {topic}", topic, deadline)
        cluster = self._metadata.fetch()
        return cluster.partition_count(topic) or 0, cluster.topic_error(topic)

    def coordinators(self, transactional_ids: Collection[str], deadline: float) -> Found:
        """Returns the coordinator of each id; requests unknown ones once. An id without a coordinator does not delay others.

        Raises AuthorizationError if the client may not describe an id.
        """
        if len(self._coordinators) > _MAX_KEPT:
            self._coordinators.clear()
        unknown = [each for each in transactional_ids if each not in self._coordinators]
        late: dict[str, str] = {}
        for start in range(0, len(unknown), _AT_ONCE):
            asked = unknown[start : start + _AT_ONCE]
            request = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=asked)
            said = {found.key: found for found in self.ask_any(_BATCHED, request, deadline).coordinators}
            for found in (said[each] for each in asked if each in said):
                if not found.error_code:
                    self._coordinators[found.key] = found.node_id
                elif found.error_code in _PASSING:
                    late[found.key] = error_facts(found.error_code).name
                else:
                    raise self.refused(found.key, found.error_code, FIND_COORDINATOR.key)
        return Found({each: self._coordinators[each] for each in transactional_ids if each in self._coordinators}, late)

    @property
    def rights(self) -> Rights:
        """Returns the texts for missing rights of this client."""
        return rights_of(self.config.bootstrap_servers, self.config.security)

    def refused(self, transactional_id: str, code: int, api: ApiKey, *, more: str = "") -> BrokerError:
        """Returns the error of a coordinator's rejection that a retry does not change.

        api: the API of the request. more: end of the text.
        """
        text = f"transactional id {transactional_id}: {api.kafka_name} failed with {error_facts(code).name}"
        return self.rights.error(text, api, code, transactional_id, more=more, transactional_id=transactional_id)

    def forget_coordinators(self, transactional_ids: Iterable[str]) -> None:
        for each in transactional_ids:
            self._coordinators.pop(each, None)

    # Internals

    def _controller(self, named: int | None, refused: set[int]) -> Node:
        """Returns the broker `named`, or another one if it has refused. Once all have refused, they are asked again."""
        nodes = self._metadata.nodes()
        if refused >= nodes.keys():
            refused.clear()
        if named is not None and named in nodes and named not in refused:
            return nodes[named]
        return random.choice([node for node in nodes.values() if node.id not in refused])

    def _open(self, deadline: float) -> None:
        """Opens the client of this process if needed, fetches the brokers, and handles pending events."""
        if not self.prepare() and monotonic_ms() - self._used_ms > _IDLE_MS:
            self._client.poll(0, monotonic_ms())
        if not self._metadata.nodes():
            self._refresh(self._metadata.refresh(), "the brokers", "", deadline)
        elif (self._client.least_loaded_node(monotonic_ms()) or 0) < 0:
            # Known brokers have failed, so bootstrap.servers may be asked as well, but for metadata only. Otherwise no broker
            # would be asked until the deadline.
            self._refresh(self._metadata.refresh(), "the brokers", "", deadline)

    def _refresh(self, version: int, what: str, topic: str, deadline: float) -> None:
        """Waits until a response has served this version of metadata."""
        waiter = ResponseWaiter(deadline, self._backoff)
        while self._metadata.answered < version or not self._metadata.nodes():
            if (error := self._metadata.rejection(version)) is not None:
                raise error.with_traceback(None)
            left_ms = round((deadline - time.monotonic()) * 1000)
            servers = ",".join(self.config.bootstrap_servers)
            waiter.note(what, self._metadata.said(topic) or f"no broker of bootstrap.servers {servers} has been asked yet")
            if left_ms <= 0:
                waiter.again()
            waiter.warn_if_due()
            self._client.poll(min(left_ms, _LOOK_MS), monotonic_ms())
        self._used_ms = monotonic_ms()
        self._check_cluster()

    def _check_cluster(self) -> None:
        """Raises ClusterChangedError, once, if the cluster is another one: what was learned of the first does not hold there."""
        if (change := self._metadata.cluster_change) is not None:
            self._metadata.cluster_change = None
            self._coordinators.clear()
            raise change
