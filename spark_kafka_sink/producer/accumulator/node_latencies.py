"""Which brokers take nothing of what waits for them (partitioner.availability.timeout.ms)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_kafka_sink.producer.accumulator.partition_queue import PartitionQueue


class NodeLatencies:
    """When something was last drained for each node. Guarded by the accumulator's lock. Without a timeout nothing is kept.

    Java compares that with when its sender last found something ready for the node (RecordAccumulator.NodeLatencyStats). Here a
    queue that waits for an answer is not ready, so the age of what waits is looked at instead.
    """

    def __init__(self, timeout_ms: int, linger_ms: int) -> None:
        self.enabled = timeout_ms > 0
        self._timeout_ms = timeout_ms
        self._linger_ms = linger_ms
        self._drained_ms: dict[int, int] = {}

    def drained(self, node: int, now_ms: int) -> None:
        if self.enabled:
            self._drained_ms[node] = now_ms

    def slow_nodes(self, queues: Iterable[PartitionQueue], now_ms: int) -> set[int]:
        """The leaders of these queues for which a batch has been due, and nothing was drained, for longer than the timeout."""
        if not self.enabled:
            return set()
        drained_before = now_ms - self._timeout_ms
        created_before = drained_before - self._linger_ms
        return {
            queue.leader
            for queue in queues
            if queue.leader is not None
            and (head := queue.head()) is not None
            and head.created_ms < created_before
            and self._drained_ms.get(queue.leader, 0) < drained_before
        }
