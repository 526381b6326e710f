"""Records without a key, by bytes (KIP-794, Kafka's BuiltInPartitioner): one partition until it has a batch, then another."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster


@dataclass(slots=True)
class _Sticky:
    """A topic's current partition, and the bytes it got since it was chosen."""

    partition: int
    produced: int = 0


class StickyPartitioner:
    """Chooses partitions for runs of consecutive rows, each of about `batch_size` bytes, uniformly among those with a leader.

    A run ends before the row that would not fit into a batch any more. Java ends it after that row, which then begins a second
    batch; by columns the next row's size is known beforehand, so a run makes one batch. Any thread may call: `_lock` guards
    the topics' state, which lasts from call to call.
    """

    def __init__(self, batch_size: int, rng: random.Random | None = None) -> None:
        self._batch_size = batch_size
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._topics: dict[str, _Sticky] = {}

    def partition(self, topic: str, sizes: NDArray[np.int64], cluster: Cluster) -> NDArray[np.int32]:
        """A partition for each row, of so many bytes as `sizes` says; the cluster knows the topic. Loops over runs, not rows."""
        partitions = np.empty(len(sizes), np.int32)
        if len(sizes) == 0:
            return partitions
        ends = np.cumsum(sizes)
        with self._lock:
            sticky = self._current(topic, cluster)
            start = 0
            while True:
                stop = self._run_end(ends, start, sticky.produced)
                partitions[start:stop] = sticky.partition
                if stop > start:
                    sticky.produced += int(ends[stop - 1]) - (int(ends[start - 1]) if start else 0)
                if stop == len(sizes):
                    return partitions
                sticky = self._switch(topic, cluster, sticky.partition)
                start = stop

    def _run_end(self, ends: NDArray[np.int64], start: int, produced: int) -> int:
        """The row after the last that fits; a row larger than a batch goes alone."""
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + self._batch_size - produced, side="right"))
        return max(stop, start + 1 if produced == 0 else start)

    def _current(self, topic: str, cluster: Cluster) -> _Sticky:
        """The topic's partition so far, unless it is gone or has no leader while others have one."""
        sticky = self._topics.get(topic)
        if sticky is None:
            return self._switch(topic, cluster, None)
        if cluster.leader(topic, sticky.partition) is not None:
            return sticky
        exists = sticky.partition < (cluster.partition_count(topic) or 0)
        if exists and len(cluster.available_partitions(topic)) == 0:
            return sticky
        return self._switch(topic, cluster, sticky.partition)

    def _switch(self, topic: str, cluster: Cluster, current: int | None) -> _Sticky:
        """Another partition with a leader; where none has one, any other; where there is no other, the same again."""
        choices = cluster.available_partitions(topic)
        if len(choices) == 0:
            choices = cluster.partitions(topic)
        at = int(self._rng.random() * len(choices))
        if len(choices) > 1 and choices[at] == current:
            at = (at + 1 + int(self._rng.random() * (len(choices) - 1))) % len(choices)
        sticky = self._topics[topic] = _Sticky(int(choices[at]))
        return sticky
