"""Records without a key, by bytes (KIP-794, Kafka's BuiltInPartitioner): one partition until it has a batch, then another."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.partitioners.partitioner import Partitions, Sizes, partition_count
from spark_kafka_sink.records.columns import RecordColumns

# Java looks at a topic's queues in each round of its sender. To look at 1,000 costs some 100 us here, and is good for so long.
LOAD_STATS_S = 0.01


class Queues(Protocol):
    """The questions to the accumulator. Any thread may ask."""

    def queue_sizes(self, topic: str, count: int) -> tuple[list[int], list[int]] | None:
        """Partitions that can be sent to, and how many batches wait for each; None before each of the `count` has had a batch."""
        ...

    def open_size(self, topic: str, partition: int) -> int | None:
        """Bytes in the partition's open batch; None without one."""
        ...

    def open_sizes(self, topic: str) -> dict[int, int]:
        """Bytes in each open batch of the topic, by partition."""
        ...


@dataclass(slots=True)
class _Sticky:
    """A topic's current partition, and the bytes it got since it was chosen."""

    partition: int
    produced: int = 0


class BuiltInPartitioner:
    """Chooses partitions for runs of consecutive rows, each of about `batch_size` bytes, among those with a leader: uniformly,
    or (queues are given) the rarer the more batches wait for one already.

    A run ends before the row that would not fit into a batch any more. Java ends it after that row, which then begins a second
    batch; by columns the next row's size is known beforehand, so a run makes one batch. Any thread may call: `_lock` guards
    the topics' state, which lasts from call to call; the accumulator's lock may be taken under it.
    """

    def __init__(
        self, batch_size: int, rng: random.Random | None = None, *, queues: Queues | None = None, adaptive: bool = False
    ) -> None:
        self._batch_size = batch_size
        self._rng = rng or random.Random()
        self._queues = queues
        self._adaptive = adaptive
        self._lock = threading.Lock()
        self._topics: dict[str, _Sticky] = {}
        self._stats: dict[str, tuple[float, LoadStats | None]] = {}  # until when, in seconds

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        """Loops over runs, not rows."""
        count = partition_count(topic, cluster)
        partitions = np.empty(len(sizes), np.int32)
        if len(sizes) == 0:
            return partitions
        ends = np.cumsum(sizes)
        with self._lock:
            sticky = self._current(topic, cluster)
            left = self._left(topic, sticky, int(sizes[0]))
            start = 0
            while True:
                stop = self._run_end(ends, start, left, alone=sticky.produced == 0)
                partitions[start:stop] = sticky.partition
                if stop > start:
                    sticky.produced += int(ends[stop - 1]) - (int(ends[start - 1]) if start else 0)
                if stop == len(sizes):
                    return partitions
                sticky = self._switch(topic, cluster, count, sticky.partition)
                left, start = self._batch_size, stop

    def _left(self, topic: str, sticky: _Sticky, next_size: int) -> int:
        """Bytes that the current partition still gets.

        Where the batch was sent before it was full (it had lingered, or a flush came), as many as make the one after it full, but
        twice batch.size at most (BuiltInPartitioner.updatePartitionInfo): else a flush would cost two batches.
        """
        left = self._batch_size - sticky.produced
        open_size = None if self._queues is None or not sticky.produced else self._queues.open_size(topic, sticky.partition)
        if open_size is not None:
            room = self._batch_size - open_size
        elif self._queues is not None and next_size <= left:
            room = self._batch_size
        else:
            room = 0
        return max(left, min(room, left + self._batch_size))

    def _run_end(self, ends: NDArray[np.int64], start: int, left: int, *, alone: bool) -> int:
        """The row after the last that fits into the bytes left; a row larger than a batch goes alone."""
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + left, side="right"))
        return max(stop, start + 1 if alone else start)

    def _current(self, topic: str, cluster: Cluster) -> _Sticky:
        """The topic's partition so far, unless it is gone or has no leader while others have one."""
        count = partition_count(topic, cluster)
        sticky = self._topics.get(topic)
        if sticky is None:
            return self._switch(topic, cluster, count, None)
        if cluster.leader(topic, sticky.partition) is not None:
            return sticky
        if sticky.partition < count and len(cluster.available_partitions(topic)) == 0:
            return sticky
        return self._switch(topic, cluster, count, sticky.partition)

    def _switch(self, topic: str, cluster: Cluster, count: int, current: int | None) -> _Sticky:
        stats = self._load_stats(topic, count)
        chosen = None if stats is None else stats.partition(self._rng.random())
        if chosen is None or cluster.leader(topic, chosen) is None:  # the cluster may know better than stats of a while ago
            chosen = self._another(topic, cluster, current)
        sticky = self._topics[topic] = _Sticky(chosen)
        return sticky

    def _another(self, topic: str, cluster: Cluster, current: int | None) -> int:
        """Another partition with a leader; where none has one, any other; where there is no other, the same again."""
        choices = cluster.available_partitions(topic)
        if len(choices) == 0:
            choices = cluster.partitions(topic)
        at = int(self._rng.random() * len(choices))
        if len(choices) > 1 and choices[at] == current:
            at = (at + 1 + int(self._rng.random() * (len(choices) - 1))) % len(choices)
        return int(choices[at])

    def _load_stats(self, topic: str, count: int) -> LoadStats | None:
        if self._queues is None or not self._adaptive:
            return None
        now = time.monotonic()
        until, stats = self._stats.get(topic, (0.0, None))
        if now >= until:
            sizes = self._queues.queue_sizes(topic, count)
            stats = None if sizes is None else load_stats(*sizes, count)
            self._stats[topic] = (now + LOAD_STATS_S, stats)
        return stats


# Where the next records without a key should go, by what waits for each partition already


@dataclass(frozen=True, slots=True)
class LoadStats:
    """partitions: those to choose from. cumulative: running sum of their weights, shape (len(partitions),)."""

    partitions: Sequence[int]
    cumulative: NDArray[np.int64]

    def partition(self, at: float) -> int:
        """The partition at 0 <= `at` < 1 of all weights together."""
        number = int(at * int(self.cumulative[-1]))
        return self.partitions[int(np.searchsorted(self.cumulative, number, side="right"))]


def load_stats(partitions: Sequence[int], queue_sizes: Sequence[int], count: int) -> LoadStats | None:
    """The weight of a partition is the longest queue less its own, plus 1 (BuiltInPartitioner.updatePartitionLoadStats).

    partitions: those of the topic's `count` that can be sent to. queue_sizes: batches that wait, for each of them. None: there is
    nothing to tell them apart by, so each is as good as another.
    """
    if not partitions or count < 2 or (len(partitions) == count and len(set(queue_sizes)) == 1):
        return None
    sizes = np.array(queue_sizes, np.int64)
    return LoadStats(partitions, np.cumsum(sizes.max() + 1 - sizes))
