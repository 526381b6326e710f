"""Partitions as one broker serves them: it checks the leader, then reads or writes the log (Kafka's ReplicaManager)."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.cluster.metadata_image import PartitionState
from spark_kafka_sink.broker.log.log_config import min_insync_replicas
from spark_kafka_sink.broker.log.log_manager import LogManager
from spark_kafka_sink.broker.log.log_types import AppendOrigin, FetchDataInfo, IsolationLevel, LogAppendInfo
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.wire_types import Buffer

NO_EPOCH = -1
ALL_REPLICAS = -1


@dataclass(frozen=True, slots=True)
class LedPartition:
    """A partition that this broker leads now."""

    state: PartitionState
    log: UnifiedLog


class ReplicaManager:
    """Reads and writes the partitions that one broker leads. It has no mutable state, so any thread may call it."""

    def __init__(self, node_id: int, cluster: Cluster, logs: LogManager) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._logs = logs

    def led(self, topic: str, index: int, leader_epoch: int = NO_EPOCH) -> LedPartition:
        """Returns a partition that this broker leads.

        `leader_epoch` is the client's (KIP-320). If it is older or newer than the broker's, the call fails.

        Raises:
            ApiException: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        state = self._cluster.image.partition(topic, index)
        if state is None:
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # The epoch is checked first, as in Kafka's `Partition.getLocalLog`: a client with an old epoch must refresh metadata
        # anyway.
        if leader_epoch not in (NO_EPOCH, state.leader_epoch):
            older = leader_epoch < state.leader_epoch
            raise ApiException(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if state.leader != self._node_id:
            raise ApiException(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self._logs.get(topic, index)
        if log is None:  # it was deleted between the two lookups
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return LedPartition(state, log)

    def log_start_offset(self, topic: str, index: int) -> int:
        """Returns the first offset, regardless of the leader; -1 if there is no such partition."""
        log = self._logs.get(topic, index)
        return -1 if log is None else log.log_start_offset

    def log_size(self, topic: str, index: int) -> int | None:
        """Returns the size in bytes, regardless of the leader; None if there is no such partition."""
        log = self._logs.get(topic, index)
        return None if log is None else log.size

    def append(
        self, topic: str, index: int, records: Buffer, acks: int, *, guard: VerificationGuard | None = None
    ) -> LogAppendInfo:
        """Appends a client's batch. Raises ApiException with an error of `led` or of the log, or NOT_ENOUGH_REPLICAS."""
        led = self.led(topic, index)
        state = self._cluster.image.topics.get(topic)
        needed = 1 if state is None or acks != ALL_REPLICAS else min_insync_replicas(self._cluster.config, state)
        if len(led.state.isr) < needed:
            text = f"The size of the current ISR {set(led.state.isr)} is insufficient to satisfy the min.isr requirement."
            raise ApiException(ErrorCode.NOT_ENOUGH_REPLICAS, text)
        return led.log.append_as_leader(records, led.state.leader_epoch, origin=AppendOrigin.CLIENT, guard=guard)

    def read(
        self, topic: str, index: int, offset: int, max_bytes: int, isolation: IsolationLevel, epoch: int, *, whole: bool
    ) -> FetchDataInfo:
        """Reads a partition. `whole`: returns the first batch complete even if it is larger than `max_bytes`."""
        return self.led(topic, index, epoch).log.read(offset, max_bytes, isolation, min_one_batch=whole)
