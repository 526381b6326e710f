"""Tracks which partitions' queues may be sent, by leader, when others become ready, and which nodes accept nothing."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, PartitionQueue
from spark_kafka_sink.producer.base.lifecycle import FOREVER_MS


class ReadyQueues:
    """Queues by state: ready, lingering with an open batch, or backing off. Guarded by the accumulator's lock.

    Java looks at every partition in each round of its sender. With a thousand partitions that is too slow in Python, so a queue
    is moved when something happens to it. The conditions are Java's (RecordAccumulator.batchReady).
    """

    def __init__(self, linger_ms: int) -> None:
        self.cluster: Cluster | None = None
        self._linger_ms = linger_ms
        self._ready: dict[int | None, dict[PartitionQueue, None]] = {}  # by leader; dicts as ordered sets
        self.lingering: dict[OpenBatch, None] = {}  # an ordered set, in order of creation
        self._backing_off: list[tuple[int, int, PartitionQueue]] = []
        self._ticket = itertools.count()

    def mark(self, queue: PartitionQueue) -> None:
        if not queue.muted and not queue.backing_off:
            self._ready.setdefault(queue.leader, {})[queue] = None

    def mark_if_due(self, queue: PartitionQueue) -> None:
        """Marks a queue as ready, unless it has only an open batch that may still linger."""
        if queue.retries or (queue.batches and queue.batches[0] not in self.lingering):
            self.mark(queue)

    def unmark(self, queue: PartitionQueue) -> None:
        self._ready.get(queue.leader, {}).pop(queue, None)

    def of_node(self, node: int) -> dict[PartitionQueue, None]:
        return self._ready.get(node, {})

    def back_off(self, queue: PartitionQueue, until_ms: int) -> None:
        """Makes a queue wait. If two batches were rejected the longer wait counts, because they are sent one after the other."""
        if queue.backing_off:
            until_ms = max(until_ms, queue.back_off_until_ms)
        queue.backing_off, queue.back_off_until_ms = True, until_ms
        self.unmark(queue)
        heapq.heappush(self._backing_off, (until_ms, next(self._ticket), queue))

    def clear(self) -> None:
        self._ready.clear()
        self.lingering.clear()
        self._backing_off.clear()

    def update(self, cluster: Cluster, queues: Iterable[PartitionQueue], now_ms: int, *, at_once: bool) -> None:
        if cluster is not self.cluster:
            self._regroup(cluster, queues)
        self._end_back_off(now_ms)
        self._end_linger(now_ms, at_once)

    def nodes(self) -> list[int]:
        return [node for node, queues in self._ready.items() if queues and node is not None]

    def leaderless_topics(self) -> set[str]:
        return {queue.topic for queue in self._ready.get(None, ())}

    def next_due_ms(self) -> int:
        due = FOREVER_MS
        for batch in self.lingering:
            due = batch.created_ms + self._linger_ms
            break
        return min(due, self._backing_off[0][0]) if self._backing_off else due

    def _regroup(self, cluster: Cluster, queues: Iterable[PartitionQueue]) -> None:
        """Moves queues to their current leaders after new metadata. As in Java, a new leader ends a back-off and may get batches
        that were held back until earlier ones were answered.
        """
        self.cluster = cluster
        ready = {queue: None for marked in self._ready.values() for queue in marked}
        self._ready = {}
        moved: list[PartitionQueue] = []
        for queue in queues:
            leader = cluster.leader(queue.topic, queue.partition)
            if leader not in (queue.leader, None):
                moved.append(queue)
            queue.leader = leader
        for queue in moved:
            if queue.backing_off:
                queue.backing_off = False
                ready[queue] = None
            self.mark_if_due(queue)
        for queue in ready:
            self.mark(queue)

    def _end_back_off(self, now_ms: int) -> None:
        while self._backing_off and self._backing_off[0][0] <= now_ms:
            until_ms, _, queue = heapq.heappop(self._backing_off)
            if queue.backing_off and queue.back_off_until_ms == until_ms:  # otherwise it has ended, or another one began
                queue.backing_off = False
                self.mark_if_due(queue)

    def _end_linger(self, now_ms: int, at_once: bool) -> None:
        if not self.lingering:
            return
        lingered = itertools.takewhile(lambda b: at_once or now_ms - b.created_ms >= self._linger_ms, self.lingering)
        for batch in list(lingered):
            del self.lingering[batch]
            self.mark(batch.queue)


class NodeLatencies:
    """When batches were last drained for each node. Guarded by the accumulator's lock. Without a timeout nothing is stored.

    Java compares that with when its sender last found something ready for the node (RecordAccumulator.NodeLatencyStats). Here a
    queue that waits for a response is not ready, so the age of waiting batches is used instead.
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
        """Returns the leaders of these queues that have had a due batch, but none drained, for longer than the timeout."""
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
