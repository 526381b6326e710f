"""Sends requests about many transactional ids to their coordinators: describe, list, initialise, end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from spark_kafka_sink.client.api_versions import api_versions_request, node_api_versions
from spark_kafka_sink.client.backoff import ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import ClusterRequest
from spark_kafka_sink.client.topics import replaced, topics_metadata
from spark_kafka_sink.errors import DisconnectedError, KafkaSinkError, OptionError, UnsupportedVersionError
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.coordinator_rounds import BACKOFF, CoordinatorRequest, CoordinatorRounds, Reply
from spark_kafka_sink.exactly_once.micro_batch import NO_QUERY, TransactionalIds
from spark_kafka_sink.exactly_once.proof import Outcome, Proof, TransactionDescription, outcome_of_end, proof_of
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, partition_ranges
from spark_kafka_sink.producer.transactions.transaction_manager import FEATURE
from spark_kafka_sink.producer.transactions.verification import switched_off, too_old
from spark_kafka_sink.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from spark_kafka_sink.protocol.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest, ListTransactionsResponse
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS, ApiVersionsResponse
from spark_kafka_sink.protocol.apis.produce import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from spark_kafka_sink.protocol.apis.transactions import (
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    TransactionState,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.security.acls import RESOURCE_OF

ONGOING: Final = "Ongoing"
PREPARE_COMMIT: Final = "PrepareCommit"
"""Committed, but not visible before the brokers have written its markers."""
COMMITTED: Final = (PREPARE_COMMIT, "CompleteCommit")
_DESCRIBED_AT_ONCE: Final = 100
"""A response may then have 3,900 partitions for each: see the limit of DESCRIBE_TRANSACTIONS."""

# With v5 a coordinator treats a transaction as version 2. v4 came with Kafka 3.8 and is v3 with one more error code.
END_TXN_OF_VERSION_1: Final = END_TXN.limited_to(0, 4)
END_TXN_OF_VERSION_2: Final = END_TXN.limited_to(5, 5)

_LAGGING_S: Final = 2.0
"""A broker learns within a second that a topic was created or deleted."""

INITIALISING: Final = INIT_PRODUCER_ID.limited_to(0, 5)
"""v6 (two-phase commit) closes the connection on Kafka 4.1."""

_VERIFICATION: Final = "transaction.partition.verification.enable"
_BROKER: Final = 4  # ConfigResource.Type.BROKER
_PATIENCE_S: Final = 5.0

_LIST: Final = LIST_TRANSACTIONS.key.kafka_name
_WITHOUT_LIST: Final = (
    ". Where brokers do not list open transactions, those that lost tasks left open end when they time out"
    " (kafka.transaction.timeout.ms). Commits work without the list, and so do the commands `transactions recover` and `resolve`"
)
_WITHOUT_DESCRIPTION: Final = (
    ": exactly-once needs it, to prove how transactions have ended. Where it is not served, set delivery.guarantee=at-least-once"
)


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of an attempt to end a transaction.

    Attributes:
        outcome: The proved outcome.
        code, error: The last error as Kafka's number and name, or the reason for a missing response (code None); 0 and "" if
            there was no error.
        producer_id, epoch: With version 2, those of the producer's next transaction; otherwise -1.
        asked_again: Whether an earlier EndTxn of this transaction was lost in transit and may still arrive.
    """

    outcome: Outcome
    code: int | None = 0
    error: str = ""
    producer_id: int = -1
    epoch: int = -1
    asked_again: bool = False


_PROVED: Final[Mapping[Proof, Outcome]] = {Proof.COMMITTED: Outcome.COMMITTED, Proof.ABORTED: Outcome.ABORTED}


class TransactionClient:
    """Retries requests after transient failures (coordinators that move or load, markers in progress, lost connections).

    It retries until the deadline, which is on time.monotonic's clock. BrokerError names the id; AuthorizationError also the ACL.
    """

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def transaction_version(self, deadline: float) -> int:
        """Returns the version of new transactions: 2 if the cluster has finalized it, otherwise 1."""
        return 2 if self._client.finalized_feature(FEATURE, deadline) >= 2 else 1

    def check_brokers(self, deadline: float) -> None:
        """Raises UnsupportedVersionError if a broker is too old or does not verify transactions.

        If transaction version 2 is finalized, every broker is new enough, and epochs replace the verification of version 1. Then
        only a service can lack an API, and no broker needs to be asked. A broker that does not respond, or does not let this
        client read its settings, is skipped: tasks check each broker that they write to.
        """
        if self._client.finalized_feature(FEATURE, deadline) >= 2:
            for known in self._client.versions(deadline):
                if (error := too_old(known)) is not None:
                    raise error
            return
        brokers = self._client.brokers(deadline)
        soon = min(deadline, time.monotonic() + _PATIENCE_S)
        questions, labels = list[ClusterRequest](), list[str]()
        for node_id, node in brokers.items():
            resource = DescribeConfigsResource(_BROKER, str(node_id), [_VERIFICATION])
            questions.append(ClusterRequest(node_id, API_VERSIONS, api_versions_request()))
            questions.append(ClusterRequest(node_id, DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])))
            labels += [str(node)] * 2
        for label, answer in zip(labels, self._client.try_many(questions, soon), strict=True):
            if isinstance(answer, ApiVersionsResponse) and not answer.error_code:
                if (error := too_old(node_api_versions(label, answer))) is not None:
                    raise error
            elif isinstance(answer, DescribeConfigsResponse):
                configs = (config for result in answer.results if not result.error_code for config in result.configs)
                if any(config.name == _VERIFICATION and config.value == "false" for config in configs):
                    raise switched_off(label)

    # Described and listed

    def describe(self, ids: Collection[str], deadline: float) -> dict[str, TransactionDescription]:
        """Returns the coordinators' descriptions of these ids; unknown ids are left out."""
        replies = CoordinatorRounds(self._client, _describe, deadline).run(ids)
        for each, reply in replies.items():
            if reply.code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                more = "" if reply.code in RESOURCE_OF else _WITHOUT_DESCRIPTION
                raise self._client.refused(each, reply.code, DESCRIBE_TRANSACTIONS.key, more=more)
        return {each: reply.value for each, reply in replies.items() if reply.value is not None}

    def list_committed(self, ids: TransactionalIds, deadline: float) -> list[str]:
        """Returns the ids of this query's tasks whose last transaction was committed. Raises like `list_open`."""
        found = self.list_open(ids.start, deadline, example=ids.commit_log, states=COMMITTED)
        return [each for each in found if ids.owns(each)]

    def list_open(self, prefix: str, deadline: float, *, example: str = "", states: tuple[str, ...] = (ONGOING,)) -> list[str]:
        """Returns every id that begins with `prefix` and has an Ongoing transaction. All brokers must respond.

        An id whose coordinator moves meanwhile may be missing. Raises AuthorizationError if the client may not describe such ids,
        and an error for which `is_unlisted` is true if brokers do not list transactions.

        example: an id of this kind whose coordinator may already be known; by default an id that no query has.
        states: names of other states to list.
        """
        # Kafka silently omits ids that the client may not describe. Finding a coordinator requires the same right.
        # The error's ACL is about the whole prefix, not this id alone.
        self._client.coordinators([example or f"{prefix}{NO_QUERY}.log"], deadline)
        waiting = ResponseWaiter(deadline, BACKOFF)
        while True:
            with waiting.told_as_well():
                found = self._list_once(prefix, states, waiting, deadline)
            if found is not None:
                return list(dict.fromkeys(found))  # an id whose coordinator has just moved may be listed by two brokers
            waiting.again()

    def open_handles(
        self, ids: TransactionalIds, deadline: float, known: Mapping[str, TransactionDescription] | None = None
    ) -> tuple[TransactionHandle, ...]:
        """Returns handles of all open transactions of this query's tasks; `records` is 0, because the number is unknown.

        known: recent descriptions, of ids that are not asked about again.
        """
        # After a claim, the coordinator of the commit log's id is known.
        listed = [each for each in self.list_open(ids.start, deadline, example=ids.commit_log) if ids.owns(each)]
        version = self.transaction_version(deadline)
        described = dict(known or {})
        described |= self.describe([each for each in listed if each not in described], deadline)
        found = ((each, described[each]) for each in listed if each in described)
        return tuple(
            TransactionHandle(each, said.producer_id, said.epoch, version, 0, said.partitions)
            for each, said in found
            if said.state == ONGOING
        )

    def _list_once(self, prefix: str, states: tuple[str, ...], waiting: ResponseWaiter, deadline: float) -> list[str] | None:
        """Returns None unless all brokers responded: an id may move from a failed broker to one that responded before."""
        brokers = self._client.brokers(deadline)
        # Filtered here, because only Kafka 4.1 supports a pattern (an RE2 regular expression).
        request = ListTransactionsRequest(state_filters=list(states))
        questions = [ClusterRequest(node_id, LIST_TRANSACTIONS, request) for node_id in brokers]
        found: list[str] | None = []
        for node_id, answer in zip(brokers, self._client.try_many(questions, deadline), strict=True):
            name = f"ListTransactions of {brokers[node_id]}"
            if isinstance(answer, DisconnectedError):
                waiting.note(name, answer.message)
                found = None
            elif isinstance(answer, UnsupportedVersionError):
                raise UnsupportedVersionError(f"{answer.message}{_WITHOUT_LIST}", **answer.facts, request=_LIST)
            elif isinstance(answer, Exception):
                raise answer
            else:
                assert isinstance(answer, ListTransactionsResponse)
                if not self._is_complete(answer, prefix, name, waiting):
                    found = None
                elif found is not None:
                    found += [
                        each.transactional_id
                        for each in answer.transaction_states
                        if each.transactional_id.startswith(prefix) and each.transaction_state in states
                    ]
        return found

    def _is_complete(self, answer: ListTransactionsResponse, prefix: str, name: str, waiting: ResponseWaiter) -> bool:
        if not answer.error_code and not answer.unknown_state_filters:
            return True
        facts = error_facts(answer.error_code)
        if not facts.retriable:
            said = facts.name if answer.error_code else f"it does not know the state {', '.join(answer.unknown_state_filters)}"
            raise self._client.rights.error(
                f"{name}: {said}", LIST_TRANSACTIONS.key, answer.error_code, prefix, more=_WITHOUT_LIST, request=_LIST
            )
        waiting.note(name, facts.name)
        return False

    # Begun and ended

    def init_producer_id(self, transactional_id: str, timeout_ms: int, deadline: float) -> tuple[int, int]:
        """Returns a producer id and epoch for the next transaction. Fences the previous owner and aborts its open transaction.

        Raises OptionError if timeout_ms (transaction.timeout.ms) exceeds the brokers' limit.
        """

        def ask(node_id: int, ids: Sequence[str]) -> Iterable[CoordinatorRequest[InitProducerIdResponse]]:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
            return [CoordinatorRequest(ClusterRequest(node_id, INITIALISING, request), ids, read)]

        def read(answer: Message) -> dict[str, Reply[InitProducerIdResponse]]:
            assert isinstance(answer, InitProducerIdResponse)
            return {transactional_id: Reply(answer.error_code, answer)}

        reply = CoordinatorRounds(self._client, ask, deadline).run([transactional_id])[transactional_id]
        if reply.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise OptionError(
                f"option transaction.timeout.ms: {timeout_ms:,} ms exceeds the brokers' transaction.max.timeout.ms, which"
                " defaults to 15 minutes",
                option="transaction.timeout.ms",
                transactional_id=transactional_id,
            )
        if reply.code:
            raise self._client.refused(transactional_id, reply.code, INIT_PRODUCER_ID.key)
        return reply.value.producer_id, reply.value.producer_epoch

    def end(
        self, handles: Iterable[TransactionHandle], committed: bool, deadline: float, batch: int | None = None
    ) -> dict[str, Ended]:
        """Sends EndTxn for each transaction, pipelined, in the request version that its transaction version requires.

        The call may be repeated.

        Args:
            handles: The transactions.
            committed: Whether to commit them; otherwise they are aborted.
            deadline: On time.monotonic's clock.
            batch: Number of the batch that they make visible, for failpoints; None for all others.

        Returns:
            The proved outcome of each transaction; UNKNOWN also if the deadline passed.

        Raises:
            AuthorizationError: The client may not end one of them (all others were tried) or may not find its coordinator.
        """
        by_id = {handle.transactional_id: handle for handle in handles}

        def ask(node_id: int, ids: Sequence[str]) -> Iterable[CoordinatorRequest[EndTxnResponse]]:
            return [_end(node_id, by_id[each], committed, batch) for each in ids]

        on_response = None if batch is None else partial(failpoints.reach, "end.after", batch)
        rounds = CoordinatorRounds(self._client, ask, deadline, on_response)
        late = rounds.run_out(by_id)
        ended = dict[str, Ended]()
        for each, reply in rounds.replies.items():
            answer, outcome = reply.value, outcome_of_end(by_id[each], reply.code, committed=committed)
            error, is_again = error_facts(reply.code).name if reply.code else "", each in rounds.lost
            ended[each] = Ended(outcome, reply.code, error, answer.producer_id, answer.producer_epoch, is_again)
        for each, end in ended.items():
            if end.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise self._client.refused(each, end.code, END_TXN.key)
        return ended | {each: Ended(Outcome.UNKNOWN, None, said) for each, said in late.items()}

    def replaced(self, topic_ids: Iterable[tuple[str, str]], deadline: float) -> frozenset[str]:
        """Returns the topics that no longer have each id given for them, because they were deleted, and perhaps created again.

        A broker may learn of a new topic later than others, so it counts only if brokers say so for a while.
        """
        ids = [(topic, uuid.UUID(each)) for topic, each in sorted(set(topic_ids))]
        waiting = ResponseWaiter(min(deadline, time.monotonic() + _LAGGING_S), BACKOFF)
        while found := replaced(ids, topics_metadata(self._client, list(dict(ids)), deadline)) if ids else frozenset[str]():
            if waiting.is_over:
                break
            waiting.pause()
        return found

    def end_surely(
        self, handles: Iterable[TransactionHandle], committed: bool, deadline: float, batch: int = -1
    ) -> dict[str, Ended]:
        """Ends the transactions of a batch with `end`, and uses DescribeTransactions if the responses prove nothing.

        Transactions that are still open are ended again. Raises DeadlineError if one stays open. See `proof_of`.
        """
        by_id = {handle.transactional_id: handle for handle in handles}
        waiting = ResponseWaiter(deadline, BACKOFF)
        ended, is_open = self._end_once(by_id, committed, deadline, batch)
        while is_open:
            for each in is_open:
                waiting.note(f"EndTxn of {each}", ended[each].error)
            waiting.again()
            again, is_open = self._end_once({each: by_id[each] for each in is_open}, committed, deadline, batch)
            ended |= again
        return ended

    def _end_once(
        self, by_id: Mapping[str, TransactionHandle], committed: bool, deadline: float, batch: int
    ) -> tuple[dict[str, Ended], list[str]]:
        """Ends them once. Also returns the ids of the transactions that are proved to be open."""
        ended = self.end(by_id.values(), committed, deadline, batch)
        unknown = [each for each, end in ended.items() if end.outcome is Outcome.UNKNOWN]
        described = self.describe(unknown, deadline) if unknown else {}
        proofs = {each: proof_of(by_id[each], described.get(each)) for each in unknown}
        for each, proof in proofs.items():
            ended[each] = Ended(_PROVED.get(proof, Outcome.UNKNOWN), ended[each].code, ended[each].error)
        return ended, [each for each, proof in proofs.items() if proof is Proof.OPEN]


def is_unlisted(error: KafkaSinkError) -> bool:
    """Returns whether brokers lack ListTransactions, or refuse it. Other requests about transactions may work."""
    return error.facts.get("request") == _LIST


def _describe(node_id: int, ids: Sequence[str]) -> Iterable[CoordinatorRequest[TransactionDescription | None]]:
    for start in range(0, len(ids), _DESCRIBED_AT_ONCE):
        some = ids[start : start + _DESCRIBED_AT_ONCE]
        request = DescribeTransactionsRequest(transactional_ids=some)
        yield CoordinatorRequest(ClusterRequest(node_id, DESCRIBE_TRANSACTIONS, request), some, _described)


def _described(answer: Message) -> dict[str, Reply[TransactionDescription | None]]:
    assert isinstance(answer, DescribeTransactionsResponse)
    return {state.transactional_id: Reply(state.error_code, _description(state)) for state in answer.transaction_states}


def _description(state: TransactionState) -> TransactionDescription | None:
    if state.error_code:
        return None
    partitions = partition_ranges((topic.topic, number) for topic in state.topics for number in topic.partitions)
    return TransactionDescription(
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        partitions,
    )


def _end(node_id: int, handle: TransactionHandle, committed: bool, batch: int | None) -> CoordinatorRequest[EndTxnResponse]:
    request = EndTxnRequest(
        transactional_id=handle.transactional_id, producer_id=handle.producer_id, producer_epoch=handle.epoch, committed=committed
    )
    api = END_TXN_OF_VERSION_2 if handle.transaction_version >= 2 else END_TXN_OF_VERSION_1

    def body(version: int) -> EndTxnRequest:
        """Returns the request; called when the connection is about to send it."""
        if batch is not None:
            failpoints.reach("end.before", batch)
        return request

    def read(answer: Message) -> dict[str, Reply[EndTxnResponse]]:
        assert isinstance(answer, EndTxnResponse)
        return {handle.transactional_id: Reply(answer.error_code, answer)}

    return CoordinatorRequest(ClusterRequest(node_id, api, body), [handle.transactional_id], read)
