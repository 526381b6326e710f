"""Sums over the committed micro-batches of a query. Exporters and views read them, also without PySpark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan
from typing import Final

BATCH_JOBS: Final = "batch-jobs"
"""Stands for all batch jobs together where a query's id stands, because each job has an id of its own."""

UNKNOWN: Final = "unknown"
"""Stands for a query whose id is not known: none of its tasks has finished, and its checkpoint is not on the driver's disk."""

NO_QUERIES: Final = frozenset({BATCH_JOBS, UNKNOWN})

QUANTILES: Final = (0.5, 0.95, 0.99)
"""Of the times of acknowledgement that are kept."""


@dataclass(frozen=True, slots=True)
class QueryTotals:
    """Sums over all committed micro-batches of a query, and its last one.

    Attributes:
        batches: Number of micro-batches.
        records: Their acknowledged records.
        last_s: When the last one was committed, in seconds since the epoch.
        seconds: Its duration.
        last_records: Its records, of all sinks that have committed it so far. So are the other numbers.
        last_ack_ms: The times within which half, 95 % and 99 % of its record batches were acknowledged, rounded up to a power of
            2; NaN if none was.
        last_batch: Its number.
        last_bytes: Its bytes before compression.
        last_commit_ms: The time of its commit in ms, under exactly-once.
        retries: Record batches of all micro-batches that were sent again.
    """

    batches: int = 0
    records: int = 0
    last_s: float = 0.0
    seconds: float = 0.0
    last_records: int = 0
    last_ack_ms: tuple[float, ...] = ()
    last_batch: int = 0
    last_bytes: int = 0
    last_commit_ms: int = 0
    retries: int = 0

    def added(self, other: QueryTotals) -> QueryTotals:
        """Returns the sums of both, with the last micro-batch of the one that committed later, or else of `other`."""
        last = max(other, self, key=lambda one: one.last_s)
        return replace(
            last,
            batches=self.batches + other.batches,
            records=self.records + other.records,
            retries=self.retries + other.retries,
        )

    def beside(self, other: QueryTotals) -> QueryTotals:
        """Returns the last micro-batch as two sinks of one foreachBatch function have written it."""
        last_s = max(self.last_s, other.last_s)
        acks = zip(self.last_ack_ms, other.last_ack_ms, strict=True)
        return replace(
            self,
            last_s=last_s,
            seconds=last_s - min(self.last_s - self.seconds, other.last_s - other.seconds),
            last_records=self.last_records + other.last_records,
            last_ack_ms=tuple(one if isnan(two) or one > two else two for one, two in acks),
            last_bytes=self.last_bytes + other.last_bytes,
            last_commit_ms=self.last_commit_ms + other.last_commit_ms,
        )
