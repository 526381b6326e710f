"""Sends requests about transactional ids to their coordinators, and repeats them until each id has a final answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from spark_kafka_sink.client.backoff import ExponentialBackoff, ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import Answer, ClusterRequest
from spark_kafka_sink.errors import DeadlineError, DisconnectedError
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.fields import Message

T = TypeVar("T")

BACKOFF: Final = ExponentialBackoff(initial_ms=2, max_ms=200)
"""The markers of a transaction that has just ended take 2 to 20 ms; until then the answer is CONCURRENT_TRANSACTIONS."""

MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})
"""Codes after which the coordinator is looked up again, because it may be another broker now. Other codes that are retriable in
Java, such as COORDINATOR_LOAD_IN_PROGRESS and CONCURRENT_TRANSACTIONS, only need a retry."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The answer about one id: an error code, and the requested value if the code is 0."""

    code: int
    value: T


@dataclass(frozen=True, slots=True)
class CoordinatorRequest(Generic[T]):
    """One request about some ids to one coordinator, and a function that reads the response."""

    question: ClusterRequest
    ids: Sequence[str]
    read: Callable[[Message], Mapping[str, Reply[T]]]


class CoordinatorRounds(Generic[T]):
    """Sends rounds of pipelined requests with pauses that begin at a few ms."""

    def __init__(
        self,
        client: ClusterClient,
        ask: Callable[[int, Sequence[str]], Iterable[CoordinatorRequest[T]]],
        deadline: float,
        on_response: Callable[[], None] | None = None,
    ) -> None:
        """ask: returns the requests to a node about the ids that it coordinates. deadline: on time.monotonic's clock.
        on_response: called as each response arrives, while others are in flight."""
        self._client = client
        self._ask = ask
        self._deadline = deadline
        self._on_response = on_response
        self._waiting = ResponseWaiter(deadline, BACKOFF)
        self.replies: dict[str, Reply[T]] = {}
        self.lost: set[str] = set()  # ids of requests without a response: they may have been, or may yet be, carried out

    def run(self, ids: Collection[str]) -> dict[str, Reply[T]]:
        """Returns a final reply for each id.

        Raises DeadlineError, in which case `replies` has those received, and PeerError if a broker violates the protocol.
        """
        while left := [each for each in ids if each not in self.replies]:
            found = self._client.coordinators(left, self._deadline)
            for each, why in found.late.items():
                self._waiting.note(each, f"the coordinator: {why}")
            by_node: dict[int, list[str]] = {}
            for each, node_id in found.nodes.items():
                by_node.setdefault(node_id, []).append(each)
            requests = [one for node_id, some in by_node.items() for one in self._ask(node_id, some)]
            answers = self._client.try_many([one.question for one in requests], self._deadline, self._on_response)
            for one, answer in zip(requests, answers, strict=True):
                self._take(one, answer)
            if not all(each in self.replies for each in left):
                self._waiting.again()
        return self.replies

    def run_out(self, ids: Collection[str]) -> dict[str, str]:
        """Works as `run`, but returns at the deadline, with the last known reason for each id without a reply."""
        try:
            self.run(ids)
        except DeadlineError as error:
            return {each: self._waiting.said(each) or error.message for each in ids if each not in self.replies}
        return {}

    def _take(self, request: CoordinatorRequest[T], answer: Answer) -> None:
        if isinstance(answer, DisconnectedError):
            self._client.forget_coordinators(request.ids)
            self.lost.update(request.ids)
            for each in request.ids:
                self._waiting.note(each, answer.message)
            return
        if isinstance(answer, Exception):
            raise answer
        replies = request.read(answer)
        for each, reply in ((each, replies[each]) for each in request.ids if each in replies):
            facts = error_facts(reply.code)
            if reply.code and facts.retriable:
                self._waiting.note(each, facts.name)
                if reply.code in MOVED:
                    self._client.forget_coordinators([each])
            else:
                self._waiting.forget(each)
                self.replies[each] = reply
