"""Which broker coordinates a transactional id: asked for many at once, and kept until one proves wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

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


class Found(NamedTuple):
    """nodes: by transactional id, its coordinator's node id. late: why another id has none yet."""

    nodes: dict[str, int]
    late: dict[str, str]


class Coordinators:
    """Of a ClusterClient, whose thread it belongs to."""

    def __init__(self, ask_any: AskAny) -> None:
        self._ask_any = ask_any
        self._nodes: dict[str, int] = {}

    def find(self, ids: Collection[str], deadline: float) -> Found:
        """BrokerError for a refusal. One without a coordinator holds nobody back: it is to be asked for again."""
        if len(self._nodes) > _MOST_KEPT:
            self._nodes.clear()
        unknown = [each for each in ids if each not in self._nodes]
        late: dict[str, str] = {}
        for start in range(0, len(unknown), _AT_ONCE):
            request = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=unknown[start : start + _AT_ONCE])
            for answer in self._ask_any(_BATCHED, request, deadline).coordinators:
                if answer.error_code:
                    late[answer.key] = _why_late(answer)
                else:
                    self._nodes[answer.key] = answer.node_id
        return Found({each: self._nodes[each] for each in ids if each in self._nodes}, late)

    def forget(self, ids: Iterable[str]) -> None:
        for each in ids:
            self._nodes.pop(each, None)


def _why_late(answer: Coordinator) -> str:
    if answer.error_code not in _PASSING:
        raise refused(answer.key, answer.error_code, "FindCoordinator")
    return error_facts(answer.error_code).name


def refused(transactional_id: str, code: int, api: str) -> BrokerError:
    """A coordinator said of an id what asking again does not change."""
    name = error_facts(code).name
    advice = ""
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        advice = ": grant this client Write and Describe on the transactional id, or on a prefix of it"
    text = f"transactional id {transactional_id}: {api} answered {name}{advice}"
    return BrokerError(text, transactional_id=transactional_id, error_code=code, error=name)
