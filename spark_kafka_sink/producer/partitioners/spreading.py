"""Partitioners that look at no row: each in turn, or any."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.partitioners.partitioner import Partitions, Sizes, partition_count
from spark_kafka_sink.records.columns import RecordColumns

_POSITIVE = 0x7FFFFFFF


class RoundRobinPartitioner:
    """The partitions that have a leader (where none has one, all) in turn, from row to row and from call to call.

    Java's: a counter for each topic, which begins at 0. Any thread may call; `_lock` guards the counters.
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
        # Java's AtomicInteger wraps, and toPositive clears the sign: all in all the counter's last 31 bits.
        numbers = (np.arange(first, first + count) & _POSITIVE).astype(np.uint32)
        partitions: Partitions = choices[numbers % np.uint32(len(choices))]
        return partitions


class RandomPartitioner:
    """Any partition that has a leader (where none has one, any) for each row alone: librdkafka's `random`, Sarama's.

    Any thread may call; `_lock` guards the generator.
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
