"""The settings of the commit log's topic.

They are a module of their own because each Python process that Spark starts for a query reads them, and importing a client would
double what these processes import.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_TOPIC: Final = "__spark_kafka_sink_commits"


@dataclass(frozen=True, slots=True)
class CommitLogSettings:
    """Names the topic, and says how it is created.

    Attributes:
        topic: any legal name.
        partitions: of a new topic, and the number that queries are spread over, so never change it for a log in use. Adding
            partitions to the topic changes nothing.
        replication_factor: of a new topic; None for 3, or as many as there are brokers.
        transaction_timeout_ms: how long a driver that died can hold back readers of the log.
    """

    topic: str = DEFAULT_TOPIC
    partitions: int = 8
    replication_factor: int | None = None
    transaction_timeout_ms: int = 30_000
