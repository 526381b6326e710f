"""Partitions by the hash of the key, as in Java, librdkafka and Sarama, with a separate rule for rows without a key."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.partitioners.interface import Partitioner, Partitions, Sizes, optional_method, partition_count
from spark_kafka_sink.producer.partitioners.key_hash import fnv1a, murmur2, to_positive
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, validity
from spark_kafka_sink.records.columns import RecordColumns

# Computes, for each key, the uint32 number that is divided by the number of partitions. The second argument is as in `hash_keys`.
Dividends = Callable[[pa.Array, int | None], NDArray[np.uint32]]
_POSITIVE = np.uint32(0x7FFFFFFF)


def murmur2_positive(keys: pa.Array, length: int | None = None) -> NDArray[np.uint32]:
    """Returns murmur2 after `Utils.toPositive`, as Java's BuiltInPartitioner.partitionForKey and librdkafka's murmur2 use it."""
    return to_positive(murmur2(keys, length)).view(np.uint32)


def fnv1a_absolute(keys: pa.Array, length: int | None = None) -> NDArray[np.uint32]:
    """Returns the absolute value of FNV-1a.

    Sarama's NewHashPartitioner negates negative remainders, and librdkafka's fnv1a negates negative hashes. The result is the
    same. Both turn -2**31 into 2**31.
    """
    return np.abs(fnv1a(keys, length).view(np.int32)).view(np.uint32)


def fnv1a_positive(keys: pa.Array, length: int | None = None) -> NDArray[np.uint32]:
    """Returns FNV-1a without the sign bit, as Sarama's NewReferenceHashPartitioner uses it."""
    return fnv1a(keys, length) & _POSITIVE


class HashedKeys:
    """Uses the hash of the key modulo the number of partitions. A null key counts as an empty key."""

    def __init__(self, dividends: Dividends) -> None:
        self._dividends = dividends
        self._empty = int(dividends(array_of_bytes([b""]), None)[0])

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        count = partition_count(topic, cluster)
        key = columns.key
        if key is None:
            return np.full(columns.num_records, self._empty % count, np.int32)
        lengths = columns.lengths("key")
        length = lengths.longest if lengths is not None and lengths.is_constant and lengths.longest >= 0 else None
        partitions = _remainder(self._dividends(key, length), count)
        if key.null_count:
            partitions[~validity(key)] = self._empty % count
        return partitions


class ByKey:
    """Uses one partitioner for rows with a key and another for rows without. With `empty_is_none`, an empty key is no key."""

    def __init__(self, keyed: Partitioner, keyless: Partitioner, *, empty_is_none: bool = False) -> None:
        self._keyed = keyed
        self._keyless = keyless
        self._shortest = 1 if empty_is_none else 0  # bytes of a key; a null has -1
        self.on_new_batch = optional_method(keyless, "on_new_batch")

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        without = self._without_key(columns)
        if without is None:
            return self._keyed.partition(topic, columns, sizes, cluster)
        keyless = int(np.count_nonzero(without))
        if keyless == columns.num_records:
            return self._keyless.partition(topic, columns, sizes, cluster)
        partitions = self._keyed.partition(topic, columns, sizes, cluster)
        partitions[without] = self._keyless.partition(topic, RecordColumns(keyless), sizes[without], cluster)
        return partitions

    def _without_key(self, columns: RecordColumns) -> NDArray[np.bool_] | None:
        """Returns a mask of the rows without a key, or None if every row has one."""
        lengths = columns.lengths("key")
        if lengths is None:
            return np.ones(columns.num_records, np.bool_)
        return lengths.rows < self._shortest if lengths.shortest < self._shortest else None


def _remainder(numbers: NDArray[np.uint32], divisor: int) -> Partitions:
    """Returns `numbers % divisor`. In numpy a division by one number is four times as fast as a remainder."""
    return (numbers - numbers // np.uint32(divisor) * np.uint32(divisor)).view(np.int32)
