"""Requests without a response yet, oldest first for each node. Pure, like Java's InFlightRequests."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from spark_kafka_sink.errors import PeerError, ProtocolError
from spark_kafka_sink.network.selector import END_OF_TIME_MS
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.fields import Message


@dataclass(slots=True)  # frozen, its construction would take three times as long
class ClientResponse:
    """The response to a request, or the reason why there is none. In either case the request's buffers are free again.

    `tag` is the value given to `send`; times are monotonic ms; `version` is -1 if there is no common version.

    Without an error, `body` is the response, or None if no response was expected and the request is sent. `error` is one of:

    - DisconnectedError: the connection ended before the response, so the request may or may not have been carried out. The fact
      `timed_out` is true if the broker took too long.
    - ProtocolError: the broker sent invalid data and the connection is closed. The request may have been carried out.
    - AuthenticationError: the other end proved not to be the broker. The request may have been carried out.
    - UnsupportedVersionError: nothing was sent.
    """

    node_id: int
    api: AnyApi
    version: int
    tag: object
    body: Message | None
    error: PeerError | None
    sent_ms: int
    latency_ms: int


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """One request; times are monotonic ms. `is_sent`: whether the operating system has its last byte.

    Its buffers are free once the response arrives.
    """

    node_id: int
    correlation_id: int
    api: AnyApi
    version: int
    tag: object
    expects_answer: bool
    sent_ms: int
    timeout_ms: int
    deadline_ms: int
    is_sent: bool = False

    def response(self, body: Message | None, error: PeerError | None, now_ms: int) -> ClientResponse:
        latency_ms = now_ms - self.sent_ms
        return ClientResponse(self.node_id, self.api, self.version, self.tag, body, error, self.sent_ms, latency_ms)


class InFlightRequests:
    """The requests of all nodes: at most `limit` per node, of which only the last may be partly sent.

    due_ms: no request is overdue before this time. It may be earlier than any deadline, because an answer does not change it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._requests: dict[int, deque[InFlightRequest]] = {}
        self.due_ms = END_OF_TIME_MS

    def add(self, request: InFlightRequest) -> None:
        requests = self._requests.get(request.node_id)
        if requests is None:
            requests = self._requests[request.node_id] = deque()
        requests.append(request)
        self.due_ms = min(self.due_ms, request.deadline_ms)

    def can_send_more(self, node_id: int) -> bool:
        requests = self._requests.get(node_id)
        return not requests or (requests[-1].is_sent and len(requests) < self._limit)

    def sent(self, node_id: int) -> InFlightRequest | None:
        """Marks the last request as sent. Returns and forgets it if no response is expected."""
        requests = self._requests[node_id]
        requests[-1].is_sent = True
        return None if requests[-1].expects_answer else requests.pop()

    def awaiting(self, node_id: int) -> InFlightRequest:
        """Returns the request that a response from this node belongs to, because brokers respond in order.

        Raises ProtocolError if there is none. A partly sent request cannot have a response yet.
        """
        requests = self._requests.get(node_id)
        if not requests or not (requests[0].is_sent and requests[0].expects_answer):
            raise ProtocolError("received a response without a request", node_id=node_id)
        return requests[0]

    def answered(self, node_id: int) -> InFlightRequest | None:
        """Forgets the oldest request. Returns the next one, if there is one."""
        requests = self._requests[node_id]
        requests.popleft()
        return requests[0] if requests else None

    def clear(self, node_id: int) -> list[InFlightRequest]:
        """Forgets and returns all requests of a node, oldest first."""
        return list(self._requests.pop(node_id, ()))

    def count(self, node_id: int | None = None) -> int:
        if node_id is None:
            return sum(map(len, list(self._requests.values())))  # an atomic copy, because other threads call this too
        return len(self._requests.get(node_id, ()))

    def is_first(self, node_id: int, key: ApiKey) -> bool:
        """Returns whether the oldest request of a node is one of this API."""
        requests = self._requests.get(node_id)
        return requests is not None and len(requests) > 0 and requests[0].api.key is key

    def prolong(self, node_id: int, more_ms: int) -> None:
        """Extends a node's deadlines, because the broker throttles this client (KIP-219)."""
        for request in self._requests.get(node_id, ()):
            request.deadline_ms += more_ms

    def timed_out(self, now_ms: int) -> list[InFlightRequest]:
        """Returns the first overdue request of each node that has one."""
        if now_ms < self.due_ms:
            return []
        deadlines = (request.deadline_ms for requests in self._requests.values() for request in requests)
        self.due_ms = min(deadlines, default=END_OF_TIME_MS)
        firsts = (next((r for r in requests if r.deadline_ms <= now_ms), None) for requests in self._requests.values())
        return [first for first in firsts if first is not None]
