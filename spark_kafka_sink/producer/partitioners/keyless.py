"""Partitioners that ignore the rows: round robin, random, sticky until a new batch begins (KIP-480), and Java's built-in."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.partitioners.interface import Partitions, Queues, Sizes, partition_count
from spark_kafka_sink.records.columns import RecordColumns

_POSITIVE = 0x7FFFFFFF


class RoundRobinPartitioner:
    """Uses the partitions in turn, from row to row and from call to call. If any has a leader, only those with a leader.

    As in Java, each topic has a counter that begins at 0. Thread-safe: `_lock` guards the counters.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, int] = {}

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        choices = _choices(topic, cluster)
        count = columns.num_records
        with self._lock:
            first = self._counters.get(topic, 0)
            self._counters[topic] = (first + count) & _POSITIVE
        # Java's AtomicInteger wraps, and toPositive clears the sign, which leaves the counter's last 31 bits.
        numbers = (np.arange(first, first + count) & _POSITIVE).astype(np.uint32)
        partitions: Partitions = choices[numbers % np.uint32(len(choices))]
        return partitions


class RandomPartitioner:
    """Uses a random partition for each row, like librdkafka's and Sarama's `random`. If any has a leader, only those with one.

    Thread-safe: `_lock` guards the generator.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._lock = threading.Lock()
        self._generator = np.random.default_rng(seed)

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        choices = _choices(topic, cluster)
        with self._lock:
            partitions: Partitions = choices[self._generator.integers(0, len(choices), columns.num_records)]
        return partitions


def _choices(topic: str, cluster: Cluster) -> NDArray[np.int32]:
    partition_count(topic, cluster)
    available = cluster.available_partitions(topic)
    return available if len(available) else cluster.partitions(topic)


class UniformStickyPartitioner:
    """Uses one partition for all rows of a topic, with any key, until a new batch begins (Java's StickyPartitionCache).

    Thread-safe: `_lock` guards the dictionary.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._partitions: dict[str, int] = {}

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        with self._lock:
            partition = self._partitions.get(topic)
            if partition is None or partition >= partition_count(topic, cluster):  # the topic was recreated with fewer partitions
                partition = self._partitions[topic] = self._next(topic, cluster, None)
        return np.full(columns.num_records, partition, np.int32)

    def on_new_batch(self, topic: str, cluster: Cluster, prev_partition: int) -> bool:
        """Leaves `prev_partition` if it is still the current partition. Returns whether the partition changed."""
        with self._lock:
            current = self._partitions.get(topic)
            if current is not None and current != prev_partition:
                return False
            self._partitions[topic] = self._next(topic, cluster, current)
            return self._partitions[topic] != prev_partition

    def _next(self, topic: str, cluster: Cluster, current: int | None) -> int:
        """Returns the next partition, as Java's class does: without a leader any, with one that one, with several any but
        `current`.
        """
        available = cluster.available_partitions(topic).tolist()
        if not available:
            return self._rng.randrange(partition_count(topic, cluster))
        if len(available) == 1:
            return int(available[0])
        return int(self._rng.choice([partition for partition in available if partition != current]))


# Time for which the queue lengths of a topic are reused. Java inspects the queues in each round of its sender; here 1,000 queues
# take about 100 us.
LOAD_STATS_S = 0.01


@dataclass(slots=True)
class _Sticky:
    """A topic's current partition, and the bytes it received since it was chosen."""

    partition: int
    produced: int = 0


class BuiltInPartitioner:
    """Chooses a partition with a leader for each run of rows, where a run has about `batch_size` bytes (KIP-794).

    The choice is uniform. If `adaptive` is set and `queues` is given, partitions with many waiting batches are chosen less often.

    A run ends before the row that would not fit into the batch. Java ends it after that row, which then begins a second batch.
    With columns the size of the next row is known in advance, so a run makes one batch. Thread-safe: `_lock` guards the topics'
    state, which lasts from call to call. The accumulator's lock may be taken under it.
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
        self._stats: dict[str, tuple[float, LoadStats | None]] = {}  # and the time until which they are valid, in s

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
        """Returns the bytes that the current partition still receives. If its batch was sent before it was full (linger.ms, a
        flush), that fills the next batch, up to twice batch.size (BuiltInPartitioner.updatePartitionInfo). Otherwise a flush
        would cost two batches.
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
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + left, side="right"))
        return max(stop, start + 1 if alone else start)

    def _current(self, topic: str, cluster: Cluster) -> _Sticky:
        """Returns the topic's current partition, or a new one if it is gone or has no leader while others have one."""
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
        if chosen is None or cluster.leader(topic, chosen) is None:  # the cluster is newer than the stats
            chosen = self._another(topic, cluster, current)
        sticky = self._topics[topic] = _Sticky(chosen)
        return sticky

    def _another(self, topic: str, cluster: Cluster, current: int | None) -> int:
        """Returns another partition with a leader; if none has one, any other; if there is no other, the same one."""
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


# Weights of partitions for records without a key, by the number of batches that wait for each


@dataclass(frozen=True, slots=True)
class LoadStats:
    """The running sum of the partitions' weights, shape (len(partitions),)."""

    partitions: Sequence[int]
    cumulative: NDArray[np.int64]

    def partition(self, at: float) -> int:
        """Returns the partition at the fraction `at` of all weights, where 0 <= `at` < 1."""
        number = int(at * int(self.cumulative[-1]))
        return self.partitions[int(np.searchsorted(self.cumulative, number, side="right"))]


def load_stats(partitions: Sequence[int], queue_sizes: Sequence[int], count: int) -> LoadStats | None:
    """Weights each partition by the longest queue minus its own, plus 1 (BuiltInPartitioner.updatePartitionLoadStats). Returns
    None if all of the topic's `count` partitions are equally good.
    """
    if not partitions or count < 2 or (len(partitions) == count and len(set(queue_sizes)) == 1):
        return None
    sizes = np.array(queue_sizes, np.int64)
    return LoadStats(partitions, np.cumsum(sizes.max() + 1 - sizes))
