"""How long transactions have been open, as far as the driver program knows. Pure.

A running task tells when its transaction began, each second (`live.py`). A finished one tells it once more, through a Spark
accumulator, because its transaction stays open until the batch is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, is_job
from spark_kafka_sink.spark.query_totals import BATCH_JOBS

MOST_QUERIES: Final = 1000
"""That are remembered: those whose transactions began last."""


class OpenTransaction(NamedTuple):
    """A transaction that a task has begun.

    Attributes:
        query_id: Spark's id of the query, or the id of a batch job.
        batch: The number of the micro-batch; 0 for a job.
        began: When its first rows were sent, in seconds since the epoch, by the task's clock.
        timeout_s: transaction.timeout.ms, in seconds. Brokers abort it when it is older.
    """

    query_id: str
    batch: int
    began: float
    timeout_s: float

    def has_timed_out(self, now: float) -> bool:
        """Returns whether brokers have aborted it. now: seconds since the epoch."""
        return now > self.began + self.timeout_s


Oldest = Mapping[str, OpenTransaction]
"""The oldest transaction of the last batch of each query, by the query's id."""


def merged(one: Oldest, other: Oldest) -> dict[str, OpenTransaction]:
    """Returns the oldest transactions of both. The last batch of a query replaces the one before, which was committed."""
    found = dict(one)
    for query, new in other.items():
        old = found.get(query)
        found[query] = new if old is None else _older(old, new)
    if len(found) > MOST_QUERIES:
        newest = sorted(found.values(), key=lambda each: each.began)[-MOST_QUERIES:]
        return {each.query_id: each for each in newest}
    return found


def _older(one: OpenTransaction, other: OpenTransaction) -> OpenTransaction:
    if one.batch != other.batch:
        return max(one, other, key=lambda each: each.batch)
    first, last = sorted((one, other), key=lambda each: each.began)
    # The batch was written again after its first transactions had timed out.
    return last if first.has_timed_out(last.began) else first


def transaction_ages(
    told: Oldest, running: Iterable[OpenTransaction], ended: Mapping[str, int], now: float
) -> dict[str, tuple[float, float]]:
    """Returns the age of the oldest open transaction of each query, and its time limit, both in seconds.

    The age is 0 if none is open. Queries without a transaction in that time are left out. All batch jobs are one query,
    `BATCH_JOBS`, with the transaction that is closest to its limit.

    Args:
        told: What finished tasks told.
        running: What running tasks told.
        ended: The last committed or aborted batch of each query.
        now: Seconds since the epoch.
    """
    all_told = merged(told, {})
    for each in running:
        all_told = merged(all_told, {each.query_id: each})
    found: dict[str, tuple[float, float]] = {}
    for query, each in all_told.items():
        if each.has_timed_out(now):
            continue
        is_open = each.batch > ended.get(query, -1)
        age = max(now - each.began, 0.0) if is_open else 0.0
        name = BATCH_JOBS if is_job(query) else query
        found[name] = max(found.get(name, (0.0, each.timeout_s)), (age, each.timeout_s), key=lambda one: one[0] / one[1])
    return found


def open_transaction(batch: MicroBatch, age_s: float, now: float, timeout_ms: int) -> OpenTransaction:
    """Returns the transaction of a task. age_s: seconds since its first rows were sent. now: seconds since the epoch."""
    return OpenTransaction(batch.query_id, batch.number, now - age_s, timeout_ms / 1000)
