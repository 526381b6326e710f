"""Kafka 3's sticky partitioner (KIP-480): one partition for everything, until a new batch has to be begun in it."""

from __future__ import annotations

import random
import threading

import numpy as np

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.partitioners.partitioner import Partitions, Sizes, partition_count
from spark_kafka_sink.records.columns import RecordColumns


class StickyPartitionCache:
    """A topic's current partition. Any thread may call; `_lock` guards the dictionary."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._partitions: dict[str, int] = {}

    def partition(self, topic: str, cluster: Cluster) -> int:
        with self._lock:
            partition = self._partitions.get(topic)
            if partition is None or partition >= partition_count(topic, cluster):  # the topic was made anew, with fewer
                partition = self._partitions[topic] = self._next(topic, cluster, None)
            return partition

    def next_partition(self, topic: str, cluster: Cluster, prev_partition: int) -> bool:
        """Leave `prev_partition`, if it is still the current one. Whether there is another one now."""
        with self._lock:
            current = self._partitions.get(topic)
            if current is not None and current != prev_partition:
                return False
            self._partitions[topic] = self._next(topic, cluster, current)
            return self._partitions[topic] != prev_partition

    def _next(self, topic: str, cluster: Cluster, current: int | None) -> int:
        """The three cases of Java's class: no partition with a leader: any; one: that one; several: any but the current."""
        available = cluster.available_partitions(topic).tolist()
        if not available:
            return self._rng.randrange(partition_count(topic, cluster))
        if len(available) == 1:
            return int(available[0])
        return int(self._rng.choice([partition for partition in available if partition != current]))


class UniformStickyPartitioner:
    """The sticky partition for every row, whatever its key."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._cache = StickyPartitionCache(rng)

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        return np.full(columns.num_records, self._cache.partition(topic, cluster), np.int32)

    def on_new_batch(self, topic: str, cluster: Cluster, prev_partition: int) -> bool:
        return self._cache.next_partition(topic, cluster, prev_partition)
