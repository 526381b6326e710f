"""The batches of one topic-partition that wait to be sent."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
    from spark_kafka_sink.producer.accumulator.sequences import PartitionSequences


class PartitionQueue:
    """Retries first, in the order of their numbers, then the batches that were never sent, the newest last.

    Guarded by the accumulator's lock, but for `sequences`, which the sender's thread owns.
    """

    __slots__ = (
        "back_off_until_ms",
        "backing_off",
        "batches",
        "leader",
        "muted",
        "open",
        "partition",
        "retries",
        "sequences",
        "topic",
    )

    def __init__(self, topic: str, partition: int, leader: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.leader = leader
        self.retries: list[SealedBatch] = []
        self.batches: deque[OpenBatch] = deque()
        self.open: OpenBatch | None = None  # the last of `batches` while records may still be added to it
        self.muted = False  # a request is in flight and order must be kept without sequence numbers
        self.backing_off = False
        self.back_off_until_ms = 0
        self.sequences: PartitionSequences | None = None

    def add_retry(self, batch: SealedBatch) -> None:
        """Keep the order of the numbers: answers of several brokers may come back in any order."""
        position = 0
        while position < len(self.retries) and self.retries[position].first_record < batch.first_record:
            position += 1
        self.retries.insert(position, batch)

    def head(self) -> OpenBatch | SealedBatch | None:
        """What is next in line."""
        return self.retries[0] if self.retries else self.batches[0] if self.batches else None

    def clear(self) -> None:
        self.retries.clear()
        self.batches.clear()
        self.open = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
