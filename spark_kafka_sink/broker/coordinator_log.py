"""The logs that coordinators write: internal topics, and transaction markers in the partitions of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.cluster.metadata_image import GROUP_METADATA_TOPIC, partition_for
from spark_kafka_sink.broker.log.batch import EndTransactionMarker, parse_marker
from spark_kafka_sink.broker.log.log_manager import LogManager
from spark_kafka_sink.broker.log.log_types import AppendOrigin, IsolationLevel
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.small_batches import FetchedBatch, NewRecord, decode_batches, small_batch

KeyValue: TypeAlias = tuple[bytes, bytes | None]
"""A key and a value. A null value is a tombstone: the key is deleted."""


@dataclass(frozen=True, slots=True)
class ReplayedRecord:
    """A record read back. With a `producer_id` (not -1), it counts once a ReplayedMarker commits it."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None
    producer_id: int


@dataclass(frozen=True, slots=True)
class ReplayedMarker:
    """The end of a producer's transaction in a partition."""

    partition: int
    producer_id: int
    committed: bool


Replayed: TypeAlias = ReplayedRecord | ReplayedMarker


class CoordinatorLog(Protocol):
    """An internal topic as its coordinator uses it. Any thread may append; a caller that needs an order holds its own lock."""

    topic: str

    def partition_for(self, key: str) -> int:
        """Returns Java's `Utils.abs(key.hashCode()) % partitions`."""
        ...

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        guard: VerificationGuard | None = None,
    ) -> int:
        """Appends one batch and returns its first offset. The batch is as durable as the broker's other logs.

        With a producer id, the batch is part of that producer's transaction, and `guard` admits its first records.

        Raises:
            ApiException: the append failed as a client's would, such as KAFKA_STORAGE_ERROR for a full disk.
        """
        ...

    def replay(self) -> Iterator[Replayed]:
        """Yields the whole content of the topic, each partition in order."""
        ...


_READ_BYTES = 1024 * 1024


class InternalTopicLog:
    """The CoordinatorLog of a running broker. The first append creates the topic."""

    def __init__(self, topic: str, cluster: Cluster, logs: LogManager, wall_ms: Callable[[], int]) -> None:
        self.topic = topic
        self._cluster = cluster
        self._logs = logs
        self._wall_ms = wall_ms

    def partition_for(self, key: str) -> int:
        return partition_for(key, len(self._cluster.internal_topic(self.topic).partitions))

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        guard: VerificationGuard | None = None,
    ) -> int:
        self._cluster.internal_topic(self.topic)
        log = self._logs.get(self.topic, partition)
        if log is None:
            raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic}-{partition} does not exist")
        now_ms = self._wall_ms()
        batch = small_batch(
            [NewRecord(key, value, timestamp=now_ms) for key, value in records],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id >= 0,
        )
        state = self._cluster.image.partition(self.topic, partition)
        epoch = 0 if state is None else state.leader_epoch
        return log.append_as_leader(batch, epoch, origin=AppendOrigin.COORDINATOR, guard=guard).base_offset

    def replay(self) -> Iterator[Replayed]:
        topic = self._cluster.image.topics.get(self.topic)
        for partition in topic.partitions if topic is not None else ():
            log = self._logs.get(self.topic, partition.index)
            if log is not None:
                yield from _replayed(log, partition.index)


def _replayed(log: UnifiedLog, partition: int) -> Iterator[Replayed]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, _READ_BYTES, IsolationLevel.READ_UNCOMMITTED, min_one_batch=True)
        for batch in decode_batches(b"".join(read.records), cut_off=True):
            yield from _replayed_batch(batch, partition)
            offset = batch.last_offset + 1


def _replayed_batch(batch: FetchedBatch, partition: int) -> Iterator[Replayed]:
    if batch.is_control:
        for record in batch.each_record():
            marker = parse_marker(batch.producer_id, batch.producer_epoch, record.key, record.value)
            if marker is not None:
                yield ReplayedMarker(partition, marker.producer_id, marker.committed)
        return
    producer_id = batch.producer_id if batch.is_transactional else -1
    for record in batch.each_record():
        if record.key is not None:
            yield ReplayedRecord(partition, record.offset, record.key, record.value, producer_id)


class TransactionMarkers:
    """Ends transactions in their partitions, as WriteTxnMarkers does between the brokers of a real cluster.

    Safe to call from any thread. Writing a marker twice is harmless: a log accepts it even if the producer has no open
    transaction. `complete_offsets`: see `GroupCoordinator.complete_transaction`.
    """

    def __init__(
        self, cluster: Cluster, logs: LogManager, complete_offsets: Callable[[int, Collection[int], bool], None]
    ) -> None:
        self._cluster = cluster
        self._logs = logs
        self._complete_offsets = complete_offsets

    def write(self, marker: EndTransactionMarker, partitions: Sequence[tuple[str, int]]) -> None:
        """Writes a marker into those partitions that still exist. Raises ApiException if it must be retried (a full disk)."""
        for topic, index in partitions:
            log = self._logs.get(topic, index)
            state = self._cluster.image.partition(topic, index)
            if log is not None and state is not None:
                log.append_control(marker, state.leader_epoch)
                if topic == GROUP_METADATA_TOPIC:
                    self._complete_offsets(marker.producer_id, (index,), marker.committed)
