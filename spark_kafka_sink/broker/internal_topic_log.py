"""An internal topic in the broker's own logs, for the coordinator that writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.cluster.coordinator_partition import partition_for
from spark_kafka_sink.broker.coordinator_log import KeyValue, Replayed, ReplayedMarker, ReplayedRecord
from spark_kafka_sink.broker.log.batch import parse_marker
from spark_kafka_sink.broker.log.log_manager import LogManager
from spark_kafka_sink.broker.log.log_types import AppendOrigin, IsolationLevel
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.decoder import FetchedBatch, decode_batches
from spark_kafka_sink.records.small_batch import NewRecord, small_batch

_READ_BYTES = 1024 * 1024


class InternalTopicLog:
    """The CoordinatorLog of a running broker. The topic is made with the first append."""

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
        log = self._log(partition)
        if log is None:
            raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic}-{partition} is not there")
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

    def _log(self, partition: int) -> UnifiedLog | None:
        self._cluster.internal_topic(self.topic)
        return self._logs.get(self.topic, partition)

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
            yield from _records(batch, partition)
            offset = batch.last_offset + 1


def _records(batch: FetchedBatch, partition: int) -> Iterator[Replayed]:
    if batch.is_control:
        for record in batch.records():
            marker = parse_marker(batch.producer_id, batch.producer_epoch, record.key, record.value)
            if marker is not None:
                yield ReplayedMarker(partition, marker.producer_id, marker.committed)
        return
    producer_id = batch.producer_id if batch.is_transactional else -1
    for record in batch.records():
        if record.key is not None:
            yield ReplayedRecord(
                partition, record.offset, record.timestamp, record.key, record.value, producer_id, batch.producer_epoch
            )
