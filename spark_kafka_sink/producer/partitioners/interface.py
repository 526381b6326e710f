"""The interface of partitioners, and the partition column, which takes precedence (Java's KafkaProducer.partition)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.counts import partition_range
from spark_kafka_sink.errors import RecordError, UsageError
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns

Partitions = NDArray[np.int32]
Sizes = NDArray[np.int64]
OnNewBatch = Callable[[str, Cluster, int], object]


class Partitioner(Protocol):
    """Chooses partitions for columns. A custom partitioner need not inherit from this class. Java's Partitioner.

    Any thread may call it, and several at once. The append raises its errors.

    Optional methods:
    - on_new_batch(topic, cluster, prev_partition): called before a row assigned to prev_partition begins a new batch there. From
      that row on, partitions are chosen again (Java's Partitioner.onNewBatch), unless it returns False to keep the choice.
    - partition_record(topic, key, value, cluster): replaces `partition`; takes bytes or None and returns one partition. It runs
      Python code per row, which costs about 0.5 us per row in calls alone, as much as everything else together.
    - configure(settings): called once, before anything else, with the producer's options by Kafka's names.
    - close(): called once, when the producer is closed.
    """

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        """Returns a partition for each row.

        Args:
            topic: Name of the topic.
            columns: The serialized columns to send.
            sizes: Size of each record in a batch, in bytes: int64 of shape (num_records,), read-only.
            cluster: A snapshot that has the topic's partitions.

        Returns:
            int32 of shape (num_records,). The caller does not modify it.

        Raises:
            RecordError: A row cannot be assigned to a partition.
        """
        ...


class ClosablePartitioner(Partitioner, Protocol):
    """A partitioner that the producer closes."""

    def close(self) -> None:
        """Called when the producer is closed, possibly several times."""
        ...


def optional_method(partitioner: object, name: str) -> Callable[..., Any] | None:
    """Returns an optional method of a partitioner, or None."""
    method = getattr(partitioner, name, None)
    return method if callable(method) else None


def partition_count(topic: str, cluster: Cluster) -> int:
    """Returns the partition count of a topic. Raises UsageError if it is unknown."""
    count = cluster.partition_count(topic)
    if count is None:
        raise UsageError(f"topic {topic}: wait for its metadata before partitioning", topic=topic)
    return count


class PartitionColumnFirst:
    """Uses the partition column if a row has one; other rows go to another partitioner.

    whole_rows: whether the other partitioner also reads values and headers; otherwise these are not copied for mixed rows.
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
            f"topic {topic}: row {row} of {len(partitions)}: column partition is {partition}, but {partition_range(count)};"
            " null lets the partitioner choose",
            topic=topic,
            row=row,
            partition=partition,
            partition_count=count,
        )
