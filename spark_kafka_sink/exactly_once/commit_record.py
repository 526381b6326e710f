"""What the commit log says of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_kafka_sink.producer.transactions.handle import TransactionHandle


class State(StrEnum):
    """prepared: its transactions will be committed, by whoever comes. complete: all are. aborted: all are proved aborted, it is
    to be written again. closed: there was none yet, and what was written for the first is aborted on request. replay: some are
    aborted; those may be written again, by tasks whose rows are proved the same."""

    PREPARED = "prepared"
    COMPLETE = "complete"
    ABORTED = "aborted"
    CLOSED = "closed"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """One task's share of a batch. It pickles.

    spark_partition: the task's, -1 where that is not known. checksum: of its rows, whatever their Arrow batches were.
    """

    handle: TransactionHandle
    spark_partition: int
    checksum: int


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A query's, or a batch job's, last word. query_id: Spark's id of the query, or the job's own.

    record_id: random, another one for each record that is written. rows: of all transactions.
    committed: transactional ids that were committed before this record and need no other end: those that a replay left in place.
    aborted: those that were proved aborted, where the state is replay, or complete with a loss that somebody accepted; and those
    that somebody wants aborted, which were never prepared: a commit() of one of them must stop.
    checkpoint: where the query has its checkpoint, as it was given; "" where that is not known.
    """

    query_id: str
    batch: int
    state: State
    record_id: str
    rows: int
    transactions: tuple[PreparedTransaction, ...] = ()
    committed: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    checkpoint: str = ""

    @property
    def handles(self) -> tuple[TransactionHandle, ...]:
        return tuple(each.handle for each in self.transactions)

    @property
    def aborted_handles(self) -> tuple[TransactionHandle, ...]:
        return tuple(each for each in self.handles if each.transactional_id in self.aborted)

    @property
    def to_commit(self) -> tuple[TransactionHandle, ...]:
        """What this record, while it is prepared, asks whoever comes to commit."""
        return tuple(each for each in self.handles if each.transactional_id not in self.committed)
