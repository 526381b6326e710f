"""Where the task's thread and the sender's thread meet: the batches of every topic-partition, and which may be sent.

Java's RecordAccumulator looks at every partition in each round of its sender. With a thousand partitions that is more than
Python can afford, so here a partition's queue is moved into the set of its leader's ready queues when something makes it
ready: a batch is full, lingered long enough, memory is short, a flush or a close waits. The conditions are Java's.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from threading import Condition, RLock
from typing import NamedTuple

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.producer.partition_queue import PartitionQueue
from spark_kafka_sink.producer.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.producer.send_scope import SendScope

Batch = OpenBatch | SealedBatch
FOREVER_MS = 2**62
# Queues that a drain finds held back before it gives up. While an append writes to 1,000 partitions they all are, and to move
# each of them out of the ready set and back in cost more than the sending.
MAX_DEFERRED = 16


class ReadyCheck(NamedTuple):
    """The nodes that have something to be sent, the topics whose leader is unknown, and when to look again at the latest."""

    nodes: list[int]
    unknown_leader_topics: set[str]
    next_check_ms: int


class RecordAccumulator:
    """Queues of batches by topic-partition, and the set of those not finished.

    `lock` guards everything here, and each open batch that is not being written to. Task threads hold it twice per Arrow
    batch, before and after the allocation (appender.py); the sender's thread to find and take what is ready.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.lock = RLock()
        self.finished = Condition(self.lock)
        self.closed = False  # no more appends; what lingers goes out at once
        self.aborted = False  # everything was failed; nothing may be added any more
        self.memory_waiters = 0  # appends that wait for memory: every partition is ready then
        self._linger_ms = config.linger_ms
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._cluster: Cluster | None = None
        self._queues: dict[str, dict[int, PartitionQueue]] = {}
        self._ready: dict[int | None, dict[PartitionQueue, None]] = {}  # by leader; dicts as sets that keep their order
        self._lingering: dict[OpenBatch, None] = {}  # in the order of creation
        # Each batch as it was added, and what it is now; in the order of creation, so the first is the first to expire.
        self._incomplete: dict[OpenBatch, Batch] = {}
        self._backing_off: list[tuple[int, int, PartitionQueue]] = []
        self._ticket = itertools.count()

    # The task's side

    def queues(self, topic: str) -> dict[int, PartitionQueue]:
        return self._queues.setdefault(topic, {})

    def new_queue(self, topic: str, partition: int) -> PartitionQueue:
        leader = self._cluster.leader(topic, partition) if self._cluster else None
        queue = self._queues[topic][partition] = PartitionQueue(topic, partition, leader)
        return queue

    def close_open(self, queue: PartitionQueue) -> None:
        """No more records for the queue's open batch: it is full, or another scope's records come next."""
        batch = queue.open
        queue.open = None
        if batch is not None:
            self._lingering.pop(batch, None)
            self._mark_ready(queue)

    def add(self, batch: OpenBatch, *, full: bool) -> None:
        """A new batch at the end of its queue."""
        queue = batch.queue
        queue.batches.append(batch)
        self._incomplete[batch] = batch
        batch.scope.batch_added()
        if full:
            self._mark_ready(queue)
        else:
            queue.open = batch
            self._lingering[batch] = None

    def undefer(self, deferred: list[PartitionQueue]) -> None:
        """An append is over: what the sender wanted to take meanwhile is ready again."""
        for queue in deferred:
            self._mark_ready(queue)
        deferred.clear()

    def flush(self, scope: SendScope | None) -> None:
        """Make what this scope (None: every scope) has waiting ready to be sent, its open batches too."""
        for batch in [b for b in self._lingering if scope is None or b.scope is scope]:
            del self._lingering[batch]
            self._mark_ready(batch.queue)

    def discard(self, scope: SendScope) -> list[OpenBatch]:
        """Take out what this scope has not sent; what is in flight goes on and reports to nobody."""
        dropped: list[OpenBatch] = []
        for added, batch in [pair for pair in self._incomplete.items() if pair[1].scope is scope]:
            if isinstance(batch, SealedBatch):
                batch.scope = None
            elif self._unqueue(batch):
                del self._incomplete[added]
                dropped.append(batch)
        return dropped

    # The sender's side

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheck:
        """Move what has become ready and tell which nodes have something to be sent."""
        with self.lock:
            if cluster is not self._cluster:
                self._regroup(cluster)
            self._end_back_off(now_ms)
            self._end_linger(now_ms)
            nodes = [node for node, queues in self._ready.items() if queues and node is not None]
            unknown = {queue.topic for queue in self._ready.get(None, ())}
            return ReadyCheck(nodes, unknown, self._next_check_ms(now_ms))

    def drain(self, node: int, max_size: int) -> list[Batch]:
        """One batch per partition led by `node`, up to `max_size` bytes in all but at least one batch.

        A queue that cannot be drained now leaves the ready set; what holds it back puts it in again: the end of the append
        that writes to the batch, an answer for the batches before it.
        """
        taken: list[Batch] = []
        size = deferred = 0
        with self.lock:
            ready = self._ready.get(node, {})
            for _ in range(len(ready)):
                queue = next(iter(ready))
                head = queue.retries[0] if queue.retries else queue.batches[0] if queue.batches else None
                if head is not None and taken and size + head.size > max_size:
                    break
                del ready[queue]
                if head is None:
                    continue
                batch = self._take(queue)
                if batch is None:
                    deferred += 1
                    if deferred == MAX_DEFERRED:
                        break
                else:
                    taken.append(batch)
                    size += batch.size
                    self._mark_ready_if_due(queue)
        return taken

    def _take(self, queue: PartitionQueue) -> Batch | None:
        if queue.retries:
            for batch in queue.retries:
                if queue.sequences is None or queue.sequences.may_resend(batch):
                    queue.retries.remove(batch)
                    return batch
            return None
        if not queue.batches or (queue.sequences is not None and not queue.sequences.may_send_new()):
            return None
        first = queue.batches[0]
        if first.writing:
            first.scope.deferred.append(queue)
            return None
        if first is queue.open:
            queue.open = None
            self._lingering.pop(first, None)
        return queue.batches.popleft()

    def sealed(self, batch: OpenBatch, sealed: SealedBatch) -> None:
        """The drained batch goes on as another object, of the same age."""
        with self.lock:
            self._incomplete[batch] = sealed
            if batch.scope.discarded:
                sealed.scope = None

    def reenqueue(self, batch: SealedBatch, until_ms: int) -> None:
        """Queue a batch for a retry, not before `until_ms`."""
        with self.lock:
            batch.queue.add_retry(batch)
            batch.queue.backing_off = True
            self._ready.get(batch.queue.leader, {}).pop(batch.queue, None)
            heapq.heappush(self._backing_off, (until_ms, next(self._ticket), batch.queue))

    def answered(self, queue: PartitionQueue) -> None:
        """Something in flight for the queue is over: what it held back may go on."""
        with self.lock:
            self._mark_ready_if_due(queue)

    def mute(self, queue: PartitionQueue) -> None:
        with self.lock:
            queue.muted = True
            self._ready.get(queue.leader, {}).pop(queue, None)

    def unmute(self, queue: PartitionQueue) -> None:
        with self.lock:
            queue.muted = False
            self._mark_ready_if_due(queue)

    def remove(self, batch: Batch) -> None:
        """The batch is finished, and so is whoever waits for nothing to be left."""
        with self.lock:
            self._incomplete.pop(batch if isinstance(batch, OpenBatch) else batch.opened, None)
            if not self._incomplete:
                self.finished.notify_all()

    def expired(self, now_ms: int) -> list[Batch]:
        """Batches older than delivery.timeout.ms, taken out of their queues; those on the wire stay where they are."""
        gone: list[Batch] = []
        with self.lock:
            for batch in self._incomplete.values():
                if now_ms - batch.created_ms < self._delivery_timeout_ms:
                    break
                if isinstance(batch, SealedBatch):
                    if batch in batch.queue.retries:
                        batch.queue.retries.remove(batch)
                elif batch.writing:
                    continue
                else:
                    self._unqueue(batch)
                gone.append(batch)
        return gone

    def abort_all(self) -> list[Batch]:
        """Everything not finished, taken out of the queues: for a close that cannot wait and for a fatal error."""
        with self.lock:
            self.aborted = True
            batches = list(self._incomplete.values())
            self._incomplete.clear()
            self._lingering.clear()
            self._ready.clear()
            self._backing_off.clear()
            for queue in self._all_queues():
                queue.retries.clear()
                queue.batches.clear()
                queue.open = None
            self.finished.notify_all()
            return batches

    def has_incomplete(self) -> bool:
        return bool(self._incomplete)

    # What is ready

    def _mark_ready(self, queue: PartitionQueue) -> None:
        if not queue.muted and not queue.backing_off:
            self._ready.setdefault(queue.leader, {})[queue] = None

    def _mark_ready_if_due(self, queue: PartitionQueue) -> None:
        """Ready again, unless all that waits is an open batch that may still linger."""
        if queue.retries or (queue.batches and queue.batches[0] not in self._lingering):
            self._mark_ready(queue)

    def _regroup(self, cluster: Cluster) -> None:
        """New metadata: queues go to their leader of today. A new leader ends a back-off, as in Java's ongoing-retry rule."""
        self._cluster = cluster
        ready = {queue: None for queues in self._ready.values() for queue in queues}
        self._ready = {}
        for queue in self._all_queues():
            leader = cluster.leader(queue.topic, queue.partition)
            moved = queue.leader != leader and leader is not None
            queue.leader = leader
            if moved and queue.backing_off:
                queue.backing_off = False
                ready[queue] = None
        for queue in ready:
            self._mark_ready(queue)

    def _end_back_off(self, now_ms: int) -> None:
        while self._backing_off and self._backing_off[0][0] <= now_ms:
            queue = heapq.heappop(self._backing_off)[2]
            queue.backing_off = False
            self._mark_ready_if_due(queue)

    def _end_linger(self, now_ms: int) -> None:
        """Batches that have waited long enough; all of them when memory is short or the producer closes."""
        at_once = self.closed or self.memory_waiters > 0
        for batch in list(itertools.takewhile(lambda b: at_once or now_ms - b.created_ms >= self._linger_ms, self._lingering)):
            del self._lingering[batch]
            self._mark_ready(batch.queue)

    def _next_check_ms(self, now_ms: int) -> int:
        due = FOREVER_MS
        for lingering in self._lingering:
            due = lingering.created_ms + self._linger_ms
            break
        if self._backing_off:
            due = min(due, self._backing_off[0][0])
        for batch in self._incomplete:
            due = min(due, batch.created_ms + self._delivery_timeout_ms)
            break
        return max(due - now_ms, 0)

    def _unqueue(self, batch: OpenBatch) -> bool:
        """Take a batch out of its queue; False when the sender's thread has taken it already."""
        queue = batch.queue
        if batch not in queue.batches:
            return False
        queue.batches.remove(batch)
        if queue.open is batch:
            queue.open = None
        self._lingering.pop(batch, None)
        return True

    def _all_queues(self) -> Iterable[PartitionQueue]:
        return (queue for queues in self._queues.values() for queue in queues.values())
