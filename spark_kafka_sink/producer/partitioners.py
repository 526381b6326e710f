"""A partition for every row: the record's own, or its key's hash, or the sticky one, as Java's KafkaProducer.partition."""

from __future__ import annotations

import random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import RecordError, UsageError
from spark_kafka_sink.producer.murmur2 import murmur2, to_positive
from spark_kafka_sink.producer.sticky import StickyPartitioner
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns


class Partitioner(Protocol):
    """Chooses partitions for columns. Any thread may call it, several at once."""

    def partition(self, topic: str, columns: RecordColumns, sizes: NDArray[np.int64], cluster: Cluster) -> NDArray[np.int32]:
        """A partition of `topic` for each row, shape (num_records,); the caller does not write to it.

        sizes: bytes that each record takes in a batch, shape (num_records,). cluster: one that knows the topic's partitions.
        Raises RecordError for a row that cannot have one.
        """
        ...


class DefaultPartitioner:
    """The partition column where it says one; else murmur2 of a key that is not null; else the sticky partition.

    With partitioner.ignore.keys, keys are not looked at.
    """

    def __init__(self, config: ProducerConfig, rng: random.Random | None = None) -> None:
        self._ignore_keys = config.partitioner_ignore_keys
        self._sticky = StickyPartitioner(config.batch_size, rng)

    def partition(self, topic: str, columns: RecordColumns, sizes: NDArray[np.int64], cluster: Cluster) -> NDArray[np.int32]:
        count = cluster.partition_count(topic)
        if count is None:
            raise UsageError(f"topic {topic}: wait for its metadata before partitioning", topic=topic)
        asked = _asked(topic, columns, count)
        if columns.partition is not None and asked.all():
            return columns.partition
        partitions, keyless = self._by_key(columns, count)
        if columns.partition is not None:
            partitions = np.where(asked, columns.partition, partitions)
            keyless = None if keyless is None else keyless & ~asked
        if keyless is None:
            return partitions
        if keyless.all():
            return self._sticky.partition(topic, sizes, cluster)
        partitions[keyless] = self._sticky.partition(topic, sizes[keyless], cluster)
        return partitions

    def _by_key(self, columns: RecordColumns, count: int) -> tuple[NDArray[np.int32], NDArray[np.bool_] | None]:
        """Partitions by key, and which rows have none to hash (their partition is unspecified); None: each has one."""
        n, key = columns.num_records, columns.key
        if key is None or self._ignore_keys or key.null_count == n:
            return np.zeros(n, np.int32), np.ones(n, np.bool_)
        nulls = key.is_null().to_numpy(zero_copy_only=False) if key.null_count else None
        return _remainder(to_positive(murmur2(key)), count), nulls


def _remainder(numbers: NDArray[np.int32], divisor: int) -> NDArray[np.int32]:
    """`numbers % divisor`: numpy divides by one number four times as fast as it takes remainders."""
    return numbers - numbers // np.int32(divisor) * np.int32(divisor)


def _asked(topic: str, columns: RecordColumns, count: int) -> NDArray[np.bool_]:
    """Which rows name their partition."""
    if columns.partition is None:
        return np.zeros(columns.num_records, np.bool_)
    _check_range(topic, columns.partition, count)
    asked: NDArray[np.bool_] = columns.partition != NO_PARTITION
    return asked


def _check_range(topic: str, partitions: NDArray[np.int32], count: int) -> None:
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
