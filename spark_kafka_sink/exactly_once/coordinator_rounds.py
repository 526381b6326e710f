"""Requests about transactional ids to their coordinators, sent again until each id has a final answer."""

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
"""Markers of a transaction that was just ended take 2 to 20 ms, and CONCURRENT_TRANSACTIONS is answered meanwhile."""

MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})
"""Another broker may coordinate now: it is asked for, then again. All other codes that Java's class calls retriable just pass,
COORDINATOR_LOAD_IN_PROGRESS and CONCURRENT_TRANSACTIONS among them."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The answer about one id: an error code, and what was asked for where the code is 0."""

    code: int
    value: T


@dataclass(frozen=True, slots=True)
class CoordinatorRequest(Generic[T]):
    """One request about some ids of one coordinator, and how to read its answer."""

    question: ClusterRequest
    ids: Sequence[str]
    read: Callable[[Message], Mapping[str, Reply[T]]]


class CoordinatorRounds(Generic[T]):
    """Sends rounds of pipelined requests, with a pause between two, of ms at first."""

    def __init__(
        self,
        client: ClusterClient,
        ask: Callable[[int, Sequence[str]], Iterable[CoordinatorRequest[T]]],
        deadline: float,
        on_response: Callable[[], None] | None = None,
    ) -> None:
        """ask: returns the requests to a node about ids that it coordinates. deadline: on time.monotonic's clock. on_response: is
        called as each answer arrives, while others are on their way."""
        self._client = client
        self._ask = ask
        self._deadline = deadline
        self._on_response = on_response
        self._waiting = ResponseWaiter(deadline, BACKOFF)
        self.replies: dict[str, Reply[T]] = {}
        self.lost: set[str] = set()  # ids of requests that got no answer: they may have been carried out, or be yet

    def run(self, ids: Collection[str]) -> dict[str, Reply[T]]:
        """Returns a final reply for each id.

        Raises DeadlineError, when `replies` has those that came, and PeerError for what a broker does wrong.
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
        """As `run`, but returns at the deadline what was said last of each id that has no reply."""
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
        for each, reply in request.read(answer).items():
            facts = error_facts(reply.code)
            if reply.code and facts.retriable:
                self._waiting.note(each, facts.name)
                if reply.code in MOVED:
                    self._client.forget_coordinators([each])
            else:
                self._waiting.forget(each)
                self.replies[each] = reply
