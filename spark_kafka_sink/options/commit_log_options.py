"""Settings of the commit log's topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_TOPIC: Final = "__spark_kafka_sink_commits"


@dataclass(frozen=True, slots=True)
class CommitLogSettings:
    """Name and creation settings of the topic.

    Attributes:
        topic: Any valid topic name.
        partitions: Partition count of a new topic, and the number of partitions that queries are distributed over. Never change
            it for a log in use. Adding partitions to the topic has no effect.
        replication_factor: Replication factor of a new topic; None for 3, or the number of brokers if that is lower.
        transaction_timeout_ms: How long a driver that died can block readers of the log, in ms.
    """

    topic: str = DEFAULT_TOPIC
    partitions: int = 8
    replication_factor: int | None = None
    transaction_timeout_ms: int = 30_000
