"""How long transactions have been open, as far as the driver program knows. Pure.

A running task tells when its transaction began, each second (`progress_sender.py`). A finished one tells it once more, through
a Spark accumulator, because its transaction stays open until the batch is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from spark_kafka_sink.exactly_once.micro_batch import is_job
from spark_kafka_sink.spark.query_totals import BATCH_JOBS

MOST_QUERIES: Final = 1000
"""That are remembered, with each sink of a query: those whose transactions began last."""


class OpenTransaction(NamedTuple):
    """A transaction that a task has begun.

    Attributes:
        owner: The query and its sink: see `owner`.
        batch: The number of the micro-batch; 0 for a job.
        began: When its first rows were sent, in seconds since the epoch, by the task's clock.
        timeout_s: transaction.timeout.ms, in seconds. Brokers abort it when it is older.
        writer: As of `Feed`, of a task that has finished.
    """

    owner: str
    batch: int
    began: float
    timeout_s: float
    writer: str = ""

    @staticmethod
    def of(values: Sequence[Any]) -> OpenTransaction:
        """Returns what JSON made a list. Raises ValueError or TypeError for other values."""
        owner, batch, began, timeout_s, writer = values
        return OpenTransaction(str(owner), int(batch), float(began), float(timeout_s), str(writer))

    @property
    def query_id(self) -> str:
        """Spark's id of the query, or the id of a batch job."""
        return self.owner.partition(" ")[0]

    def has_timed_out(self, now: float) -> bool:
        """Returns whether brokers have aborted it. now: seconds since the epoch."""
        return now > self.began + self.timeout_s

    def has_ended(self, ended: Mapping[str, int]) -> bool:
        """Returns whether its batch is over. ended: as of `transaction_ages`."""
        return self.batch <= max(ended.get(self.owner, -1), ended.get(self.query_id, -1))


def owner(query_id: str, sink: str) -> str:
    """Returns what tells apart the transactions of several sinks of a query, as one foreachBatch function may call them.

    Each commits by itself, so the commit of one says nothing about the others.

    Args:
        query_id: The query's id, which has no space.
        sink: Names the sink within the query; empty if there is only one.
    """
    return f"{query_id} {sink}" if sink else query_id


Oldest = Mapping[str, OpenTransaction]
"""The oldest transaction of the last batch of each owner. Keys of what is merged do not matter."""


def merged(one: Oldest, other: Oldest) -> dict[str, OpenTransaction]:
    """Returns the oldest transactions of both. The last batch of an owner replaces the one before, which was committed."""
    return _merged((*one.values(), *other.values()))


def _merged(transactions: Iterable[OpenTransaction]) -> dict[str, OpenTransaction]:
    found: dict[str, OpenTransaction] = {}
    for new in transactions:
        old = found.get(new.owner)
        found[new.owner] = new if old is None else _older(old, new)
    if len(found) > MOST_QUERIES:
        newest = sorted(found.values(), key=lambda each: each.began)[-MOST_QUERIES:]
        return {each.owner: each for each in newest}
    return found


def _older(one: OpenTransaction, other: OpenTransaction) -> OpenTransaction:
    if one.batch != other.batch:
        return one if one.batch > other.batch else other
    first, last = (one, other) if one.began <= other.began else (other, one)
    # The batch was written again after its first transactions had timed out.
    return last if first.has_timed_out(last.began) else first


def transaction_ages(
    told: Oldest, running: Iterable[OpenTransaction], ended: Mapping[str, int], now: float
) -> dict[str, tuple[float, float]]:
    """Returns the age of the oldest open transaction of each query, and its time limit, both in seconds.

    The age is 0 if none is open. Queries without a transaction in that time are left out. Of several sinks of a query, and of all
    batch jobs, which are one query, `BATCH_JOBS`, the transaction that is closest to its limit counts.

    Args:
        told: What finished tasks told.
        running: What running tasks told.
        ended: The last committed or aborted batch of each owner. The id of a query stands for all of its sinks.
        now: Seconds since the epoch.
    """
    found: dict[str, tuple[float, float]] = {}
    for each in _merged((*told.values(), *running)).values():
        if each.has_timed_out(now):
            continue
        query = each.query_id
        age = 0.0 if each.has_ended(ended) else max(now - each.began, 0.0)
        name = BATCH_JOBS if is_job(query) else query
        found[name] = max(found.get(name, (0.0, each.timeout_s)), (age, each.timeout_s), key=lambda one: one[0] / one[1])
    return found
