"""The partitioners' interface, and what comes before them: a record that names its partition (Java's KafkaProducer.partition)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.errors import RecordError, UsageError
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns

Partitions = NDArray[np.int32]
Sizes = NDArray[np.int64]
OnNewBatch = Callable[[str, Cluster, int], object]


class Partitioner(Protocol):
    """Chooses partitions for columns; a program's own needs to inherit nothing. Java's Partitioner.

    Any thread may call it, several at once. What it raises is raised by the append.

    It may have these methods too:
    - on_new_batch(topic, cluster, prev_partition): called when a row that it sent to prev_partition has to begin a new batch
      there, before anything is written; from that row on it is asked once more (Java's Partitioner.onNewBatch). Unless it
      returns False, which says that it would choose as before.
    - partition_record(topic, key, value, cluster): instead of `partition`; gets bytes or None and returns one partition. It is
      Python for every row: some 0.5 us a row in calls alone, as much as everything else together.
    - configure(settings): called once, before anything else, with the producer's options by Kafka's names.
    - close(): called once, when the producer is closed.
    """

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        """A partition of `topic` for each row, int32 of shape (num_records,); the caller does not write to it.

        columns: what is to be sent, serialized. sizes: bytes that each record takes in a batch, int64 of shape (num_records,).
        cluster: one that knows the topic's partitions.

        Raises RecordError for a row that cannot have one.
        """
        ...


class ClosablePartitioner(Partitioner, Protocol):
    """One that a producer holds."""

    def close(self) -> None:
        """The producer is closed. May be called again."""
        ...


def optional_method(partitioner: object, name: str) -> Callable[..., Any] | None:
    """One of those that a partitioner need not have."""
    method = getattr(partitioner, name, None)
    return method if callable(method) else None


def partition_count(topic: str, cluster: Cluster) -> int:
    """Returns how many partitions the topic has; UsageError while that is not known."""
    count = cluster.partition_count(topic)
    if count is None:
        raise UsageError(f"topic {topic}: wait for its metadata before partitioning", topic=topic)
    return count


class PartitionColumnFirst:
    """The partition column where it says one; else what another partitioner says, which is not asked of the other rows.

    whole_rows: the other one looks at values and headers too; if not, rows of which only some name a partition are not copied.
    """

    def __init__(self, partitioner: Partitioner, *, whole_rows: bool = False) -> None:
        self._partitioner = partitioner
        self._whole_rows = whole_rows
        self.on_new_batch = optional_method(partitioner, "on_new_batch")
        self._close = optional_method(partitioner, "close")

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        count = partition_count(topic, cluster)
        if columns.partition is None:
            return self._partitioner.partition(topic, columns, sizes, cluster)
        _check_range(topic, columns.partition, count)
        open_ = columns.partition == NO_PARTITION
        if not open_.any():
            return columns.partition
        if open_.all():
            return self._partitioner.partition(topic, columns, sizes, cluster)
        rest = columns if self._whole_rows else RecordColumns(columns.num_records, key=columns.key)
        partitions = columns.partition.copy()
        partitions[open_] = self._partitioner.partition(topic, rest.filter(open_), sizes[open_], cluster)
        return partitions

    def close(self) -> None:
        if self._close is not None:
            self._close()


def _check_range(topic: str, partitions: Partitions, count: int) -> None:
    wrong = (partitions < NO_PARTITION) | (partitions >= count)
    if wrong.any():
        row = int(np.argmax(wrong))
        partition = int(partitions[row])
        raise RecordError(
            f"topic {topic}: row {row} of {len(partitions)}: column partition is {partition}, but there are {count} partitions,"
            f" 0 to {count - 1}; null lets the partitioner decide",
            topic=topic,
            row=row,
            partition=partition,
            partition_count=count,
        )
