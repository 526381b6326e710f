"""What coordinators say of transactions, and what that proves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """Of a transaction that was to be committed. unknown: nothing is proved, so it is never written again by itself."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """What DescribeTransactions answers of a transactional id that the coordinator knows.

    state: Kafka's name, as in "Ongoing". start_time_ms: since the epoch, on the broker's clock; -1 where nothing is open.
    """

    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[tuple[str, str], ...] = ()
