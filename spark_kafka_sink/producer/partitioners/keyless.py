"""Partitioners that ignore the rows: round robin, random, and sticky until a new batch begins (KIP-480)."""

from __future__ import annotations

import random
import threading

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.partitioners.interface import Partitions, Sizes, partition_count
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
        """Returns the next partition, as Java's class does.

        If no partition has a leader, any partition; if one has, that one; if several have, any of them except `current`.
        """
        available = cluster.available_partitions(topic).tolist()
        if not available:
            return self._rng.randrange(partition_count(topic, cluster))
        if len(available) == 1:
            return int(available[0])
        return int(self._rng.choice([partition for partition in available if partition != current]))
