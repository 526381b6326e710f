"""Writes small transactions to one partition, and waits until they are committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from spark_kafka_sink.client.backoff import ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import ClusterRequest, only_one
from spark_kafka_sink.errors import AuthorizationError, BrokerError, DisconnectedError, PeerError
from spark_kafka_sink.exactly_once.commit_log_topic import leader_of
from spark_kafka_sink.exactly_once.coordinator_rounds import BACKOFF, CoordinatorRequest, CoordinatorRounds, Reply
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from spark_kafka_sink.protocol.apis.transactions import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.records.small_batches import NewRecord, small_batch
from spark_kafka_sink.security.acls import COMMIT_LOG

# Before v12 a broker requires AddPartitionsToTxn; from v12 on it adds partitions itself (KIP-890). v13 uses topic ids.
_PRODUCE_VERSION_1: Final = PRODUCE.limited_to(3, 11)
_PRODUCE_VERSION_2: Final = PRODUCE.limited_to(12, 12)
_ADD_PARTITIONS: Final = ADD_PARTITIONS_TO_TXN.limited_to(0, 3)
_SEQUENCES: Final = 2**31


class ClaimLostError(PeerError):
    """Another process claimed a query's records in the commit log, or the outcome of a write is unknown.

    On this error, discard what was read and start over: claim, read, decide. It names the id and the broker's answer.
    """

    code = "CLAIM_LOST"


class RecordRefusedError(BrokerError):
    """The brokers reject such records from any client. The records are not in the log and never will be."""


class RecordNotAuthorizedError(RecordRefusedError, AuthorizationError):
    """The client is not authorized to write to the log: a RecordRefusedError with the ACL to add."""

    code = AuthorizationError.code


_ADVICE: Final[Mapping[int, str]] = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes to 1 MB, which is Kafka's default",
    ErrorCode.INVALID_TIMESTAMP: "this machine's clock is too far from the broker's (message.timestamp.after.max.ms): correct it",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise the topic's segment.bytes",
    ErrorCode.INVALID_RECORD: "the topic rejects such records: remove the validation that it has",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "choose another topic",
    ErrorCode.UNSUPPORTED_VERSION: "the brokers are too old",
}
"""Codes of Produce and AddPartitionsToTxn, besides those of missing rights, that a retry cannot change. Other codes that are not
retriable lose the claim."""


class LogWriter:
    """Writes one producer's transactions, one after the other. It cannot be used after an error."""

    def __init__(
        self,
        client: ClusterClient,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        transaction_version: int,
        partition: tuple[str, int],
    ) -> None:
        """producer_id, epoch: from the response to InitProducerId. transaction_version: 1 or 2."""
        self._client = client
        self._transactions = TransactionClient(client)
        self._id = transactional_id
        self._producer_id = producer_id
        self._epoch = epoch
        self._version = transaction_version
        self._topic, self._partition = partition
        self._where = f"{self._topic}-{self._partition}"
        self._sequence = 0
        self._added = False
        self._written = 0
        self._spent = ""

    def append(self, records: Sequence[NewRecord], deadline: float) -> int:
        """Writes records in one batch, in the open transaction or a new one. Returns the first offset; -1 if unknown.

        Raises ClaimLostError, RecordRefusedError (with what to do) or DeadlineError. Written records cannot become visible then.
        """
        if self._spent:
            raise self._lost(self._spent)
        if self._version < 2 and not self._added:
            self._add_partition(deadline)
            self._added = True
        batch = small_batch(
            records, producer_id=self._producer_id, producer_epoch=self._epoch, base_sequence=self._sequence, transactional=True
        )
        offset = self._produce(batch, deadline)
        self._sequence = (self._sequence + len(records)) % _SEQUENCES
        self._written += len(records)
        return offset

    def handle(self) -> TransactionHandle:
        """Returns the open transaction."""
        partitions = ((self._topic, str(self._partition)),)
        return TransactionHandle(self._id, self._producer_id, self._epoch, self._version, self._written, partitions)

    def commit(self, deadline: float) -> None:
        """Commits the open transaction. Raises ClaimLostError unless the coordinator confirms the commit."""
        (ended,) = self._transactions.end([self.handle()], True, deadline).values()
        if ended.outcome is not Outcome.COMMITTED:
            raise self._lost(f"EndTxn: {ended.error}")
        if self._version >= 2:
            # Every end bumps the epoch (or brings a new producer id), and sequences start over.
            self._producer_id, self._epoch, self._sequence = ended.producer_id, ended.epoch, 0
        elif ended.asked_again:
            # With version 1 the next transaction has the same epoch, and a late EndTxn would end it between two of its chunks.
            self._spent = "an EndTxn was lost in transit and may still arrive"
        self._added = False
        self._written = 0

    # Inside

    def _add_partition(self, deadline: float) -> None:
        topics = [AddPartitionsToTxnTopic(name=self._topic, partitions=[self._partition])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=topics,
        )

        def ask(node_id: int, ids: Sequence[str]) -> list[CoordinatorRequest[None]]:
            return [CoordinatorRequest(ClusterRequest(node_id, _ADD_PARTITIONS, request), ids, read)]

        def read(answer: Message) -> dict[str, Reply[None]]:
            assert isinstance(answer, AddPartitionsToTxnResponse)
            topic = only_one(answer.results_by_topic_v3_and_below, _ADD_PARTITIONS.key, "topic")
            partition = only_one(topic.results_by_partition, _ADD_PARTITIONS.key, "partition")
            return {self._id: Reply(partition.partition_error_code, None)}

        reply = CoordinatorRounds(self._client, ask, deadline).run([self._id])[self._id]
        self._check(reply.code, ADD_PARTITIONS_TO_TXN.key)

    def _produce(self, batch: bytes, deadline: float) -> int:
        """Sends a batch until it is acknowledged. Retries cannot store it twice, because of its sequence numbers."""
        api = _PRODUCE_VERSION_1 if self._version < 2 else _PRODUCE_VERSION_2
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=self._partition, records=[batch])])
        request = ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=10_000, topic_data=[data])
        waiting = ResponseWaiter(deadline, BACKOFF)
        while True:
            node_id = leader_of(self._client, self._topic, self._partition, deadline)
            (answer,) = self._client.try_many([ClusterRequest(node_id, api, request)], deadline)
            if isinstance(answer, DisconnectedError):
                waiting.note(f"Produce to {self._where}", answer.message)
                self._client.stale()
            elif isinstance(answer, Exception):
                raise answer
            else:
                assert isinstance(answer, ProduceResponse)
                topic = only_one(answer.responses, PRODUCE.key, "topic")
                said = only_one(topic.partition_responses, PRODUCE.key, "partition")
                if said.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    return said.base_offset
                self._check(said.error_code, PRODUCE.key, f" to {self._where}")
                facts = error_facts(said.error_code)
                waiting.note(f"Produce to {self._where}", facts.name)
                if facts.refreshes_metadata:
                    self._client.stale()
            waiting.again()

    def _check(self, code: int, api: ApiKey, where: str = "") -> None:
        """Raises for codes that a retry does not change."""
        facts = error_facts(code)
        asked = f"{api.kafka_name}{where}"
        text = f"{asked} as {self._id}: {facts.name}"
        known = {"topic": self._topic, "transactional_id": self._id, "error_code": code, "error": facts.name}
        is_about_id = code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        name, grants = (self._id, None) if is_about_id else (self._topic, COMMIT_LOG)
        if (denial := self._client.rights.denied(api, code, name, grants=grants)) is not None:
            raise RecordNotAuthorizedError(f"{text}; {denial}", **known, **denial.facts)
        if code in _ADVICE:
            raise RecordRefusedError(f"{text}: {_ADVICE[code]}", **known)
        if code and not facts.retriable:
            raise self._lost(f"{asked}: {facts.name}")  # another process uses this id now, or the outcome is unknown: claim again

    def _lost(self, why: str) -> ClaimLostError:
        return ClaimLostError(
            f"{self._id} (producer id {self._producer_id}, epoch {self._epoch}): {why}", transactional_id=self._id, error=why
        )
