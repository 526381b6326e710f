"""The batch that a task belongs to, the task's transaction, and the time limit of batch jobs."""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import BatchAbortedError
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction, TaskRows

_JOB: Final = "job-"
MAX_JOBS: Final = 64
_SLACK_MS: Final = 60_000


def is_job(query_id: str) -> bool:
    """Returns whether the id belongs to a batch job, not to a streaming query."""
    return query_id.startswith(_JOB)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch of a query, or the only batch of a batch job.

    Attributes:
        query_id: Spark's id of the query as stored in its checkpoint, or the id of a job.
        number: Spark's batch id.
        checkpoint: Checkpoint location of the query if known; tasks do not know it.
        name: Name of the query for its users; "" without one, and in tasks.
    """

    query_id: str
    number: int
    checkpoint: str = ""
    name: str = ""

    @property
    def is_job(self) -> bool:
        return is_job(self.query_id)

    @staticmethod
    def of_new_job() -> MicroBatch:
        """Returns the batch of a write that is not part of a query. Its id is random and unique."""
        return MicroBatch(f"{_JOB}{uuid.uuid4().hex}", 0)

    def __str__(self) -> str:
        return f"batch {self.number} of {self.query_id}"


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """The part of a batch written by a finished task.

    Attributes:
        transaction: An open transaction that commit() ends; None if no row was stored.
        rows: What Spark passed to the task; None if there were no rows.
    """

    batch: MicroBatch
    transaction: PreparedTransaction | None
    rows: TaskRows | None = None


def _now() -> float:
    return time.monotonic()


class FirstTransactions:
    """Remembers for each batch job when this process began its first transaction.

    The commit of a job fails if its first transaction has timed out before its last task ends.

    Neither the time when the job was planned nor the driver's clock can tell a task whether this has happened: earlier stages may
    take hours, tasks may wait for executors, and clocks differ. A Python worker only knows, by its own clock, when it began a
    transaction of the same job itself. Spark reuses workers for many tasks, so in a job that takes too long nearly all of them
    know.

    Micro-batches are not tracked: after an error they are repeated under the same number in the same worker.
    """

    def __init__(self, clock: Callable[[], float] = _now) -> None:
        """clock: returns monotonic seconds."""
        self._clock = clock
        self._begun: OrderedDict[MicroBatch, float] = OrderedDict()  # by job

    def prepared(self, batch: MicroBatch, begun: float) -> None:
        """Records that a task of this process has written its rows in a transaction whose first rows were sent at `begun`."""
        if batch.is_job:
            self._begun.setdefault(batch, begun)
            if len(self._begun) > MAX_JOBS:
                self._begun.popitem(last=False)

    def check(self, batch: MicroBatch, timeout_ms: int) -> None:
        """Raises BatchAbortedError if a transaction of the job has certainly timed out. timeout_ms: transaction.timeout.ms.

        The slack, a minute or a quarter of a short timeout, covers the time between sending the first row and its arrival at the
        broker, and an attempt whose result Spark discarded.
        """
        begun = self._begun.get(batch)
        if begun is None:
            return
        age_s = self._clock() - begun
        if age_s * 1000 <= timeout_ms + min(_SLACK_MS, timeout_ms // 4):
            return
        raise BatchAbortedError(
            f"{batch}: the job can no longer be committed: its first transaction in this Python worker began {age_s:,.0f} s"
            f" ago, and brokers abort transactions after kafka.transaction.timeout.ms ({timeout_ms / 1000:,.0f} s). Nothing that"
            " the job wrote is visible. Raise kafka.transaction.timeout.ms, and the brokers' transaction.max.timeout.ms, above"
            " the time that writing takes, or write fewer rows per job",
            query_id=batch.query_id,
            batch=batch.number,
        )


first_transactions = FirstTransactions()
"""The instance of this process."""
