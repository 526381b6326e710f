"""The option partitioner.class: which partitioner each name stands for, and those that use the hash of the key."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import nearest
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.request_size import batch_limit
from spark_kafka_sink.producer.partitioners.interface import (
    OPTION,
    ClosablePartitioner,
    CustomPartitioner,
    NewBatches,
    PartitionColumnFirst,
    Partitioner,
    Partitions,
    Queues,
    Sizes,
    custom_partitioner,
    optional_method,
    partition_count,
)
from spark_kafka_sink.producer.partitioners.key_hash import crc32, fnv1a, murmur2, to_positive
from spark_kafka_sink.producer.partitioners.keyless import (
    BuiltInPartitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    UniformStickyPartitioner,
)
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
        lengths = columns.lengths("key")
        if lengths is None:
            return np.ones(columns.num_records, np.bool_)
        return lengths.rows < self._shortest if lengths.shortest < self._shortest else None


def _remainder(numbers: NDArray[np.uint32], divisor: int) -> Partitions:
    """Returns `numbers % divisor`. In numpy a division by one number is four times as fast as a remainder."""
    return (numbers - numbers // np.uint32(divisor) * np.uint32(divisor)).view(np.int32)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that partitioners are made from."""

    config: ProducerConfig
    queues: Queues | None
    rng: random.Random

    @property
    def batch_size(self) -> int:
        return batch_limit(self.config)

    def built_in(self) -> BuiltInPartitioner:
        adaptive = self.config.partitioner_adaptive
        return BuiltInPartitioner(self.batch_size, self.rng, queues=self.queues, adaptive=adaptive)

    def sticky(self) -> UniformStickyPartitioner:
        return UniformStickyPartitioner(self.rng)

    def random(self) -> RandomPartitioner:
        return RandomPartitioner(self.rng.getrandbits(64))


Make = Callable[[Parts], Partitioner]


def _hashed(dividends: Dividends) -> Make:
    return lambda parts: HashedKeys(dividends)


def _hashed_or(dividends: Dividends, keyless: Make, *, empty_is_none: bool = False) -> Make:
    return lambda parts: ByKey(HashedKeys(dividends), keyless(parts), empty_is_none=empty_is_none)


# Rows without a key, which librdkafka keeps together for sticky.partitioning.linger.ms, stay together by bytes here.
_PARTITIONERS: Mapping[str, Make] = {
    # librdkafka's `partitioner`
    "random": lambda parts: ByKey(parts.random(), parts.built_in()),
    "consistent": _hashed(crc32),
    "consistent_random": _hashed_or(crc32, Parts.built_in, empty_is_none=True),
    "murmur2": _hashed(murmur2_positive),
    "murmur2_random": _hashed_or(murmur2_positive, Parts.built_in),
    "fnv1a": _hashed(fnv1a_absolute),
    "fnv1a_random": _hashed_or(fnv1a_absolute, Parts.built_in),
    # Sarama's
    "sarama": _hashed_or(fnv1a_absolute, Parts.random),
    "sarama_reference": _hashed_or(fnv1a_positive, Parts.random),
    # Java's
    "round_robin": lambda parts: RoundRobinPartitioner(),
    "sticky": Parts.sticky,
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": _hashed_or(murmur2_positive, Parts.sticky),
}
SYNONYMS: Mapping[str, str] = {
    "sarama_hash": "sarama",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "sticky",
}
NAMES = (*_PARTITIONERS, *SYNONYMS)


def partitioner_of(config: ProducerConfig, queues: Queues | None = None, rng: random.Random | None = None) -> ClosablePartitioner:
    """The partitioner that partitioner.class names; without it Java's: murmur2 of a key, or by bytes without one, to which
    alone partitioner.ignore.keys, partitioner.adaptive.partitioning.enable and partitioner.availability.timeout.ms apply.

    A row that names its partition goes there under each of them. queues: the accumulator, for choices by what waits already.
    OptionError for a name that stands for nothing, and for a class that is no partitioner or cannot be made.
    """
    parts = Parts(config, queues, rng or random.Random())
    chosen = _chosen(parts)
    first = PartitionColumnFirst(chosen, whole_rows=isinstance(chosen, CustomPartitioner))
    if queues is None or first.on_new_batch is None:
        return first
    return NewBatches(first, first.on_new_batch, queues, parts.batch_size)


def _chosen(parts: Parts) -> Partitioner:
    value = parts.config.partitioner_class
    if value is None:
        built_in = parts.built_in()
        return built_in if parts.config.partitioner_ignore_keys else ByKey(HashedKeys(murmur2_positive), built_in)
    if isinstance(value, str):
        make = _PARTITIONERS.get(SYNONYMS.get(value, value))
        if make is not None:
            return make(parts)
        _check_name(value)
    return custom_partitioner(value, parts.config)


def _check_name(name: str) -> None:
    """Raises OptionError for a name that is neither a partitioner nor a dotted name of a Python class."""
    if name.startswith("org.apache.kafka."):
        why = "this Java class has no equivalent here"
    elif "." not in name:
        why = f"unknown partitioner{nearest(name, NAMES)}"
    else:
        return
    short = ", ".join(known for known in NAMES if "." not in known)
    raise OptionError(
        f"option {OPTION}: {name}: {why}: omit the option for Java's default, or set it to one of {short},"
        " or to the dotted name of a Python class",
        option=OPTION,
    )
