"""One record as a user hands it over, and what is known of it once it was acked (Java's classes of the same names)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.errors import KafkaSinkError

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """One record, as interceptors get it. Java's ProducerRecord.

    topic: its name. value, key: what their serializers take. partition: None lets the partitioner decide.
    timestamp: ms since the epoch, None: now. headers: (key, value) pairs in their order, a value may be None.
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


class RecordMetadata(NamedTuple):
    """The place where a record was stored. Java's RecordMetadata.

    topic: its name. partition, offset: -1 where that is not known (acks=0; a duplicate; a record that failed).
    timestamp: ms since the epoch, the broker's where the topic is set to LogAppendTime; -1 for a record that failed.
    serialized_key_size, serialized_value_size: bytes; -1 for null.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int

    @property
    def has_offset(self) -> bool:
        """Whether the broker said where it stored the record."""
        return self.offset >= 0


OnDelivery = Callable[[RecordMetadata, KafkaSinkError | None], object]
"""A callback of Producer.send: called once with where the record is, or why it failed."""


def not_stored(topic: str, partition: int = -1, key_size: int = -1, value_size: int = -1) -> RecordMetadata:
    """The metadata of a record that was not stored."""
    return RecordMetadata(topic, partition, -1, -1, key_size, value_size)


class PartitionInfo(NamedTuple):
    """A partition as metadata has it. Java's PartitionInfo.

    topic: its name. partition: its number, from 0. leader: the broker to send to, None while there is none.
    """

    topic: str
    partition: int
    leader: Node | None
