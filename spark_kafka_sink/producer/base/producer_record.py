"""A record as users pass it, and its metadata after delivery (Java's classes of the same names)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.errors import KafkaSinkError

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """One record, as interceptors receive it. Java's ProducerRecord.

    Attributes:
        topic: name of the topic.
        value: value that the serializer accepts.
        key: likewise.
        partition: partition number; None lets the partitioner choose.
        timestamp: ms since the epoch; None is the current time.
        headers: (key, value) pairs in order; a value may be None.
    """

    topic: str
    value: Any = None
    key: Any = None
    _: KW_ONLY
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


class RecordMetadata(NamedTuple):
    """The location of a stored record. Java's RecordMetadata.

    Attributes:
        topic: name of the topic.
        partition: partition number; -1 if not known.
        offset: -1 if not known (acks=0, a duplicate, or a failed record).
        timestamp: ms since the epoch; the broker's time if the topic uses LogAppendTime; -1 for a failed record.
        serialized_key_size: bytes; -1 for null.
        serialized_value_size: likewise.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int

    @property
    def has_offset(self) -> bool:
        """Whether the broker reported the record's offset."""
        return self.offset >= 0


OnCompletion = Callable[[RecordMetadata, KafkaSinkError | None], object]
"""Callback of Producer.send, called once with the record's location or the error."""


def not_stored(topic: str, partition: int = -1, key_size: int = -1, value_size: int = -1) -> RecordMetadata:
    return RecordMetadata(topic, partition, -1, -1, key_size, value_size)


class PartitionInfo(NamedTuple):
    """One partition of a topic. Java's PartitionInfo.

    Attributes:
        topic: name of the topic.
        partition: number, from 0.
        leader: broker that accepts records; None if there is none.
    """

    topic: str
    partition: int
    leader: Node | None
