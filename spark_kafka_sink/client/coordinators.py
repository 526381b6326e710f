"""Which broker coordinates a transactional id: asked for many at once, and kept until one proves wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from spark_kafka_sink.client.backoff import ExponentialBackoff
from spark_kafka_sink.client.waiting import Waiting
from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.protocol.api import Api
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.find_coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_TRANSACTION: Final = 1  # CoordinatorType.TRANSACTION
_BATCHED: Final = FIND_COORDINATOR.limited_to(4, FIND_COORDINATOR.max_version)
"""Kafka 3.0 and later, as are DescribeTransactions and ListTransactions."""
_AT_ONCE: Final = 1000
_MOST_KEPT: Final = 10_000

_PASSING: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Where transactions are new to a cluster, the topic of their states has yet to be made."""

AskAny = Callable[[Api[FindCoordinatorRequest, FindCoordinatorResponse], FindCoordinatorRequest, float], FindCoordinatorResponse]


class Coordinators:
    """Of a ClusterClient, whose thread it belongs to."""

    def __init__(self, ask_any: AskAny, backoff: ExponentialBackoff) -> None:
        self._ask_any = ask_any
        self._backoff = backoff
        self._nodes: dict[str, int] = {}

    def find(self, ids: Collection[str], deadline: float) -> dict[str, int]:
        """The node id of each one's coordinator. Raises BrokerError for a refusal, DeadlineError."""
        waiting = Waiting(deadline, self._backoff)
        found = {each: self._nodes[each] for each in ids if each in self._nodes}
        while unknown := [each for each in ids if each not in found][:_AT_ONCE]:
            request = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=unknown)
            answers = self._ask_any(_BATCHED, request, deadline).coordinators
            found |= {each.key: each.node_id for each in answers if not self._is_late(each, waiting)}
            if not all(each in found for each in unknown):
                waiting.again()
        if len(self._nodes) > _MOST_KEPT:
            self._nodes.clear()
        self._nodes |= found
        return found

    def forget(self, ids: Iterable[str]) -> None:
        for each in ids:
            self._nodes.pop(each, None)

    def _is_late(self, answer: Coordinator, waiting: Waiting) -> bool:
        """Whether it is to be asked for again."""
        what = f"the coordinator of {answer.key}"
        if not answer.error_code:
            waiting.forget(what)
            return False
        if answer.error_code not in _PASSING:
            raise refused(answer.key, answer.error_code, "FindCoordinator")
        waiting.note(what, error_facts(answer.error_code).name)
        return True


def refused(transactional_id: str, code: int, api: str) -> BrokerError:
    """A coordinator said of an id what asking again does not change."""
    name = error_facts(code).name
    advice = ""
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        advice = ": grant this client Write and Describe on the transactional id, or on a prefix of it"
    text = f"transactional id {transactional_id}: {api} answered {name}{advice}"
    return BrokerError(text, transactional_id=transactional_id, error_code=code, error=name)
