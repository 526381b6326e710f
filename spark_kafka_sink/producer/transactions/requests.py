"""Requests to coordinators as values, and the parts of an open transaction that coordinators must still be told about."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from spark_kafka_sink.client.connections import Body
from spark_kafka_sink.producer.accumulator.producer_batch import PartitionQueue
from spark_kafka_sink.producer.accumulator.sequences import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.apis.find_coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from spark_kafka_sink.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from spark_kafka_sink.protocol.apis.produce import INIT_PRODUCER_ID, InitProducerIdRequest
from spark_kafka_sink.protocol.apis.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode

GROUP, TRANSACTION = 0, 1
CoordinatorKey: TypeAlias = tuple[int, str]
"""GROUP or TRANSACTION, and the id."""

Codes: TypeAlias = Mapping[str, int]
"""Error codes by subject; the empty name is for a code that concerns the whole request."""

# The versions for producers: later ones are for brokers, or for transaction version 2.
LAST_ADD_PARTITIONS_VERSION = 3
LAST_VERSION_1 = {END_TXN.key: 4, TXN_OFFSET_COMMIT.key: 4}


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """A request to a coordinator.

    coordinator: None for any broker. max_version: of the API, None for the latest. codes: returns a response's error codes.
    group: consumer group concerned, if any.
    """

    api: AnyApi
    body: Body
    codes: Callable[[Any], Codes]
    coordinator: CoordinatorKey | None
    max_version: int | None = None
    group: str = ""


def _of_all(body: Any) -> Codes:
    return {"": body.error_code}


def find_coordinator(key: CoordinatorKey) -> TransactionRequest:
    kind, name = key

    def body(version: int) -> FindCoordinatorRequest:
        if version < 4:
            return FindCoordinatorRequest(key=name, key_type=kind)
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=(name,))

    def codes(answer: FindCoordinatorResponse) -> Codes:
        return {"": found_coordinator(answer).error_code}

    return TransactionRequest(FIND_COORDINATOR, body, codes, None, group=name if kind == GROUP else "")


def found_coordinator(answer: FindCoordinatorResponse) -> Coordinator:
    """Returns the coordinator from any version of the response."""
    for coordinator in answer.coordinators:
        return coordinator
    return Coordinator("", answer.node_id, answer.host, answer.port, answer.error_code, answer.error_message)


def init_producer_id(transactional_id: str, timeout_ms: int, current: ProducerIdAndEpoch = NO_PRODUCER) -> TransactionRequest:
    """Makes InitProducerId. `current`: the producer that requests its next epoch (KIP-360)."""
    body = InitProducerIdRequest(transactional_id, timeout_ms, current.producer_id, current.epoch)
    return TransactionRequest(INIT_PRODUCER_ID, body, _of_all, (TRANSACTION, transactional_id))


def add_partitions(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> TransactionRequest:
    body = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name, numbers) for name, numbers in _by_topic(partitions).items()],
    )
    key = (TRANSACTION, transactional_id)
    return TransactionRequest(ADD_PARTITIONS_TO_TXN, body, _add_partitions_codes, key, LAST_ADD_PARTITIONS_VERSION)


def _add_partitions_codes(body: AddPartitionsToTxnResponse) -> Codes:
    return {
        f"topic {topic.name} partition {partition.partition_index}": partition.partition_error_code
        for topic in body.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


def add_offsets(transactional_id: str, producer: ProducerIdAndEpoch, group: str) -> TransactionRequest:
    body = AddOffsetsToTxnRequest(transactional_id, producer.producer_id, producer.epoch, group)
    return TransactionRequest(
        ADD_OFFSETS_TO_TXN,
        body,
        lambda answer: {f"group {group}": answer.error_code},
        (TRANSACTION, transactional_id),
        group=group,
    )


def txn_offset_commit(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    group: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    version: int,
) -> TransactionRequest:
    """Makes TxnOffsetCommit. `version`: of the transaction, 1 or 2."""

    def topic(name: str, numbers: Iterable[int]) -> TxnOffsetCommitRequestTopic:
        parts = ((number, offsets[name, number]) for number in numbers)
        return TxnOffsetCommitRequestTopic(
            name,
            [TxnOffsetCommitRequestPartition(number, part.offset, part.leader_epoch, part.metadata) for number, part in parts],
        )

    body = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[topic(name, numbers) for name, numbers in _by_topic(offsets).items()],
    )
    max_version = LAST_VERSION_1[TXN_OFFSET_COMMIT.key] if version < 2 else None
    return TransactionRequest(TXN_OFFSET_COMMIT, body, _offset_codes, (GROUP, group.group_id), max_version, group.group_id)


def _offset_codes(body: TxnOffsetCommitResponse) -> Codes:
    return {f"topic {name} partition {number}": code for (name, number), code in committed_offsets(body).items()}


def committed_offsets(body: TxnOffsetCommitResponse) -> dict[TopicPartition, int]:
    return {(topic.name, each.partition_index): each.error_code for topic in body.topics for each in topic.partitions}


def end_txn(transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool, version: int) -> TransactionRequest:
    body = EndTxnRequest(transactional_id, producer.producer_id, producer.epoch, committed)
    max_version = LAST_VERSION_1[END_TXN.key] if version < 2 else None
    return TransactionRequest(END_TXN, body, _of_all, (TRANSACTION, transactional_id), max_version)


def topic_ids(transactional_id: str, topics: Iterable[str], *, await_all: bool) -> TransactionRequest:
    """Makes Metadata, for the ids of topics. await_all: whether to ask again while one of them is unknown."""
    body = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False)

    def codes(answer: MetadataResponse) -> Codes:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {f"topic {topic.name}": unknown for topic in answer.topics if await_all and topic.error_code == unknown}

    return TransactionRequest(METADATA, body, codes, (TRANSACTION, transactional_id))


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


class Contents:
    """The partitions and consumer groups of successive transactions. Has no lock, socket or clock.

    With version 1 the producer must add each to the transaction's coordinator before it sends anything to it. With version 2
    (KIP-890) leaders and group coordinators do that.
    """

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        self.begun = False  # the transaction's coordinator may know of it
        self._partitions: set[TopicPartition] = set()
        self.topics: set[str] = set()
        self._topic_ids: dict[str, uuid.UUID] = {}  # as of before the first records were sent
        self._unknown: dict[str, set[PartitionQueue]] = {}  # topics whose ids are not known, and what waits for them
        self._waiting: dict[TopicPartition, PartitionQueue] = {}  # to be added
        self._groups: set[str] = set()
        self._offsets: dict[str, tuple[ConsumerGroupMetadata, dict[TopicPartition, OffsetAndMetadata]]] = {}  # to be sent

    @property
    def is_known(self) -> bool:
        """Whether the coordinator has confirmed an addition (version 1)."""
        return bool(self._partitions or self._groups)

    def clear(self, *, committed: bool) -> None:
        """Clears the contents, because the transaction has ended. A commit has checked the ids, which the next one uses."""
        self.begun = False
        self._topic_ids = self.topic_ids() if committed else {}
        self.topics.clear()
        self._partitions.clear()
        self._groups.clear()
        self.forget_waiting()

    def forget_waiting(self) -> None:
        """Forgets partitions that were not added yet and never will be."""
        self._waiting.clear()
        self._unknown.clear()
        self._offsets.clear()

    def topic_ids(self) -> dict[str, uuid.UUID]:
        """Returns the id of each topic of the transaction, ZERO_UUID from brokers without ids."""
        return {topic: self._topic_ids[topic] for topic in self.topics if topic in self._topic_ids}

    def forget_ids(self, topics: Iterable[str]) -> None:
        for topic in topics:
            del self._topic_ids[topic]

    # Additions

    def may_drain(self, queue: PartitionQueue, version: int) -> bool:
        """Returns whether records of the queue's partition may be sent. If not, the partition will be added."""
        if queue.topic not in self._topic_ids:
            self._unknown.setdefault(queue.topic, set()).add(queue)
            return False
        self.topics.add(queue.topic)
        partition = (queue.topic, queue.partition)
        if version >= 2 or partition in self._partitions:
            return True
        self._waiting[partition] = queue
        return False

    def add_offsets(self, group: ConsumerGroupMetadata, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Adds offsets. Earlier offsets of other partitions stay."""
        before = self._offsets.get(group.group_id, (group, {}))[1]
        self._offsets[group.group_id] = group, before | offsets

    # Requests to send

    def is_waiting(self) -> bool:
        return bool(self._unknown or self._waiting)

    def has_offsets(self, group_id: str | None = None) -> bool:
        """Returns whether offsets of a group (None: any group) wait to be sent."""
        return bool(self._offsets) if group_id is None else group_id in self._offsets

    def next_request(self, producer: ProducerIdAndEpoch, version: int) -> TransactionRequest | None:
        """Returns the next request: ids of topics and partitions, which records wait for, come before offsets."""
        transactional_id = self._transactional_id
        if self._unknown:
            return topic_ids(transactional_id, self._unknown, await_all=True)
        if not (self._waiting or self._offsets):
            return None
        self.begun = True
        if self._waiting:
            return add_partitions(transactional_id, producer, self._waiting)
        group, offsets = next(iter(self._offsets.values()))
        if version < 2 and group.group_id not in self._groups:
            return add_offsets(transactional_id, producer, group.group_id)
        return txn_offset_commit(transactional_id, producer, group, offsets, version)

    # Responses

    def done(self, request: TransactionRequest, body: Any) -> list[PartitionQueue]:
        """Takes what a response completed. Returns the queues that may be sent now."""
        match request.api.key:
            case ApiKey.METADATA:
                self._topic_ids |= {topic.name: topic.topic_id for topic in body.topics if topic.name in self._unknown}
                return [queue for topic in body.topics for queue in self._unknown.pop(topic.name, ())]
            case ApiKey.ADD_PARTITIONS_TO_TXN:
                return self._partitions_added(request.body)
            case ApiKey.ADD_OFFSETS_TO_TXN:
                self._groups.add(request.body.group_id)  # type: ignore[union-attr]  # of this API
            case ApiKey.TXN_OFFSET_COMMIT:
                self._offsets_committed(request.body, committed_offsets(body))
        return []

    def _partitions_added(self, asked: Any) -> list[PartitionQueue]:
        added = [(topic.name, number) for topic in asked.v3_and_below_topics for number in topic.partitions]
        self._partitions.update(added)
        queues = (self._waiting.pop(partition, None) for partition in added)
        return [queue for queue in queues if queue is not None]

    def _offsets_committed(self, asked: Any, codes: dict[TopicPartition, int]) -> None:
        _, left = self._offsets.get(asked.group_id, (None, {}))
        for topic in asked.topics:
            for sent in topic.partitions:
                partition = (topic.name, sent.partition_index)
                latest = left.get(partition)
                if latest is not None and codes.get(partition) == 0 and latest.offset == sent.committed_offset:
                    del left[partition]
        if not left:
            self._offsets.pop(asked.group_id, None)
