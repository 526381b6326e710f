"""Which topic is the commit log, and how it is made. A module of its own for who only reads options: what asks a cluster doubles
what they import, in each of the Python processes that Spark starts for a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_TOPIC: Final = "__spark_kafka_sink_commits"


@dataclass(frozen=True, slots=True)
class CommitLogSettings:
    """topic: any legal name. partitions: of a new topic; also what queries are spread over, so never change it for a log that is
    in use (adding partitions to the topic changes nothing). replication_factor: of a new topic; None: 3, or as many as there are
    brokers. transaction_timeout_ms: how long a driver that died can hold back readers of the log.
    """

    topic: str = DEFAULT_TOPIC
    partitions: int = 8
    replication_factor: int | None = None
    transaction_timeout_ms: int = 30_000
