"""The option partitioner.class: which partitioner each name stands for."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import nearest
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.request_size import batch_limit
from spark_kafka_sink.producer.partitioners.built_in import BuiltInPartitioner, Queues
from spark_kafka_sink.producer.partitioners.by_key import (
    ByKey,
    Dividends,
    HashedKeys,
    fnv1a_absolute,
    fnv1a_positive,
    murmur2_positive,
)
from spark_kafka_sink.producer.partitioners.custom import OPTION, CustomPartitioner, custom_partitioner
from spark_kafka_sink.producer.partitioners.interface import ClosablePartitioner, PartitionColumnFirst, Partitioner
from spark_kafka_sink.producer.partitioners.key_hash import crc32
from spark_kafka_sink.producer.partitioners.keyless import RandomPartitioner, RoundRobinPartitioner, UniformStickyPartitioner
from spark_kafka_sink.producer.partitioners.new_batches import NewBatches


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that partitioners are made from."""

    config: ProducerConfig
    queues: Queues | None
    rng: random.Random

    @property
    def batch_size(self) -> int:
        """Bytes that a batch has at most, about."""
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
_ALIASES: Mapping[str, str] = {
    "sarama_hash": "sarama",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "sticky",
}
NAMES = (*_PARTITIONERS, *_ALIASES)


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
        make = _PARTITIONERS.get(_ALIASES.get(value, value))
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
