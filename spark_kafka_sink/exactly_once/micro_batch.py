"""The batch that a task belongs to, the task's transaction with its id, and the time limit of batch jobs."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from spark_kafka_sink.errors import BatchAbortedError
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, TaskRows

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


# The transactional ids of a query or batch job, `prefix.query.token.slot`, and their assignment to tasks

NO_QUERY: Final = "00000000-0000-0000-0000-000000000000"
"""An id that no query has, to ask for rights on the ids of all queries."""

_LOG: Final = "log"
MAX_QUERIES: Final = 64
"""Number of queries and jobs that a worker remembers. A forgotten one gets a new token, so no id is ever used twice."""


@dataclass(frozen=True, slots=True)
class TransactionalIds:
    """The ids of one query or job.

    Attributes:
        prefix: transactional.id.prefix, on which ACLs are granted.
        query_id: Spark's id of the query, or the id of a job. It contains no dot.
        driver: Hexadecimal digits with which the tokens of one driver program's workers begin; "" means those of all.
    """

    prefix: str
    query_id: str
    driver: str = ""

    @property
    def start(self) -> str:
        """Returns the common prefix of all ids of the query."""
        return f"{self.prefix}.{self.query_id}."

    @property
    def commit_log(self) -> str:
        """Returns the id that writes this query's records to the commit log."""
        return self.start + _LOG

    def for_slot(self, token: str, slot: int) -> str:
        """Returns an id for a task of the Python worker with this hexadecimal token. slot: 0 for the first task of a batch."""
        return f"{self.start}{self.driver}{token}.{slot}"

    def owns(self, transactional_id: str) -> bool:
        """Returns whether the id belongs to a task of this query and driver, and is not the one of the commit log."""
        token_and_slot = transactional_id.removeprefix(self.start)
        is_of_driver = transactional_id.startswith(self.start + self.driver)
        return is_of_driver and re.fullmatch(r"[0-9a-f]+\.[0-9]+", token_and_slot) is not None


def foreign_prefix(prefix: str, record: CommitRecord) -> str | None:
    """Returns the prefix of a record's transactional ids if it differs from `prefix`, otherwise None.

    A claim on the log under `prefix` does not fence a driver with another prefix, so nothing may be written under it.
    """
    ids = TransactionalIds(prefix, record.query_id)
    foreign = (each.transactional_id for each in record.handles if not ids.owns(each.transactional_id))
    return next((each.rpartition(f".{record.query_id}.")[0] for each in foreign), None)


# Slots: ids that only this process uses, and that no two attempts of a batch share


@dataclass(slots=True)
class _Worker:
    """The state of this process for one query: its random token, and the last batch that used each slot.

    asked: the batch that took a slot last. taken: number of slots, counted from the first, that this batch cannot take.
    """

    token: str = field(default_factory=lambda: os.urandom(8).hex())
    batches: list[int] = field(default_factory=list)
    asked: int = -1
    taken: int = 0

    def take(self, batch: int) -> int:
        """Returns a slot whose last batch is over: Spark begins a batch only after the previous one is committed.

        Attempts of the same batch never share a slot, because either attempt's transaction may be the one that is committed.
        """
        if batch != self.asked:
            self.asked, self.taken = batch, 0
        # A slot that the batch could not take stays so. Looking at all again, 4,000 tasks of a worker took 1 s instead of 4 ms.
        while self.taken < len(self.batches) and self.batches[self.taken] >= batch:
            self.taken += 1
        self.batches[self.taken : self.taken + 1] = [batch]  # or a new slot
        return self.taken


class Slots:
    """Assigns transactional ids to the tasks of this process.

    Processes: pyspark.daemon forks workers, and a child must not reuse its parent's tokens. Threads: any thread may call.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._workers: OrderedDict[TransactionalIds, _Worker] = OrderedDict()

    def take(self, ids: TransactionalIds, batch: int) -> str:
        """Returns a transactional id for one attempt to write a part of the batch."""
        if self._pid != os.getpid():
            self._reset()  # forked without calling the hooks of register_at_fork
        with self._lock:
            worker = self._workers.setdefault(ids, _Worker())
            self._workers.move_to_end(ids)
            if len(self._workers) > MAX_QUERIES:
                self._workers.popitem(last=False)
            return ids.for_slot(worker.token, worker.take(batch))


slots = Slots()
"""The instance of this process."""
