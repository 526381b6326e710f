"""What transactions need of their coordinators, for many ids at once: described, listed, ended, initialised."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_kafka_sink.client.backoff import ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient, refused
from spark_kafka_sink.client.cluster_requests import ClusterRequest
from spark_kafka_sink.errors import BrokerError, DisconnectedError, OptionError
from spark_kafka_sink.exactly_once.broker_check import check_brokers
from spark_kafka_sink.exactly_once.coordinator_rounds import BACKOFF, Asked, CoordinatorRounds, Reply
from spark_kafka_sink.exactly_once.evidence import Outcome, TransactionDescription
from spark_kafka_sink.exactly_once.proof import Proof, proof_of
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, partition_ranges
from spark_kafka_sink.producer.transactions.transaction_manager import FEATURE
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from spark_kafka_sink.protocol.list_transactions import (
    LIST_TRANSACTIONS,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from spark_kafka_sink.protocol.transactions import (
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    TransactionState,
)

ONGOING: Final = "Ongoing"
_DESCRIBED_AT_ONCE: Final = 1000

# With v5 a coordinator takes a transaction for one of version 2; v4 came with Kafka 3.8, and is v3 with one more error code.
END_TXN_OF_VERSION_1: Final = END_TXN.limited_to(0, 4)
END_TXN_OF_VERSION_2: Final = END_TXN.limited_to(5, 5)

INITIALISING: Final = INIT_PRODUCER_ID.limited_to(0, 5)
"""v6 (two-phase commit) closes the connection on Kafka 4.1."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """As ListTransactions tells of it."""

    transactional_id: str
    producer_id: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of an attempt to end a transaction.

    outcome: what is proved. code, error: the last error, as number and by Kafka's name, or why no answer came (code None); 0 and
    "" where there was none. producer_id, epoch: with version 2 those of the producer's next transaction, else -1.
    asked_again: an earlier EndTxn of the same was lost on its way, and may still arrive.
    """

    outcome: Outcome
    code: int | None = 0
    error: str = ""
    producer_id: int = -1
    epoch: int = -1
    asked_again: bool = False


# By error code: since which transaction version it proves what. Everything else proves nothing: an id that was initialised since,
# by anybody, says PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before v2), an expired one INVALID_PRODUCER_ID_MAPPING.
_COMMITTING: Final[Mapping[int, tuple[int, Outcome]]] = {
    ErrorCode.NONE: (0, Outcome.COMMITTED),
    # With version 1 a coordinator says it also of a transaction that was committed, if that was done with another EndTxn version.
    ErrorCode.INVALID_TXN_STATE: (2, Outcome.ABORTED),
}
_ABORTING: Final[Mapping[int, tuple[int, Outcome]]] = {ErrorCode.NONE: (0, Outcome.ABORTED)}
_PROVED: Final[Mapping[Proof, Outcome]] = {Proof.COMMITTED: Outcome.COMMITTED, Proof.ABORTED: Outcome.ABORTED}


class TransactionClient:
    """Asks again whatever passes (a coordinator that moves or loads, markers on their way, lost connections) until the deadline.

    Deadlines are on time.monotonic's clock. BrokerError names the id, and the ACL for TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def transaction_version(self, deadline: float) -> int:
        """The version of transactions that begin now: 2 where the cluster has finalized it, else 1."""
        return 2 if self._client.finalized_feature(FEATURE, deadline) >= 2 else 1

    def check_brokers(self, deadline: float) -> None:
        """Raises UnsupportedVersionError where exactly-once does not work with one of the brokers."""
        check_brokers(self._client, deadline)

    # Described and listed

    def describe(self, ids: Collection[str], deadline: float) -> dict[str, TransactionDescription]:
        """What coordinators know of these ids; those that they know nothing of are not in it."""
        replies = CoordinatorRounds(self._client, _describe, deadline).run(ids)
        for each, reply in replies.items():
            if reply.code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                raise refused(each, reply.code, "DescribeTransactions")
        return {each: reply.value for each, reply in replies.items() if reply.value is not None}

    def list_open(self, prefix: str, deadline: float) -> list[OpenTransaction]:
        """Every transaction that is Ongoing under an id that begins with `prefix`, of all brokers: never a part of them.

        Without Describe on an id Kafka leaves its transactions out. One whose coordinator moves meanwhile may be missing.
        """
        waiting = ResponseWaiter(deadline, BACKOFF)
        while True:
            with waiting.told_as_well():
                found = self._list_once(prefix, waiting, deadline)
            if found is not None:
                return found
            waiting.again()

    def open_handles(self, ids: TransactionalIds, deadline: float) -> tuple[TransactionHandle, ...]:
        """Every open transaction of this query's tasks, as what it takes to end it; `records` is 0, for nobody knows."""
        listed = [each.transactional_id for each in self.list_open(ids.start, deadline) if ids.owns(each.transactional_id)]
        version = self.transaction_version(deadline)
        described = self.describe(listed, deadline).items()
        return tuple(
            TransactionHandle(each, said.producer_id, said.epoch, version, 0, said.partitions)
            for each, said in described
            if said.state == ONGOING
        )

    def _list_once(self, prefix: str, waiting: ResponseWaiter, deadline: float) -> list[OpenTransaction] | None:
        """None unless every broker has answered: an id could have moved from one that failed to one that was asked before."""
        brokers = self._client.brokers(deadline)
        # Filtered on this side: only 4.1 has a pattern, a regular expression of RE2.
        request = ListTransactionsRequest(state_filters=[ONGOING])
        questions = [ClusterRequest(node_id, LIST_TRANSACTIONS, request) for node_id in brokers]
        found: list[OpenTransaction] | None = []
        for node_id, answer in zip(brokers, self._client.try_many(questions, deadline), strict=True):
            name = f"ListTransactions of {brokers[node_id]}"
            if isinstance(answer, DisconnectedError):
                waiting.note(name, answer.message)
                found = None
            elif isinstance(answer, Exception):
                raise answer
            else:
                assert isinstance(answer, ListTransactionsResponse)
                if not _is_complete(answer, name, waiting):
                    found = None
                elif found is not None:
                    found += [OpenTransaction(t.transactional_id, t.producer_id) for t in _matching(answer, prefix)]
        return found

    # Begun and ended

    def init_producer_id(self, transactional_id: str, timeout_ms: int, deadline: float) -> tuple[int, int]:
        """A producer id and epoch for the next transaction; fences who had them, and aborts what he left open.

        timeout_ms: transaction.timeout.ms; OptionError where it is over the brokers' limit.
        """

        def ask(node_id: int, ids: Sequence[str]) -> Iterable[Asked[InitProducerIdResponse]]:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
            return [
                Asked(
                    ClusterRequest(node_id, INITIALISING, request), ids, lambda answer: {transactional_id: _initialised(answer)}
                )
            ]

        reply = CoordinatorRounds(self._client, ask, deadline).run([transactional_id])[transactional_id]
        if reply.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise OptionError(
                f"option transaction.timeout.ms: {timeout_ms:,} ms is more than the brokers' transaction.max.timeout.ms allows"
                " (15 minutes, unless it is set)",
                option="transaction.timeout.ms",
                transactional_id=transactional_id,
            )
        if reply.code:
            raise refused(transactional_id, reply.code, "InitProducerId")
        return reply.value.producer_id, reply.value.producer_epoch

    def end(self, handles: Iterable[TransactionHandle], committed: bool, deadline: float) -> dict[str, Ended]:
        """EndTxn for each, all at the same time, always as its transaction version asks for: what is proved by the answers.

        UNKNOWN also where the deadline passed. May be repeated. BrokerError where the client may not end one of them, after all
        others were tried, or may not find its coordinator.
        """
        by_id = {handle.transactional_id: handle for handle in handles}

        def ask(node_id: int, ids: Sequence[str]) -> Iterable[Asked[EndTxnResponse]]:
            return [_end(node_id, by_id[each], committed) for each in ids]

        rounds = CoordinatorRounds(self._client, ask, deadline)
        late = rounds.run_out(by_id)
        judged = ((each, _judge(by_id[each], reply.value, committed)) for each, reply in rounds.replies.items())
        ended = {each: replace(one, asked_again=each in rounds.lost) for each, one in judged}
        _check_allowed(ended)
        return ended | {each: Ended(Outcome.UNKNOWN, None, said) for each, said in late.items()}

    def commit(self, handles: Iterable[TransactionHandle], deadline: float) -> dict[str, Ended]:
        """`end`, and where answers prove nothing what DescribeTransactions does (`proof_of`, which see). What is open still is
        ended again; DeadlineError where it stays so."""
        by_id = {handle.transactional_id: handle for handle in handles}
        waiting = ResponseWaiter(deadline, BACKOFF)
        ended, is_open = self._commit_once(by_id, deadline)
        while is_open:
            for each in is_open:
                waiting.note(f"EndTxn of {each}", ended[each].error)
            waiting.again()
            again, is_open = self._commit_once({each: by_id[each] for each in is_open}, deadline)
            ended |= again
        return ended

    def _commit_once(self, by_id: Mapping[str, TransactionHandle], deadline: float) -> tuple[dict[str, Ended], list[str]]:
        """Also the ids of those that are proved to be open."""
        ended = self.end(by_id.values(), True, deadline)
        unknown = [each for each, end in ended.items() if end.outcome is Outcome.UNKNOWN]
        described = self.describe(unknown, deadline) if unknown else {}
        proofs = {each: proof_of(by_id[each], described.get(each)) for each in unknown}
        for each, proof in proofs.items():
            ended[each] = Ended(_PROVED.get(proof, Outcome.UNKNOWN), ended[each].code, ended[each].error)
        return ended, [each for each, proof in proofs.items() if proof is Proof.OPEN]


def _describe(node_id: int, ids: Sequence[str]) -> Iterable[Asked[TransactionDescription | None]]:
    for start in range(0, len(ids), _DESCRIBED_AT_ONCE):
        some = ids[start : start + _DESCRIBED_AT_ONCE]
        request = DescribeTransactionsRequest(transactional_ids=some)
        yield Asked(ClusterRequest(node_id, DESCRIBE_TRANSACTIONS, request), some, _described)


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


def _is_complete(answer: ListTransactionsResponse, name: str, waiting: ResponseWaiter) -> bool:
    if not answer.error_code and not answer.unknown_state_filters:
        return True
    facts = error_facts(answer.error_code)
    if not facts.retriable:
        said = facts.name if answer.error_code else f"it knows no state {', '.join(answer.unknown_state_filters)}"
        raise BrokerError(f"{name}: {said}", error_code=answer.error_code, error=facts.name)
    waiting.note(name, facts.name)
    return False


def _matching(answer: ListTransactionsResponse, prefix: str) -> Iterable[OpenTransaction]:
    for each in answer.transaction_states:
        if each.transactional_id.startswith(prefix) and each.transaction_state == ONGOING:
            yield OpenTransaction(each.transactional_id, each.producer_id)


def _initialised(answer: Message) -> Reply[InitProducerIdResponse]:
    assert isinstance(answer, InitProducerIdResponse)
    return Reply(answer.error_code, answer)


def _end(node_id: int, handle: TransactionHandle, committed: bool) -> Asked[EndTxnResponse]:
    request = EndTxnRequest(
        transactional_id=handle.transactional_id,
        producer_id=handle.producer_id,
        producer_epoch=handle.epoch,
        committed=committed,
    )
    api = END_TXN_OF_VERSION_2 if handle.transaction_version >= 2 else END_TXN_OF_VERSION_1

    def read(answer: Message) -> dict[str, Reply[EndTxnResponse]]:
        assert isinstance(answer, EndTxnResponse)
        return {handle.transactional_id: Reply(answer.error_code, answer)}

    return Asked(ClusterRequest(node_id, api, request), [handle.transactional_id], read)


def _judge(handle: TransactionHandle, answer: EndTxnResponse, committed: bool) -> Ended:
    code = answer.error_code
    since, outcome = (_COMMITTING if committed else _ABORTING).get(code, (0, Outcome.UNKNOWN))
    proved = outcome if handle.transaction_version >= since else Outcome.UNKNOWN
    return Ended(proved, code, error_facts(code).name if code else "", answer.producer_id, answer.producer_epoch)


def _check_allowed(ended: Mapping[str, Ended]) -> None:
    for each, end in ended.items():
        if end.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise refused(each, end.code, "EndTxn")
