"""Requests of a ClusterClient, each sent at most once and all at the same time, and the metadata that they need."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, TypeVar

from spark_kafka_sink.client.connections import Body
from spark_kafka_sink.client.metadata import Metadata
from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import DisconnectedError, PeerError, ProtocolError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.fields import Message

T = TypeVar("T")

Answer: TypeAlias = Message | PeerError
"""A response with any error code, or the reason why there is none; then the request may or may not have been carried out."""


def only_one(found: Sequence[T], api: ApiKey, what: str) -> T:
    """Returns the one element of a response to a request about one thing. Raises ProtocolError if there is none, or another."""
    if len(found) != 1:
        has = counted(len(found), what)
        raise ProtocolError(f"a response to {api.kafka_name} has {has}, but the request was about one", api=api.name)
    return found[0]


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """One request to one broker.

    node_id: the broker; None for any. api: `limited_to` one version if that version is needed. body: as for NetworkClient.
    """

    node_id: int | None
    api: AnyApi
    body: Body


class ClusterMetadata(Metadata):
    """Metadata of the brokers and of the topics that a ClusterClient has requested. Belongs to the calling thread.

    Requesting a topic does not create it, because its creator chooses its configs.
    """

    allow_auto_topic_creation: ClassVar[bool] = False

    def __init__(self, config: ProducerConfig) -> None:
        super().__init__(config)
        self._topics: set[str] = set()

    def add(self, topic: str) -> None:
        if topic not in self._topics:
            self._topics.add(topic)
            self.refresh()

    def refresh(self) -> int:
        """Requests metadata at once. Returns the version that the response will serve.

        A producer's backoff after responses without news would take up to a second of each commit; here the caller pauses
        between requests.
        """
        return self.request_update_for_new_topics()

    @property
    def answered(self) -> int:
        """Returns the newest version, as returned by `refresh`, that a response has served."""
        return self._answered

    def said(self, topic: str = "") -> str:
        """Returns the last responses of brokers about a topic, and failures to respond."""
        return self._answers.about(topic, 0)

    def _topics_to_ask(self, partial: bool) -> Iterable[str]:
        return sorted(self._topics)

    def _retains(self, topic: str, now_ms: int) -> bool:
        return topic in self._topics


class RequestRound:
    """Connects to the brokers, sends as much as the connections accept, and collects the responses. Run it once.

    If one attempt to connect to a broker fails, so do its requests, and the caller may choose another broker.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: ClusterMetadata,
        requests: Sequence[ClusterRequest],
        deadline: float,
        patience_ms: int,
    ) -> None:
        """patience_ms: time limit of one response, if the deadline (on time.monotonic's clock) is not earlier."""
        self._client = client
        self._metadata = metadata
        self._requests = requests
        self._deadline = deadline
        self._patience_ms = patience_ms
        self._unsent: dict[int, deque[int]] = {}  # numbers of requests by node
        self._attempted: set[int] = set()  # nodes with a connection attempt in this round
        self._answers: dict[int, Answer] = {}

    def run(self, on_response: Callable[[], None] | None = None) -> list[Answer]:
        """Returns the answers in the order of the requests. on_response: called as each response arrives."""
        for number, request in enumerate(self._requests):
            self._route(number, request)
        while len(self._answers) < len(self._requests) and self._left_ms() > 0:
            wait_ms = self._send(monotonic_ms())
            if len(self._answers) < len(self._requests):
                for response in self._client.poll(min(wait_ms, self._left_ms()), monotonic_ms()):
                    if self._take(response) and on_response is not None:
                        on_response()
        return [self._answers.get(number) or self._overdue(request) for number, request in enumerate(self._requests)]

    def _left_ms(self) -> int:
        return max(0, round((self._deadline - time.monotonic()) * 1000))

    def _route(self, number: int, request: ClusterRequest) -> None:
        node_id = request.node_id
        if node_id is None:
            node_id = self._client.least_loaded_node(monotonic_ms())
        if node_id is None or node_id not in self._metadata.nodes():
            reason = "no broker can be asked now" if node_id is None else f"broker {node_id} is unknown"
            known = ", ".join(map(str, self._metadata.nodes().values()))
            self._answers[number] = DisconnectedError(f"{reason}; known brokers: {known}")
            self._metadata.refresh()
        else:
            self._unsent.setdefault(node_id, deque()).append(number)

    def _send(self, now_ms: int) -> int:
        """Sends one request to each node that accepts one. Returns the time for which only events can change anything, in ms."""
        waits = [self._patience_ms]
        for node_id in list(self._unsent):
            if node_id not in self._metadata.nodes():  # any more: metadata came meanwhile
                self._fail(node_id)
                continue
            may_try = self._client.poll_delay_ms(node_id, now_ms) == 0
            if self._client.ready(node_id, now_ms):
                number = self._unsent[node_id].popleft()
                if not self._unsent[node_id]:
                    del self._unsent[node_id]
                request = self._requests[number]
                # At the deadline it fails like every overdue request: its response cannot reach the next round.
                timeout_ms = max(1, min(self._patience_ms, self._left_ms()))
                self._client.send(node_id, request.api, request.body, now_ms, timeout_ms=timeout_ms, tag=(self, number))
                continue
            if may_try:
                self._attempted.add(node_id)
            if node_id in self._attempted and self._client.is_unavailable(node_id):
                self._fail(node_id)
            else:
                waits.append(self._client.poll_delay_ms(node_id, now_ms))
        return min(waits)

    def _fail(self, node_id: int) -> None:
        reason = self._client.why_not_ready(node_id) or f"broker {node_id} cannot be connected to"
        error = self._client.authentication_error(node_id) or DisconnectedError(reason)
        for number in self._unsent.pop(node_id):
            self._answers[number] = error

    def _take(self, response: ClientResponse) -> bool:
        """Takes a response. Returns whether it belongs to this round and is not an error."""
        asker, number = response.tag if isinstance(response.tag, tuple) else (None, -1)
        if asker is not self:
            return False
        body: Message | None = response.body
        self._answers[number] = response.error or body or DisconnectedError("no response was expected")
        return response.error is None

    def _overdue(self, request: ClusterRequest) -> DisconnectedError:
        node_id = request.node_id
        reason = None if node_id is None else self._client.why_not_ready(node_id)
        broker = "a broker" if node_id is None else f"broker {node_id}"
        return DisconnectedError(reason or f"{broker} did not respond to {request.api.name} in time", timed_out=True)
