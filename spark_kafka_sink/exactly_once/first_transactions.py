"""The age of a batch job, as a Python worker knows it: when it began its first transaction that waits for the commit."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from spark_kafka_sink.errors import BatchAbortedError
from spark_kafka_sink.exactly_once.share import Batch

MOST_JOBS: Final = 64
_SLACK_MS: Final = 60_000


def _now() -> float:
    return time.monotonic()


class FirstTransactions:
    """Knows of each batch job when this process began its first transaction.

    A job of many tasks writes for as long as it takes, and its commit fails if the first transaction has timed out meanwhile.

    Neither the time when the job was planned nor the driver's clock can tell a task whether it has: the stages before may take
    hours, tasks may wait for executors, and clocks differ. What a Python worker knows is when it began a transaction of the same
    job itself, by its own clock. Spark keeps workers from task to task, so in a job that takes too long nearly all of them know.

    Micro-batches do not count: they come again under the same number, after an error, in the same worker.
    """

    def __init__(self, clock: Callable[[], float] = _now) -> None:
        """clock: in seconds, monotonic."""
        self._clock = clock
        self._begun: OrderedDict[Batch, float] = OrderedDict()  # by job

    def prepared(self, batch: Batch, begun: float) -> None:
        """Notes that a task of this process has written its rows, in a transaction whose first rows it sent at `begun`."""
        if batch.is_job:
            self._begun.setdefault(batch, begun)
            if len(self._begun) > MOST_JOBS:
                self._begun.popitem(last=False)

    def check(self, batch: Batch, timeout_ms: int) -> None:
        """Raises BatchAbortedError when a transaction of the job has certainly timed out. timeout_ms: transaction.timeout.ms.

        The slack, a minute or a quarter of a short time-out, is for what lies between the first row sent and the first one at the
        broker, and for an attempt that Spark did not take in the end.
        """
        begun = self._begun.get(batch)
        if begun is None:
            return
        age_s = self._clock() - begun
        if age_s * 1000 <= timeout_ms + min(_SLACK_MS, timeout_ms // 4):
            return
        raise BatchAbortedError(
            f"{batch}: the job cannot be committed any more: its first transaction in this Python worker began {age_s:,.0f} s"
            f" ago, and brokers abort transactions after kafka.transaction.timeout.ms ({timeout_ms / 1000:,.0f} s). Nothing that"
            " the job wrote is visible. Raise kafka.transaction.timeout.ms, and the brokers' transaction.max.timeout.ms, above"
            " the time that writing takes, or write fewer rows in each job",
            query_id=batch.query_id,
            batch=batch.number,
        )


first_transactions = FirstTransactions()
"""The one of this process."""
