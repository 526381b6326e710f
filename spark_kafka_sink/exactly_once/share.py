"""Which batch a task writes for, and what it has written of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction

_JOB = "job-"


def is_job(query_id: str) -> bool:
    """Whether it is a batch job's, and no streaming query's."""
    return query_id.startswith(_JOB)


@dataclass(frozen=True, slots=True)
class Batch:
    """query_id: of the query, as its checkpoint has it, or of a job, which has one batch only. number: Spark's batch id.
    checkpoint: where the query has it, as far as that is known; tasks do not."""

    query_id: str
    number: int
    checkpoint: str = ""

    @property
    def is_job(self) -> bool:
        return is_job(self.query_id)

    @staticmethod
    def of_new_job() -> Batch:
        """For a write that is no part of a query; nobody else ever has its id."""
        return Batch(f"{_JOB}{uuid.uuid4().hex}", 0)

    def __str__(self) -> str:
        return f"batch {self.number} of {self.query_id}"


@dataclass(frozen=True, slots=True)
class Share:
    """A finished task's part of a batch. transaction: open, for commit() to end; None for a task without rows."""

    batch: Batch
    transaction: PreparedTransaction | None
