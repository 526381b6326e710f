"""An internal topic as its coordinator sees it: records appended while it runs, and read back when it starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from spark_kafka_sink.broker.log.producer_state import VerificationGuard

KeyValue: TypeAlias = tuple[bytes, bytes | None]
"""A null value is a tombstone: the key is gone."""


@dataclass(frozen=True, slots=True)
class ReplayedRecord:
    """`producer_id` is -1 outside transactions; else the record counts once a ReplayedMarker says that it was committed."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class ReplayedMarker:
    """The end of a producer's transaction in a partition."""

    partition: int
    producer_id: int
    committed: bool


Replayed: TypeAlias = ReplayedRecord | ReplayedMarker


class CoordinatorLog(Protocol):
    """From any thread; a partition's records are in the order of the appends, so who needs an order holds a lock of his own."""

    topic: str

    def partition_for(self, key: str) -> int:
        """Java's: `Utils.abs(key.hashCode()) % partitions`."""
        ...

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        guard: VerificationGuard | None = None,
    ) -> int:
        """One batch, durable as the broker's logs are; its first offset. With a producer id it is part of that one's transaction,
        and `guard` lets its first records in.

        Raises ApiException as an append of a client does, such as KAFKA_STORAGE_ERROR for a full disk.
        """
        ...

    def replay(self) -> Iterator[Replayed]:
        """All that is in the topic, each partition in its order."""
        ...
