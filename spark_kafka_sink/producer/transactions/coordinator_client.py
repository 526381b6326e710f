"""Sends a transaction's requests to their coordinators in the sender thread, one at a time, and interprets the responses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from spark_kafka_sink.client.backoff import ExponentialBackoff
from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.errors import ProducerFencedError, TransactionAuthorizationError, TransactionError, UnsupportedVersionError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.base.lifecycle import FOREVER_MS
from spark_kafka_sink.producer.base.produce_reactions import SOON_MS
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.transactions.requests import (
    CoordinatorKey,
    TransactionRequest,
    find_coordinator,
    found_coordinator,
)
from spark_kafka_sink.producer.transactions.states import ADVICE, Reaction, gravest, reaction
from spark_kafka_sink.producer.transactions.transaction_manager import TransactionManager
from spark_kafka_sink.producer.transactions.verification import too_old
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import error_facts
from spark_kafka_sink.security.acls import RESOURCE_OF, Resource, rights_of

logger = logging.getLogger(__name__)

# The ids of a query recur with each micro-batch, those of batch jobs never do.
MAX_COORDINATORS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class InFlight:
    """The tag of a request. `finds`: the coordinator that is searched for."""

    manager: TransactionManager
    request: TransactionRequest
    finds: CoordinatorKey | None = None


class TransactionCoordinatorClient:
    """Sends a transaction's requests in the sender thread. As in Java one is in flight at a time, because order matters."""

    def __init__(
        self, config: ProducerConfig, client: NetworkClient, metadata: ProducerMetadata, accumulator: RecordAccumulator
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._rights = partial(rights_of, config.bootstrap_servers, config.security)
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._soon_ms = min(SOON_MS, config.retry_backoff_ms)
        self._in_flight: InFlight | None = None
        self._coordinators: dict[CoordinatorKey, int] = {}
        self._attempts = 0
        self._not_before_ms = 0
        self._done_requests = 0
        self._is_asking = False
        self.waits_to_connect_to: int | None = None  # the broker that a request waits for while it is being connected to

    @property
    def waits_for(self) -> int | None:
        """The number of the request without which the transaction cannot continue; None if there is none."""
        return self._done_requests if self._is_asking else None

    def too_old(self, manager: TransactionManager, node: int) -> UnsupportedVersionError | None:
        return too_old(self._client.versions(node)) if manager.is_for_others else None

    # Requests

    def start_over(self) -> None:
        """Drops the pending request, because another manager's requests come next."""
        self._in_flight = None
        if len(self._coordinators) >= MAX_COORDINATORS:
            self._coordinators.clear()
        self._attempts = self._not_before_ms = 0
        self._is_asking = False

    def step(self, manager: TransactionManager, now_ms: int, is_flushed: Callable[[], bool]) -> int:
        self.waits_to_connect_to = None
        if self._in_flight is not None:
            return FOREVER_MS
        if now_ms < self._not_before_ms:
            return self._not_before_ms - now_ms
        request = manager.next_request(now_ms, is_flushed)
        self._is_asking = request is not None
        return FOREVER_MS if request is None else self._ask(manager, request, now_ms)

    def _ask(self, manager: TransactionManager, request: TransactionRequest, now_ms: int) -> int:
        key = request.coordinator
        node = None if key is None else self._coordinators.get(key)
        finds = key if node is None else None
        if finds is not None:
            request = find_coordinator(finds)
            node = self._client.least_loaded_node(now_ms)
        if node is None:
            why = self._client.outages()
            manager.blocked_reason = f"no broker can be reached{why and f' ({why})'}"
            return self._wait(now_ms)
        if not self._client.ready(node, now_ms):
            return self._until_ready(manager, node, key, now_ms)
        if request.api.key is ApiKey.INIT_PRODUCER_ID and (error := self.too_old(manager, node)) is not None:
            manager.fatal(error)
            return FOREVER_MS
        self._in_flight = InFlight(manager, request, finds)
        manager.blocked_reason = f"broker {node} has not responded to {_name(request)} yet"
        self._client.send(node, request.api, request.body, now_ms, tag=self._in_flight, max_version=request.max_version)
        return FOREVER_MS

    def _until_ready(self, manager: TransactionManager, node: int, key: CoordinatorKey | None, now_ms: int) -> int:
        if self._client.is_throttled(node, now_ms):
            manager.blocked_reason = f"broker {node} throttles this client, because it exceeds a quota"
        else:
            manager.blocked_reason = self._client.why_not_ready(node) or f"broker {node} is being connected to"
        self.waits_to_connect_to = node
        is_known = node in self._metadata.fetch().nodes
        if key in self._coordinators and (not is_known or self._client.is_unavailable(node)):
            if not is_known:  # the broker is newer than the metadata, or gone
                self._metadata.request_update()
            del self._coordinators[key]  # another broker may be the coordinator now
            return self._wait(now_ms)
        return self._client.poll_delay_ms(node, now_ms)

    def _wait(self, now_ms: int, wait_ms: int | None = None) -> int:
        if wait_ms is None:
            wait_ms = self._backoff.backoff_ms(self._attempts)
            self._attempts += 1
        self._not_before_ms = now_ms + wait_ms
        return wait_ms

    # Responses

    def answered(self, response: ClientResponse, now_ms: int) -> None:
        """Handles the result of a request. Ignores results that no call waits for any more."""
        in_flight = response.tag
        if in_flight is not self._in_flight or not isinstance(in_flight, InFlight):
            return
        self._in_flight = None
        manager, request = in_flight.manager, in_flight.request
        if isinstance(response.error, UnsupportedVersionError):
            manager.fatal(_without_transactions(manager, response.error))
        elif response.error is not None:
            if in_flight.finds is None:
                manager.unanswered(request)
            self._again(in_flight, f"{_name(request)}: {response.error.message}", now_ms, find=True)
        else:
            self._act(in_flight, response, now_ms)

    def _act(self, in_flight: InFlight, response: ClientResponse, now_ms: int) -> None:
        manager, request = in_flight.manager, in_flight.request
        what, code = gravest(request.api.key, request.codes(response.body))
        decided = reaction(request.api.key, code)
        if decided is Reaction.DONE:
            self._attempts = 0
            self._done_requests += 1
            self._done(in_flight, response)
            return
        error = self._error(in_flight, what, code, decided)
        if decided > Reaction.FIND_COORDINATOR:
            logger.warning("%s", error)
            before = manager.state
            manager.refused(request, decided, error)
            if manager.state is before:  # the same request is sent again
                self._wait(now_ms)
            return
        manager.partly_done(request, response.body)
        text = f"broker {response.node_id} responded to {_name(request)} with {error_facts(code).name}"
        self._again(in_flight, text, now_ms, find=decided is Reaction.FIND_COORDINATOR, soon=decided is Reaction.RETRY_SOON)

    def _error(self, in_flight: InFlight, what: str, code: int, decided: Reaction) -> TransactionError:
        """Returns the error of a rejected request. `what`: the partition or group that the code concerns; empty for all of it."""
        request, transactional_id = in_flight.request, in_flight.manager.transactional_id
        match RESOURCE_OF.get(code):
            case Resource.TOPIC:
                name = what.removeprefix("topic ").partition(" ")[0]
            case Resource.GROUP:
                name = request.group
            case _:
                name = transactional_id
        denial = self._rights().denied(request.api.key, code, name)
        about = f" for {what}" if what else ""
        text = f"transactional id {transactional_id}: the broker rejected {_name(request)}{about}: {error_facts(code).name}"
        facts = {"transactional_id": transactional_id, "error_code": code, "error": error_facts(code).name}
        if denial is not None:
            return TransactionAuthorizationError(f"{text}; {denial}", **facts, **denial.facts)
        kind = ProducerFencedError if decided is Reaction.FENCED else TransactionError
        return kind(text + (f"; {ADVICE[code]}" if code in ADVICE else ""), **facts)

    def _done(self, in_flight: InFlight, response: ClientResponse) -> None:
        if in_flight.finds is None:
            for queue in in_flight.manager.done(in_flight.request, response.body):
                self._accumulator.answered(queue)
        else:
            node = found_coordinator(response.body).node_id  # type: ignore[arg-type]  # of the API that was asked
            logger.debug(
                "transactional id %s: broker %d coordinates %s", in_flight.manager.transactional_id, node, in_flight.finds
            )
            self._coordinators[in_flight.finds] = node

    def _again(self, in_flight: InFlight, reason: str, now_ms: int, *, find: bool, soon: bool = False) -> None:
        logger.info("transactional id %s: %s; retrying", in_flight.manager.transactional_id, reason)
        in_flight.manager.blocked_reason = reason
        if find and in_flight.request.coordinator is not None:
            self._coordinators.pop(in_flight.request.coordinator, None)
        self._wait(now_ms, self._soon_ms if soon else None)


def _name(request: TransactionRequest) -> str:
    """Returns Kafka's name of the request, such as EndTxn."""
    return request.api.request.__name__.removesuffix("Request")


def _without_transactions(manager: TransactionManager, error: UnsupportedVersionError) -> TransactionError:
    needed = "transactions require Kafka 3.0 or newer, and exactly-once 3.8 or newer"
    text = f"transactional id {manager.transactional_id}: {needed}: {error.message}"
    return TransactionError(text, **error.facts | {"transactional_id": manager.transactional_id})
