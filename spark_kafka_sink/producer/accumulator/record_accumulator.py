"""Connects task threads and the sender thread: holds the batches of all partitions until they are finished."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from threading import RLock
from typing import NamedTuple

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, PartitionQueue, ProduceResult, SealedBatch
from spark_kafka_sink.producer.accumulator.ready_queues import NodeLatencies, ReadyQueues
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.base.lifecycle import FOREVER_MS

Batch = OpenBatch | SealedBatch
# Queues under write that a drain skips before it gives up. While an append writes to 1,000 partitions all of them are, and moving
# each out of the ready set and back cost more than sending.
MAX_DEFERRED = 16


class ReadyCheck(NamedTuple):
    """The nodes for which something is ready, the topics without a known leader, and when to check again at the latest."""

    nodes: list[int]
    unknown_leader_topics: set[str]
    next_check_ms: int


class RecordAccumulator:
    """Queues of batches by partition, and the set of unfinished batches.

    `lock` guards everything here, and each open batch that is not being written to. Task threads hold it twice per Arrow batch,
    before and after the allocation (appender.py); the sender thread holds it to find and take what is ready. Methods called by
    tasks in between (queues to undefer) require it. The pool has its own lock.
    """

    def __init__(self, config: ProducerConfig, pool: BufferPool) -> None:
        self.pool = pool
        self.lock = RLock()
        self.closed = False  # no more appends; lingering batches are sent at once
        self.aborted = False  # everything has failed; nothing may be added
        self.memory_waiters = 0  # appends that wait for memory: then every partition is ready
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._queues: dict[str, dict[int, PartitionQueue]] = {}
        self._ready = ReadyQueues(config.linger_ms)
        # Each batch as it was added and as it is now, in order of creation, so the first one expires first.
        self._incomplete: dict[OpenBatch, Batch] = {}
        self._limits: dict[str, int] = {}  # maximum bytes of records per batch, before compression, that a topic's brokers accept
        self._deferred: defaultdict[Tally, list[PartitionQueue]] = defaultdict(list)  # by the append that writes to them
        self._linger_ms = config.linger_ms
        # When the first unfinished batch expires, or before that: after it is finished this is set at the sender's next look.
        self.expires_ms = FOREVER_MS
        self._looks_ms = FOREVER_MS  # when the sender looks again by itself, as it knew when it last looked
        self._latencies = NodeLatencies(config.partitioner_availability_timeout_ms, config.linger_ms)

    # For task threads

    def queues(self, topic: str) -> dict[int, PartitionQueue]:
        return self._queues.setdefault(topic, {})

    def new_queue(self, topic: str, partition: int) -> PartitionQueue:
        cluster = self._ready.cluster
        leader = cluster.leader(topic, partition) if cluster else None
        queue = self._queues[topic][partition] = PartitionQueue(topic, partition, leader)
        return queue

    def oldest_age_ms(self, now_ms: int) -> int:
        for batch in self._incomplete.values():
            return now_ms - batch.created_ms
        return 0

    def batch_limit(self, topic: str, default: int) -> int:
        """Returns the maximum bytes of records per batch of this topic: `default`, or less if a broker rejected that size."""
        return min(self._limits.get(topic, default), default)

    def queue_sizes(self, topic: str, count: int) -> tuple[list[int], list[int]] | None:
        """Returns the available partitions and the number of batches that wait for each, as a basis for choosing a partition.

        Returns None until each of the `count` partitions has had a batch, like RecordAccumulator.partitionReady. A partition of a
        slow broker is left out while batches wait for it; after that only another record shows whether the broker has recovered.
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
        with self.lock:
            queue = self._queues.get(topic, {}).get(partition)
            return None if queue is None or queue.open is None else queue.open.size

    def open_sizes(self, topic: str) -> dict[int, int]:
        with self.lock:
            queues = self._queues.get(topic, {})
            return {partition: queue.open.size for partition, queue in queues.items() if queue.open is not None}

    def close_open(self, queue: PartitionQueue) -> None:
        """Closes the queue's open batch to further records: it is full, or another scope's records come next."""
        batch = queue.open
        queue.open = None
        if batch is not None:
            self._ready.lingering.pop(batch, None)
            self._ready.mark(queue)

    def add(self, batch: OpenBatch, *, full: bool) -> bool:
        """Adds a new batch at the end of its queue.

        Returns whether the sender has something to do. An open batch behind another one that lingers changes nothing: the sender
        looks again when that one's time is over, which is earlier.
        """
        queue = batch.queue
        wake = full
        if queue.open is not None:  # another scope's, added while this one was encoded
            self.close_open(queue)
            wake = True
        if not self._incomplete:
            self.expires_ms = batch.created_ms + self._delivery_timeout_ms
        self._incomplete[batch] = batch
        batch.tally.batches_added(1)
        queue.batches.append(batch)
        if full:
            self._ready.mark(queue)
        else:
            queue.open = batch
            self._ready.lingering[batch] = None
            wake = wake or batch.created_ms + self._linger_ms < self._looks_ms
        return wake

    def undefer(self, tally: Tally) -> bool:
        """Marks queues that the sender skipped during an append as ready. Returns whether there are any."""
        deferred = self._deferred.pop(tally, ())
        for queue in deferred:
            self._ready.mark(queue)
        return bool(deferred)

    def flush(self, tally: Tally | None) -> None:
        """Makes all waiting batches of a scope (None: of all scopes) ready, including open ones."""
        with self.lock:
            for batch in list(self._ready.lingering):
                if tally is None or batch.tally is tally:
                    self._flush_open(batch)

    def flush_all(self, tallies: Set[Tally]) -> dict[Tally, list[ProduceResult]]:
        """Flushes several scopes. Returns the results of their unfinished batches that must be reported."""
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
        """Fails a scope's unsent records. Batches in flight continue, but their results are dropped.

        on_loss: called if records fail, while they still count as incomplete.
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
        for batch in dropped:  # without the lock, because interceptors are called
            batch.failed(error)

    # For the sender thread

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheck:
        """Moves queues that have become ready, and returns which nodes have something to send."""
        with self.lock:
            at_once = self.closed or self.memory_waiters > 0
            self._ready.update(cluster, self._all_queues(), now_ms, at_once=at_once)
            due = self._looks_ms = self._ready.next_due_ms()
            self.expires_ms = FOREVER_MS
            for batch in self._incomplete:
                self.expires_ms = batch.created_ms + self._delivery_timeout_ms
                break
            return ReadyCheck(self._ready.nodes(), self._ready.leaderless_topics(), max(min(due, self.expires_ms) - now_ms, 0))

    def drain(
        self,
        node: int,
        max_size: int,
        size_of: Callable[[Batch], float] = lambda batch: batch.size,
        may_drain: Callable[[PartitionQueue], bool] = lambda queue: True,
    ) -> list[Batch]:
        """Takes one batch per partition led by `node`, up to `max_size` bytes in total by `size_of`, but at least one batch.

        may_drain: called for each queue with the lock held; if it returns False, it calls `answered` once the queue may be
        drained.

        A queue that cannot be drained now leaves the ready set. It is added again by what holds it back: the end of the append
        that writes to it, or a response for its earlier batches.
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
                    if queue.batches or queue.retries:
                        self._ready.mark_if_due(queue)
                elif isinstance(head, OpenBatch) and head.writing:
                    deferred += 1
                    if deferred == MAX_DEFERRED:
                        break
            if taken:
                self._latencies.drained(node, monotonic_ms())
        return taken

    def _take(self, queue: PartitionQueue) -> Batch | None:
        """Returns what a queue may send now: a retry if there is one, else its first batch."""
        sequences = queue.sequences
        if queue.retries:
            for batch in queue.retries:
                if sequences is None or sequences.may_resend(batch):
                    queue.retries.remove(batch)
                    return batch
            return None
        if sequences is not None and not sequences.may_send_new():
            return None
        # A new batch behind batches that the old leader has yet to reject would reach the new leader out of order.
        if sequences is not None and sequences.in_flight:
            leader = queue.leader
            if any(batch.sent_to not in (None, leader) for batch in sequences.in_flight):
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
        """Puts back batches of one drain that are not sent after all, each as the next of its queue."""
        with self.lock:
            for batch in batches:
                queue = batch.queue
                if isinstance(batch, OpenBatch):
                    queue.batches.appendleft(batch)
                else:
                    queue.add_retry(batch)
                self._ready.mark(queue)

    def sealed(self, batches: Iterable[SealedBatch]) -> None:
        """Replaces drained batches with their sealed forms, which have the same age."""
        with self.lock:
            for sealed in batches:
                batch = sealed.opened
                batch.sealed = None
                self._incomplete[batch] = sealed
                if batch.tally.discarded:
                    sealed.tally = None

    def reenqueue(self, batch: SealedBatch, until_ms: int) -> None:
        """Queues a batch for a retry at `until_ms`, or at once if another broker than the one that rejected it leads now."""
        queue = batch.queue
        with self.lock:
            queue.add_retry(batch)
            if queue.leader in (None, batch.sent_to):
                self._ready.back_off(queue, until_ms)
            else:
                self._ready.mark(queue)

    def too_large(self, batch: SealedBatch) -> int:
        """Lowers the batch size limit of a topic after a broker rejected a batch as too large. Returns the new limit in bytes.

        The limit lasts as long as the producer, so that not every batch is sent, rejected and split. It is at least half of what
        the topic accepts.
        """
        with self.lock:
            topic = batch.queue.topic
            limit = self._limits[topic] = self.batch_limit(topic, max(batch.raw_size // 2, 1))
            return limit

    def replace(self, batch: SealedBatch, parts: Sequence[SealedBatch]) -> None:
        """Replaces a batch with its parts: in its queue, among its retries, and in the order of expiry."""
        queue = batch.queue
        with self.lock:
            in_its_place = [(part.opened, part) for part in parts]
            groups = (in_its_place if now is batch else [(added, now)] for added, now in self._incomplete.items())
            self._incomplete = dict(itertools.chain.from_iterable(groups))
            for part in parts:
                part.tally = batch.tally  # a discard may have been faster
            if batch.tally is not None:
                batch.tally.batches_added(len(parts) - 1)
            for part in reversed(parts):  # without sequence numbers the last one inserted comes first
                queue.add_retry(part)
            self._ready.mark(queue)

    def answered(self, queue: PartitionQueue) -> None:
        """Releases what a finished request of the queue held back."""
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
        with self.lock:
            self._incomplete.pop(batch if isinstance(batch, OpenBatch) else batch.opened, None)

    def acked(self, batches: Iterable[SealedBatch]) -> None:
        """Calls `remove` and `answered` for each batch under one lock."""
        with self.lock:
            for batch in batches:
                self._incomplete.pop(batch.opened, None)
                queue = batch.queue
                if queue.batches or queue.retries:
                    self._ready.mark_if_due(queue)

    def expired(self, now_ms: int) -> list[Batch]:
        """Takes batches older than delivery.timeout.ms out of their queues. Those in flight stay."""
        gone: list[Batch] = []
        with self.lock:
            for batch in self._incomplete.values():
                if now_ms - batch.created_ms < self._delivery_timeout_ms:
                    break
                if self._take_out(batch):
                    gone.append(batch)
        return gone

    def unsent(self) -> list[Batch]:
        """Takes batches that are not in flight out of their queues. Those that an append writes to stay."""
        with self.lock:
            return self._taken_out(self._incomplete.values())

    def beyond(self, topic: str, partitions: int) -> list[Batch]:
        """Takes unsent batches of a topic's partitions from number `partitions` on out of their queues."""
        with self.lock:
            gone = [b for b in self._incomplete.values() if b.queue.topic == topic and b.queue.partition >= partitions]
            return self._taken_out(gone)

    def unsent_for(self, goes_there: Callable[[PartitionQueue], bool]) -> list[Batch]:
        """Takes batches of such partitions that no broker can have stored out of their queues."""
        with self.lock:
            return self._taken_out(b for b in list(self._incomplete.values()) if goes_there(b.queue) and not _may_be_stored(b))

    def _taken_out(self, batches: Iterable[Batch]) -> list[Batch]:
        """Takes those that are not in flight out of their queues, except those that an append writes to."""
        unsent = [batch for batch in batches if isinstance(batch, OpenBatch) or not batch.on_wire]
        return [batch for batch in unsent if self._take_out(batch)]

    def _take_out(self, batch: Batch) -> bool:
        """Takes a batch out of its queue. Returns False if an append writes to it."""
        if isinstance(batch, OpenBatch):
            if batch.writing:
                return False
            self._unqueue(batch)
        elif batch in batch.queue.retries:
            batch.queue.retries.remove(batch)
            self._unmark_empty(batch.queue)
        return True

    def abort_all(self) -> list[Batch]:
        """Takes all unfinished batches out of the queues, for a close that cannot wait and for a fatal error."""
        with self.lock:
            self.aborted = True
            batches = list(self._incomplete.values())
            self._incomplete.clear()
            self._ready.clear()
            for queue in self._all_queues():
                queue.clear()
            return batches

    def numbered_queues(self) -> set[PartitionQueue]:
        with self.lock:
            return {queue for queue in self._all_queues() if queue.sequences is not None}

    def has_incomplete(self) -> bool:
        return bool(self._incomplete)

    def held_up(self) -> dict[int | str, int]:
        """Returns the number of waiting records by broker, or by topic if there is no leader.

        Excludes batches that an append writes to and those that may still linger. A batch that is not full counts as soon as it
        is due: while its broker is away nothing closes it.
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
        """Returns the number of records whose outcome nobody knows. A flush may return before its batches are removed."""
        with self.lock:
            incomplete = self._incomplete.values()
            return sum(batch.record_count for batch in incomplete if not (isinstance(batch, SealedBatch) and batch.done))

    def _unqueue(self, batch: OpenBatch) -> bool:
        """Takes a batch out of its queue. Returns False if the sender thread has already taken it."""
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
        if queue.head() is None:
            self._ready.unmark(queue)

    def _all_queues(self) -> Iterable[PartitionQueue]:
        return (queue for queues in self._queues.values() for queue in queues.values())


def _may_be_stored(batch: Batch) -> bool:
    return isinstance(batch, SealedBatch) and batch.attempts > 0 and not batch.known_not_stored
