"""The requests to coordinators as values: who is asked, what, and which error codes an answer has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from spark_kafka_sink.client.connections import Body
from spark_kafka_sink.producer.accumulator.sequences import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from spark_kafka_sink.protocol.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from spark_kafka_sink.protocol.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.end_txn import END_TXN, EndTxnRequest
from spark_kafka_sink.protocol.find_coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from spark_kafka_sink.protocol.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from spark_kafka_sink.protocol.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

GROUP, TRANSACTION = 0, 1
CoordinatorKey: TypeAlias = tuple[int, str]
"""GROUP or TRANSACTION, and the id."""

Codes: TypeAlias = Mapping[str, int]
"""Error codes by what they are about; one that is about all of it has no name ("")."""

# What producers use: later ones are between brokers, or for transaction version 2.
LAST_ADD_PARTITIONS_VERSION = 3
LAST_VERSION_1 = {END_TXN.key: 4, TXN_OFFSET_COMMIT.key: 4}


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """`coordinator` None: any broker. max_version: of the API, None for the latest. codes: reads an answer's."""

    api: AnyApi
    body: Body
    codes: Callable[[Any], Codes]
    coordinator: CoordinatorKey | None
    max_version: int | None = None


def _of_all(body: Any) -> Codes:
    return {"": body.error_code}


def find_coordinator(key: CoordinatorKey) -> TransactionRequest:
    kind, name = key

    def body(version: int) -> FindCoordinatorRequest:
        if version < 4:
            return FindCoordinatorRequest(key=name, key_type=kind)
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=(name,))

    return TransactionRequest(FIND_COORDINATOR, body, lambda answer: {"": found_coordinator(answer).error_code}, None)


def found_coordinator(answer: FindCoordinatorResponse) -> Coordinator:
    """What any version of the answer says of the one coordinator that was asked for."""
    for coordinator in answer.coordinators:
        return coordinator
    return Coordinator("", answer.node_id, answer.host, answer.port, answer.error_code, answer.error_message)


def init_producer_id(identity: str, timeout_ms: int, current: ProducerIdAndEpoch = NO_PRODUCER) -> TransactionRequest:
    """`current`: who asks for the next epoch (KIP-360)."""
    body = InitProducerIdRequest(identity, timeout_ms, current.producer_id, current.epoch)
    return TransactionRequest(INIT_PRODUCER_ID, body, _of_all, (TRANSACTION, identity))


def add_partitions(identity: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]) -> TransactionRequest:
    body = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name, numbers) for name, numbers in _by_topic(partitions).items()],
    )
    key = (TRANSACTION, identity)
    return TransactionRequest(ADD_PARTITIONS_TO_TXN, body, _add_partitions_codes, key, LAST_ADD_PARTITIONS_VERSION)


def _add_partitions_codes(body: AddPartitionsToTxnResponse) -> Codes:
    return {
        f"topic {topic.name} partition {partition.partition_index}": partition.partition_error_code
        for topic in body.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


def add_offsets(identity: str, producer: ProducerIdAndEpoch, group: str) -> TransactionRequest:
    body = AddOffsetsToTxnRequest(identity, producer.producer_id, producer.epoch, group)
    return TransactionRequest(
        ADD_OFFSETS_TO_TXN, body, lambda answer: {f"group {group}": answer.error_code}, (TRANSACTION, identity)
    )


def txn_offset_commit(
    identity: str,
    producer: ProducerIdAndEpoch,
    group: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    version: int,
) -> TransactionRequest:
    """`version`: the transaction's, 1 or 2."""

    def topic(name: str, numbers: Iterable[int]) -> TxnOffsetCommitRequestTopic:
        parts = ((number, offsets[name, number]) for number in numbers)
        return TxnOffsetCommitRequestTopic(
            name,
            [TxnOffsetCommitRequestPartition(number, part.offset, part.leader_epoch, part.metadata) for number, part in parts],
        )

    body = TxnOffsetCommitRequest(
        transactional_id=identity,
        group_id=group.group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[topic(name, numbers) for name, numbers in _by_topic(offsets).items()],
    )
    max_version = LAST_VERSION_1[TXN_OFFSET_COMMIT.key] if version < 2 else None
    return TransactionRequest(TXN_OFFSET_COMMIT, body, _offset_codes, (GROUP, group.group_id), max_version)


def _offset_codes(body: TxnOffsetCommitResponse) -> Codes:
    return {f"topic {name} partition {number}": code for (name, number), code in committed_offsets(body).items()}


def committed_offsets(body: TxnOffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error code of each partition."""
    return {(topic.name, each.partition_index): each.error_code for topic in body.topics for each in topic.partitions}


def end_txn(identity: str, producer: ProducerIdAndEpoch, *, committed: bool, version: int) -> TransactionRequest:
    body = EndTxnRequest(identity, producer.producer_id, producer.epoch, committed)
    max_version = LAST_VERSION_1[END_TXN.key] if version < 2 else None
    return TransactionRequest(END_TXN, body, _of_all, (TRANSACTION, identity), max_version)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
