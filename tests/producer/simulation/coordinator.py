"""A transaction coordinator and leaders in one, as small as can be: who is current, what is open, what was committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from spark_kafka_sink.producer.accumulator.sequences import ProducerIdAndEpoch
from spark_kafka_sink.producer.transactions.requests import TransactionRequest
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from spark_kafka_sink.protocol.apis.produce import InitProducerIdRequest, InitProducerIdResponse
from spark_kafka_sink.protocol.apis.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

TOPIC_ID = UUID(int=1)
FIRST_EPOCH, LAST_EPOCH = 32_763, 32_766
"""So that epochs are used up soon. Kafka's first is 0. A producer whose id changes before its last epochs was forgotten."""


def topic_ids(body: MetadataRequest) -> MetadataResponse:
    """Returns the answer of a broker that is asked for the ids of topics before a commit."""
    return MetadataResponse(topics=[MetadataResponseTopic(0, each.name, TOPIC_ID) for each in body.topics or ()])


@dataclass
class SimulatedCoordinator:
    """`version`: of transactions. Records are numbers; `partitions` of the open transaction are those that may be written to."""

    version: int
    producer_id: int = 0
    epoch: int = FIRST_EPOCH - 1
    ended: tuple[ProducerIdAndEpoch, bool] | None = None  # the last transaction's identity, and whether it was committed
    is_open: bool = False
    partitions: set[tuple[str, int]] = field(default_factory=set)
    open_records: set[int] = field(default_factory=set)
    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)

    def is_current(self, producer_id: int, epoch: int) -> bool:
        return (producer_id, epoch) == (self.producer_id, self.epoch)

    def finalized_feature(self, name: str) -> int:
        assert name == "transaction.version"
        return 2 if self.version == 2 else 0

    def written(self, identity: ProducerIdAndEpoch, partition: tuple[str, int], record: int) -> bool:
        """Whether a leader takes a record."""
        if not self.is_current(identity.producer_id, identity.epoch):
            return False
        if self.version == 1:
            assert partition in self.partitions, "the partition was never added"
        self.partitions.add(partition)
        self.is_open = True
        self.open_records.add(record)
        return True

    def fence(self) -> None:
        """Another producer takes the id."""
        self._end(committed=False)
        self._bump()

    def answer(self, request: TransactionRequest) -> Message:
        body = request.body
        match body:
            case InitProducerIdRequest():
                return self._init(body)
            case AddPartitionsToTxnRequest():
                return self._add(body)
            case EndTxnRequest():
                return self._end_txn(body)
            case TxnOffsetCommitRequest():
                return self._commit_offsets(body)
            case MetadataRequest():
                return topic_ids(body)
        assert request.api.key is ApiKey.ADD_OFFSETS_TO_TXN
        self.is_open = True
        return AddOffsetsToTxnResponse()

    def _init(self, body: InitProducerIdRequest) -> Message:
        if body.producer_id >= 0 and not self.is_current(body.producer_id, body.producer_epoch):
            # The answer was lost: the epoch after the one that is named was given to the same producer.
            if self.ended != (ProducerIdAndEpoch(body.producer_id, body.producer_epoch), False):
                return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
            return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        self.fence()
        return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def _add(self, body: AddPartitionsToTxnRequest) -> Message:
        current = self.is_current(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        code = 0 if current else int(ErrorCode.PRODUCER_FENCED)
        topics = []
        for topic in body.v3_and_below_topics:
            results = [AddPartitionsToTxnPartitionResult(number, code) for number in topic.partitions]
            topics.append(AddPartitionsToTxnTopicResult(topic.name, results))
            if current:
                self.is_open = True
                self.partitions |= {(topic.name, number) for number in topic.partitions}
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def _commit_offsets(self, body: TxnOffsetCommitRequest) -> Message:
        code = 0 if self.is_current(body.producer_id, body.producer_epoch) else int(ErrorCode.PRODUCER_FENCED)
        self.is_open = self.is_open or not code
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    topic.name, [TxnOffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions]
                )
                for topic in body.topics
            ]
        )

    def _end_txn(self, body: EndTxnRequest) -> Message:
        identity = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
        if self.version == 2 and self.ended == (identity, body.committed):
            return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        if not self.is_current(body.producer_id, body.producer_epoch):
            return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if not self.is_open and self.ended != (identity, body.committed) and (body.committed or self.version == 1):
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        self._end(committed=body.committed)
        if self.version == 1:
            return EndTxnResponse()
        self._bump()
        return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def _end(self, *, committed: bool) -> None:
        (self.committed if committed else self.aborted).update(self.open_records)
        self.ended = ProducerIdAndEpoch(self.producer_id, self.epoch), committed
        self.open_records.clear()
        self.partitions.clear()
        self.is_open = False

    def _bump(self) -> None:
        if self.epoch == LAST_EPOCH:
            self.producer_id, self.epoch = self.producer_id + 1, FIRST_EPOCH
        else:
            self.epoch += 1
