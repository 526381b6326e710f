"""Sums over the committed micro-batches of a query. Exporters and views read them, also without PySpark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from math import isnan
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.exactly_once.micro_batch import is_job

if TYPE_CHECKING:
    from spark_kafka_sink.spark.batch_report import BatchReport

BATCH_JOBS: Final = "batch-jobs"
"""Stands for all batch jobs together where a query's id stands, because each job has an id of its own."""

UNKNOWN: Final = "unknown"
"""Stands for a query whose id is not known: none of its tasks has finished, and its checkpoint is not on the driver's disk."""

MOST_TOTALS: Final = 200
"""Of queries, those that committed last."""

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


class TotalsByQuery:
    """The sums of the queries that committed last. Batch jobs are one query, because each has an id of its own.

    Threads: the caller holds a lock.
    """

    def __init__(self) -> None:
        # With the last micro-batch by sink. The query that committed last is at the end.
        self._found: dict[str, tuple[QueryTotals, dict[str, QueryTotals]]] = {}

    def add(self, batch: BatchReport) -> None:
        """Adds a committed micro-batch or batch job."""
        name = BATCH_JOBS if is_job(batch.query_id) else batch.query_id
        report, acks = batch.report, tuple(map(batch.ack_latency_ms, QUANTILES))
        before, parts = self._found.pop(name, (QueryTotals(), {}))
        # Several sinks of one foreachBatch function report the same micro-batch, and so does one that is written again.
        is_another = name in ("", BATCH_JOBS) or not before.batches or before.last_batch != batch.batch
        one = QueryTotals(
            before.batches + is_another,
            before.records + report.records,
            batch.began + batch.seconds,
            batch.seconds,
            report.records,
            acks,
            batch.batch,
            report.bytes,
            report.commit_ms,
            before.retries + report.retries,
        )
        others = {} if is_another else {sink: part for sink, part in parts.items() if sink != batch.sink}
        self._found[name] = reduce(QueryTotals.beside, others.values(), one), others | {batch.sink: one}
        if len(self._found) > MOST_TOTALS:
            del self._found[next(iter(self._found))]

    def all(self) -> dict[str, QueryTotals]:
        """Returns the sums by query id."""
        return {name: totals for name, (totals, _) in self._found.items()}
