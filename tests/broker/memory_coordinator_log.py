"""The log of a coordinator in memory, for histories in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.metadata_image import partition_for
from spark_kafka_sink.broker.coordinator_log import KeyValue, Replayed, ReplayedMarker, ReplayedRecord
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.protocol.error_codes import ErrorCode

PARTITIONS = 4


class MemoryCoordinatorLog:
    """`refusals`: codes that the next appends are refused with."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.items: list[Replayed] = []
        self.refusals: list[ErrorCode] = []

    @property
    def records(self) -> list[ReplayedRecord]:
        return [item for item in self.items if isinstance(item, ReplayedRecord)]

    def partition_for(self, key: str) -> int:
        return partition_for(key, PARTITIONS)

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        guard: VerificationGuard | None = None,
    ) -> int:
        if self.refusals:
            raise ApiException(self.refusals.pop(0))
        first = len(self.items)
        for offset, (key, value) in enumerate(records, first):
            self.items.append(ReplayedRecord(partition, offset, key, value, producer_id))
        return first

    def mark(self, partition: int, producer_id: int, *, committed: bool) -> None:
        self.items.append(ReplayedMarker(partition, producer_id, committed))

    def replay(self) -> Iterator[Replayed]:
        yield from list(self.items)
