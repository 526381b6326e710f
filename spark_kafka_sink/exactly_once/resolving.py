"""What a person or a batch job does with transactions that no commit() will end, in a commit's steps (rules.py). Pure.

Carried out in the same way: what is fenced, or of unknown outcome, starts again with `view.begun()`. It ends with Done, Refused,
or the Write of `resolve` being in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State
from spark_kafka_sink.exactly_once.evidence import Outcome
from spark_kafka_sink.exactly_once.rules import Commit, Done, Look, Read, Stop, View, Write, key, roll_forward


class Means(Enum):
    """recover: commit what can be, change nothing else. accept_loss: the batch is complete without what is not committed.
    replay: the query's next run writes again what is aborted, if its rows are proved the same."""

    RECOVER = "recover"
    ACCEPT_LOSS = "accept-loss"
    REPLAY = "replay"


class Refusal(Enum):
    """Why nothing is done."""

    NO_RECORD = "the commit log has no record of it"
    MOVED_ON = "the commit log is at another batch"
    COMPLETE = "the batch is complete"
    ABORTED = "nothing of the batch is visible, and the next run writes it again"
    CLOSED = "the run was aborted, and the next run writes the batch again"
    TO_BE_REPLAYED = "the next run writes the lost rows again"
    UNRESOLVED = "some of its transactions are not committed: --accept-loss or --replay"
    UNKNOWN = "it is not proved that what is not committed was aborted, so writing it again could double rows: --accept-loss"
    PARTITION_UNKNOWN = "it is not known which of Spark's partitions the transactions are of: --accept-loss"
    PREPARED = "the batch is prepared, and is to be committed: recover"


@dataclass(frozen=True, slots=True)
class Refused:
    """transactional_ids: of what is not committed, with UNRESOLVED, UNKNOWN and PARTITION_UNKNOWN."""

    refusal: Refusal
    transactional_ids: tuple[str, ...] = ()


NOTHING_TO_RESOLVE = {
    State.COMPLETE: Refusal.COMPLETE,
    State.ABORTED: Refusal.ABORTED,
    State.CLOSED: Refusal.CLOSED,
    State.REPLAY: Refusal.TO_BE_REPLAYED,
}


def resolve(view: View, means: Means) -> Read | Commit | Write | Refused:
    """The next step towards an end of the last record's batch. view: of that batch, with no transactions of its own.

    Everything is committed that can be; `means` is for the rest. So all committed: complete, all aborted: aborted, whatever
    `means` is.
    """
    if not view.read:
        return Read()
    last = view.last
    if last is None:
        return Refused(Refusal.NO_RECORD)
    if last.batch != view.batch:
        return Refused(Refusal.MOVED_ON)
    if last.state is State.REPLAY and means is Means.ACCEPT_LOSS:
        return Write(State.COMPLETE, last.transactions, last.rows, last.committed, last.aborted)
    if last.state is not State.PREPARED:
        return Refused(NOTHING_TO_RESOLVE[last.state])
    step = roll_forward(view, last)
    return _unresolved(view, last, means) if isinstance(step, Stop) else step


def _unresolved(view: View, last: CommitRecord, means: Means) -> Write | Refused:
    """Not all are committed, not all aborted, and the record is still the last."""
    outcomes = {each: (view.outcomes or {}).get(each, Outcome.UNKNOWN) for each in (h.transactional_id for h in last.to_commit)}
    missing = tuple(each for each, outcome in outcomes.items() if outcome is not Outcome.COMMITTED)
    committed = (*last.committed, *(each for each in outcomes if each not in missing))
    if means is Means.RECOVER:
        return Refused(Refusal.UNRESOLVED, missing)
    if means is Means.ACCEPT_LOSS:
        return Write(State.COMPLETE, last.transactions, last.rows, committed, missing)
    if any(outcomes[each] is Outcome.UNKNOWN for each in missing):
        return Refused(Refusal.UNKNOWN, missing)
    if any(each.spark_partition < 0 for each in last.transactions):
        return Refused(Refusal.PARTITION_UNKNOWN, missing)
    return Write(State.REPLAY, last.transactions, last.rows, committed, missing)


def batch_to_abort(last: CommitRecord | None) -> int:
    """The only one whose transactions may be open for good: those of an earlier one are ended by the next commit."""
    if last is None:
        return 0
    return last.batch + 1 if last.state is State.COMPLETE else last.batch


def abort(view: View) -> Read | Look | Write | Done | Refused:
    """The next step towards aborting all open transactions of a failed batch job, or of a query that does not run.

    view: of `batch_to_abort`, for a job of batch 0 with the transactions that its tasks told of. `closed` is written with them
    before any is aborted, so that a commit() that still runs does not prepare one of them: it stops.
    """
    if not view.read:
        return Read()
    refusal = _why_not_to_abort(view)
    if refusal is not None:
        return Refused(refusal)
    if view.listed is None:
        return Look()
    closed = view.last.transactions if view.last is not None and view.last.state is State.CLOSED else ()
    own = {key(each.handle) for each in view.own}
    found = (*view.own, *(PreparedTransaction(each, -1, 0) for each in view.listed if key(each) not in own))
    known = {key(each.handle) for each in closed}
    new = tuple(each for each in found if key(each.handle) not in known)
    if not new:
        return Done(tuple(each.handle for each in found))
    transactions = (*closed, *new)
    return Write(State.CLOSED, transactions, sum(each.handle.records for each in transactions))


def _why_not_to_abort(view: View) -> Refusal | None:
    last = view.last
    if last is not None and last.state is State.PREPARED:
        return Refusal.PREPARED
    if last is not None and last.state is State.REPLAY:
        return Refusal.TO_BE_REPLAYED
    if last is not None and last.batch == view.batch and last.state is State.COMPLETE:
        return Refusal.COMPLETE
    return None if batch_to_abort(last) == view.batch else Refusal.MOVED_ON
