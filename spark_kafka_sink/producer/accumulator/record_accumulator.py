"""The meeting point of the task's thread and the sender's: the batches of every topic-partition, until they are finished."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from threading import RLock
from typing import NamedTuple

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.produce_result import ProduceResult
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, PartitionQueue, SealedBatch
from spark_kafka_sink.producer.accumulator.ready_queues import NodeLatencies, ReadyQueues
from spark_kafka_sink.producer.accumulator.tally import Tally

Batch = OpenBatch | SealedBatch
# Queues that a drain finds being written to before it gives up. While an append writes to 1,000 partitions they all are, and
# to move each of them out of the ready set and back in cost more than the sending.
MAX_DEFERRED = 16


class ReadyCheck(NamedTuple):
    """The nodes that have something to be sent, the topics whose leader is unknown, and when to look again at the latest."""

    nodes: list[int]
    unknown_leader_topics: set[str]
    next_check_ms: int


class RecordAccumulator:
    """Queues of batches by topic-partition, and the set of those not finished.

    `lock` guards everything here, and each open batch that is not being written to. Task threads hold it twice per Arrow
    batch, before and after the allocation (appender.py); the sender's thread to find and take what is ready. What the task's
    side calls in between (queues to undefer) expects it to be held. The pool has a lock of its own.
    """

    def __init__(self, config: ProducerConfig, pool: BufferPool) -> None:
        self.pool = pool
        self.lock = RLock()
        self.closed = False  # no more appends; what lingers goes out at once
        self.aborted = False  # everything was failed; nothing may be added any more
        self.memory_waiters = 0  # appends that wait for memory: every partition is ready then
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._queues: dict[str, dict[int, PartitionQueue]] = {}
        self._ready = ReadyQueues(config.linger_ms)
        # Each batch as it was added, and what it is now; in the order of creation, so the first is the first to expire.
        self._incomplete: dict[OpenBatch, Batch] = {}
        self._limits: dict[str, int] = {}  # topic: bytes of records, before compression, that its brokers may take in one batch
        self._deferred: defaultdict[Tally, list[PartitionQueue]] = defaultdict(list)  # by whose append writes to them
        self._latencies = NodeLatencies(config.partitioner_availability_timeout_ms, config.linger_ms)

    # The task's side

    def queues(self, topic: str) -> dict[int, PartitionQueue]:
        return self._queues.setdefault(topic, {})

    def new_queue(self, topic: str, partition: int) -> PartitionQueue:
        cluster = self._ready.cluster
        leader = cluster.leader(topic, partition) if cluster else None
        queue = self._queues[topic][partition] = PartitionQueue(topic, partition, leader)
        return queue

    def oldest_age_ms(self, now_ms: int) -> int:
        """Returns how long ago the first batch that is not finished was begun; 0 without any."""
        for batch in self._incomplete.values():
            return now_ms - batch.created_ms
        return 0

    def batch_limit(self, topic: str, default: int) -> int:
        """Bytes of records that a batch of this topic may have: `default`, or fewer where a broker refused so many."""
        return min(self._limits.get(topic, default), default)

    def queue_sizes(self, topic: str, count: int) -> tuple[list[int], list[int]] | None:
        """Returns the partitions that can be sent to, and how many batches wait for each: a choice may go by that.

        None before each of the `count` partitions has had a batch, as in RecordAccumulator.partitionReady. A partition of a slow
        broker is left out while something waits for it: once nothing does, only another record will tell whether the broker is
        well again.
        """
        partitions, sizes = list[int](), list[int]()
        with self.lock:
            queues = self._queues.get(topic, {})
            if len(queues) < count:
                return None
            slow = self._latencies.slow_nodes(queues.values(), monotonic_ms())
            for queue in queues.values():
                size = len(queue.retries) + len(queue.batches)
                if queue.leader is not None and queue.partition < count and not (size and queue.leader in slow):
                    partitions.append(queue.partition)
                    sizes.append(size)
        return partitions, sizes

    def open_size(self, topic: str, partition: int) -> int | None:
        """Bytes in the partition's open batch; None without one."""
        with self.lock:
            queue = self._queues.get(topic, {}).get(partition)
            return None if queue is None or queue.open is None else queue.open.size

    def open_sizes(self, topic: str) -> dict[int, int]:
        """Bytes in each open batch of the topic, by partition."""
        with self.lock:
            queues = self._queues.get(topic, {})
            return {partition: queue.open.size for partition, queue in queues.items() if queue.open is not None}

    def close_open(self, queue: PartitionQueue) -> None:
        """No more records for the queue's open batch: it is full, or another scope's records come next."""
        batch = queue.open
        queue.open = None
        if batch is not None:
            self._ready.lingering.pop(batch, None)
            self._ready.mark(queue)

    def add(self, batch: OpenBatch, *, full: bool) -> None:
        """A new batch at the end of its queue. Once more, after an interrupt, does nothing that was done already."""
        queue = batch.queue
        if queue.open is not None and queue.open is not batch:  # another scope's, added while this one was encoded
            self.close_open(queue)
        if batch not in self._incomplete:
            self._incomplete[batch] = batch
            batch.tally.batches_added(1)
        if not queue.batches or queue.batches[-1] is not batch:
            queue.batches.append(batch)
        if full:
            self._ready.mark(queue)
        else:
            queue.open = batch
            self._ready.lingering[batch] = None

    def undefer(self, tally: Tally) -> bool:
        """An append is over: what the sender wanted to take meanwhile is ready again. Returns whether there is something."""
        deferred = self._deferred.get(tally, ())
        for queue in deferred:
            self._ready.mark(queue)
        self._deferred.pop(tally, None)  # last: after an interrupt this is called again
        return bool(deferred)

    def flush(self, tally: Tally | None) -> None:
        """Make what a scope (None: every scope) has waiting ready to be sent, its open batches too."""
        with self.lock:
            for batch in list(self._ready.lingering):
                if tally is None or batch.tally is tally:
                    self._flush_open(batch)

    def flush_all(self, tallies: Set[Tally]) -> dict[Tally, list[ProduceResult]]:
        """The same for many. Returned are the results of their batches that are not finished, as far as anybody wants to know."""
        results: dict[Tally, list[ProduceResult]] = {}
        with self.lock:
            for batch in list(self._ready.lingering):
                if batch.tally in tallies:
                    self._flush_open(batch)
            for unfinished in self._incomplete.values():
                tally = unfinished.tally
                if tally is not None and tally in tallies and unfinished.result is not None:
                    results.setdefault(tally, []).append(unfinished.result)
        return results

    def _flush_open(self, batch: OpenBatch) -> None:
        self._ready.lingering.pop(batch, None)
        self._ready.mark(batch.queue)

    def discard(self, tally: Tally, error: KafkaSinkError, on_loss: Callable[[], None]) -> None:
        """Fails what a scope has not sent; what is in flight goes on and reports to nobody.

        on_loss: called if there is something, while it is still counted as incomplete.
        """
        dropped: list[OpenBatch] = []
        with tally.appending:
            with self.lock:
                for batch in [batch for batch in self._incomplete.values() if batch.tally is tally]:
                    if isinstance(batch, SealedBatch):
                        batch.tally = None
                    elif self._unqueue(batch):
                        dropped.append(batch)
                if dropped:
                    on_loss()
                for batch in dropped:
                    del self._incomplete[batch]
            for batch in dropped:
                batch.memory.give_back(self.pool)
        for batch in dropped:  # without the lock: an interceptor hears of it
            batch.failed(error)

    # The sender's side

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheck:
        """Move what has become ready and tell which nodes have something to be sent."""
        with self.lock:
            at_once = self.closed or self.memory_waiters > 0
            self._ready.update(cluster, self._all_queues(), now_ms, at_once=at_once)
            due = self._ready.next_due_ms()
            for batch in self._incomplete:
                due = min(due, batch.created_ms + self._delivery_timeout_ms)
                break
            return ReadyCheck(self._ready.nodes(), self._ready.leaderless_topics(), max(due - now_ms, 0))

    def drain(
        self,
        node: int,
        max_size: int,
        size_of: Callable[[Batch], float] = lambda batch: batch.size,
        may_drain: Callable[[PartitionQueue], bool] = lambda queue: True,
    ) -> list[Batch]:
        """One batch per partition led by `node`, up to `max_size` bytes in all, as `size_of` counts them, but at least one batch.

        may_drain: asked of each queue with the lock held; who says no calls `answered` when it may.

        A queue that cannot be drained now leaves the ready set; what holds it back puts it in again: the end of the append
        that writes to the batch, an answer for the batches before it.
        """
        taken: list[Batch] = []
        size = 0.0
        deferred = 0
        with self.lock:
            ready = self._ready.of_node(node)
            for _ in range(len(ready)):
                queue = next(iter(ready))
                head = queue.head()
                next_size = 0.0 if head is None else size_of(head)
                if taken and size + next_size > max_size:
                    break
                del ready[queue]
                batch = self._take(queue) if head is not None and may_drain(queue) else None
                if batch is not None:
                    taken.append(batch)
                    size += next_size
                    self._ready.mark_if_due(queue)
                elif isinstance(head, OpenBatch) and head.writing:
                    deferred += 1
                    if deferred == MAX_DEFERRED:
                        break
            if taken:
                self._latencies.drained(node, monotonic_ms())
        return taken

    def _take(self, queue: PartitionQueue) -> Batch | None:
        """Returns what may be sent of a queue now: a retry, if there are any, or its first batch."""
        sequences = queue.sequences
        if queue.retries:
            for batch in queue.retries:
                if sequences is None or sequences.may_resend(batch):
                    queue.retries.remove(batch)
                    return batch
            return None
        if sequences is not None and not sequences.may_send_new():
            return None
        # Behind batches that the old leader has yet to refuse, a new one would reach the new leader out of order.
        if sequences is not None and any(batch.sent_to not in (None, queue.leader) for batch in sequences.in_flight):
            return None
        first = queue.batches[0]
        if first.writing:
            self._deferred[first.tally].append(queue)
            return None
        if first is queue.open:
            queue.open = None
            self._ready.lingering.pop(first, None)
        return queue.batches.popleft()

    def put_back(self, batches: Iterable[Batch]) -> None:
        """Puts batches of one drain back that do not go after all: each is the next of its queue again."""
        with self.lock:
            for batch in batches:
                queue = batch.queue
                if isinstance(batch, OpenBatch):
                    queue.batches.appendleft(batch)
                else:
                    queue.add_retry(batch)
                self._ready.mark(queue)

    def sealed(self, batch: OpenBatch, sealed: SealedBatch) -> None:
        """The drained batch goes on as another object, of the same age."""
        with self.lock:
            self._incomplete[batch] = sealed
            if batch.tally.discarded:
                sealed.tally = None

    def reenqueue(self, batch: SealedBatch, until_ms: int) -> None:
        """Queue a batch for a retry, not before `until_ms`; at once if the partition has another leader than refused it."""
        queue = batch.queue
        with self.lock:
            queue.add_retry(batch)
            if queue.leader in (None, batch.sent_to):
                self._ready.back_off(queue, until_ms)
            else:
                self._ready.mark(queue)

    def too_large(self, batch: SealedBatch) -> int:
        """A broker refused a batch for its size. Returned is how many bytes of records this topic's batches have at most from now
        on, for as long as this producer lives: not all are to be sent, refused and split. It is never below half of what the
        topic takes."""
        with self.lock:
            topic = batch.queue.topic
            limit = self._limits[topic] = self.batch_limit(topic, max(batch.raw_size // 2, 1))
            return limit

    def replace(self, batch: SealedBatch, parts: Sequence[SealedBatch]) -> None:
        """The parts of a batch go on in its place: in its queue, among its retries, and in the order in which batches expire."""
        queue = batch.queue
        with self.lock:
            in_its_place = [(part.opened, part) for part in parts]
            groups = (in_its_place if now is batch else [(added, now)] for added, now in self._incomplete.items())
            self._incomplete = dict(itertools.chain.from_iterable(groups))
            for part in parts:
                part.tally = batch.tally  # a discard may have been faster
            if batch.tally is not None:
                batch.tally.batches_added(len(parts) - 1)
            for part in reversed(parts):  # without sequence numbers the last one in is the first
                queue.add_retry(part)
            self._ready.mark(queue)

    def answered(self, queue: PartitionQueue) -> None:
        """Something in flight for the queue is over: what it held back may go on."""
        with self.lock:
            self._ready.mark_if_due(queue)

    def mute(self, queue: PartitionQueue) -> None:
        with self.lock:
            queue.muted = True
            self._ready.unmark(queue)

    def unmute(self, queue: PartitionQueue) -> None:
        with self.lock:
            queue.muted = False
            self._ready.mark_if_due(queue)

    def remove(self, batch: Batch) -> None:
        """The batch is finished."""
        with self.lock:
            self._incomplete.pop(batch if isinstance(batch, OpenBatch) else batch.opened, None)

    def acked(self, batches: Iterable[SealedBatch]) -> None:
        """These are finished, and what they held back may go on: `remove` and `answered` for each, under one lock."""
        with self.lock:
            for batch in batches:
                self._incomplete.pop(batch.opened, None)
                self._ready.mark_if_due(batch.queue)

    def expired(self, now_ms: int) -> list[Batch]:
        """Batches older than delivery.timeout.ms, taken out of their queues; those on the wire stay where they are."""
        gone: list[Batch] = []
        with self.lock:
            for batch in self._incomplete.values():
                if now_ms - batch.created_ms < self._delivery_timeout_ms:
                    break
                if self._take_out(batch):
                    gone.append(batch)
        return gone

    def unsent(self) -> list[Batch]:
        """Batches that are not on the wire, taken out of their queues; those that an append writes to stay."""
        with self.lock:
            return self._taken_out(self._incomplete.values())

    def beyond(self, topic: str, partitions: int) -> list[Batch]:
        """Batches of a topic's partitions from number `partitions` on, as `unsent`."""
        with self.lock:
            gone = [b for b in self._incomplete.values() if b.queue.topic == topic and b.queue.partition >= partitions]
            return self._taken_out(gone)

    def unsent_for(self, goes_there: Callable[[PartitionQueue], bool]) -> list[Batch]:
        """Batches of such partitions that no broker can have stored, as `unsent`."""
        with self.lock:
            return self._taken_out(b for b in list(self._incomplete.values()) if goes_there(b.queue) and not _may_be_stored(b))

    def _taken_out(self, batches: Iterable[Batch]) -> list[Batch]:
        """Takes those that are not on the wire out of their queues; not what an append writes to."""
        unsent = [batch for batch in batches if isinstance(batch, OpenBatch) or not batch.on_wire]
        return [batch for batch in unsent if self._take_out(batch)]

    def _take_out(self, batch: Batch) -> bool:
        """Takes a batch out of its queue; False where an append writes to it."""
        if isinstance(batch, OpenBatch):
            if batch.writing:
                return False
            self._unqueue(batch)
        elif batch in batch.queue.retries:
            batch.queue.retries.remove(batch)
            self._unmark_empty(batch.queue)
        return True

    def abort_all(self) -> list[Batch]:
        """Everything not finished, taken out of the queues: for a close that cannot wait and for a fatal error."""
        with self.lock:
            self.aborted = True
            batches = list(self._incomplete.values())
            self._incomplete.clear()
            self._ready.clear()
            for queue in self._all_queues():
                queue.clear()
            return batches

    def has_incomplete(self) -> bool:
        return bool(self._incomplete)

    def held_up(self) -> dict[int | str, int]:
        """Counts the records that wait, by the broker that they are for, or by topic where there is no leader.

        Leaves out batches that an append writes to, and those that may still linger. A batch that is not full counts as soon as
        it is due: while its broker is away nothing closes it.
        """
        waiting: dict[int | str, int] = {}
        with self.lock:
            for batch in self._incomplete.values():
                if isinstance(batch, OpenBatch) and (batch.writing or batch in self._ready.lingering):
                    continue
                on_wire = isinstance(batch, SealedBatch) and batch.on_wire
                leader = batch.sent_to if isinstance(batch, SealedBatch) and on_wire else batch.queue.leader
                subject = batch.queue.topic if leader is None else leader
                waiting[subject] = waiting.get(subject, 0) + batch.record_count
        return waiting

    def incomplete_records(self) -> int:
        with self.lock:
            return sum(batch.record_count for batch in self._incomplete.values())

    def _unqueue(self, batch: OpenBatch) -> bool:
        """Take a batch out of its queue; False when the sender's thread has taken it already."""
        queue = batch.queue
        if batch not in queue.batches:
            return False
        queue.batches.remove(batch)
        if queue.open is batch:
            queue.open = None
        self._ready.lingering.pop(batch, None)
        self._unmark_empty(queue)
        return True

    def _unmark_empty(self, queue: PartitionQueue) -> None:
        """Nothing is connected to, or logged in to, for a queue whose batches were all taken out."""
        if queue.head() is None:
            self._ready.unmark(queue)

    def _all_queues(self) -> Iterable[PartitionQueue]:
        return (queue for queues in self._queues.values() for queue in queues.values())


def _may_be_stored(batch: Batch) -> bool:
    return isinstance(batch, SealedBatch) and batch.attempts > 0 and not batch.known_not_stored
