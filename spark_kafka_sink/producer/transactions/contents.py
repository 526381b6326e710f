"""What belongs to the open transaction, and what its coordinators still have to be told of it. No lock, no socket, no clock."""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.producer.accumulator.producer_batch import PartitionQueue
from spark_kafka_sink.producer.accumulator.sequences import ProducerIdAndEpoch
from spark_kafka_sink.producer.transactions import requests
from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from spark_kafka_sink.producer.transactions.requests import TransactionRequest
from spark_kafka_sink.protocol.api import ApiKey


class Contents:
    """Partitions and consumer groups of one transaction after the other.

    With version 1 each has to be added at the transaction's coordinator before anything is sent to it; with version 2 (KIP-890)
    leaders and group coordinators do that.
    """

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        self.begun = False  # the transaction's coordinator may know of it
        self._partitions: set[TopicPartition] = set()
        self._waiting: dict[TopicPartition, PartitionQueue] = {}  # to be added
        self._groups: set[str] = set()
        self._offsets: dict[str, tuple[ConsumerGroupMetadata, dict[TopicPartition, OffsetAndMetadata]]] = {}  # to be sent

    @property
    def is_known(self) -> bool:
        """Whether the coordinator has said that it added something (version 1)."""
        return bool(self._partitions or self._groups)

    def clear(self) -> None:
        """The transaction has ended."""
        self.begun = False
        self._partitions.clear()
        self._groups.clear()
        self.forget_waiting()

    def forget_waiting(self) -> None:
        """What was not added yet never will be."""
        self._waiting.clear()
        self._offsets.clear()

    # What comes in

    def may_drain(self, queue: PartitionQueue, version: int) -> bool:
        """Whether records of the queue's partition may be sent; otherwise it is added."""
        partition = (queue.topic, queue.partition)
        if version >= 2 or partition in self._partitions:
            return True
        self._waiting[partition] = queue
        return False

    def add_offsets(self, group: ConsumerGroupMetadata, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Those that were added before, of other partitions, stay."""
        before = self._offsets.get(group.group_id, (group, {}))[1]
        self._offsets[group.group_id] = group, before | offsets

    # What is to be asked

    def is_waiting(self) -> bool:
        """Whether partitions are to be added."""
        return bool(self._waiting)

    def has_offsets(self, group_id: str | None = None) -> bool:
        """Whether offsets (None: of any group) are to be sent."""
        return bool(self._offsets) if group_id is None else group_id in self._offsets

    def next_request(self, producer: ProducerIdAndEpoch, version: int) -> TransactionRequest | None:
        """What comes next: partitions, which records wait for, before offsets."""
        identity = self._transactional_id
        if not (self._waiting or self._offsets):
            return None
        self.begun = True
        if self._waiting:
            return requests.add_partitions(identity, producer, self._waiting)
        group, offsets = next(iter(self._offsets.values()))
        if version < 2 and group.group_id not in self._groups:
            return requests.add_offsets(identity, producer, group.group_id)
        return requests.txn_offset_commit(identity, producer, group, offsets, version)

    # What was answered

    def done(self, request: TransactionRequest, body: Any) -> list[PartitionQueue]:
        """Take what the answer says is done; returned are the queues that may be sent now."""
        match request.api.key:
            case ApiKey.ADD_PARTITIONS_TO_TXN:
                return self._partitions_added(request.body)
            case ApiKey.ADD_OFFSETS_TO_TXN:
                self._groups.add(request.body.group_id)  # type: ignore[union-attr]  # of this API
            case ApiKey.TXN_OFFSET_COMMIT:
                self._offsets_committed(request.body, requests.committed_offsets(body))
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
