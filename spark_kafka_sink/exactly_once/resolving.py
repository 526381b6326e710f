"""Decides what becomes of transactions that no commit() will end, for people and for failed batch jobs. Pure.

The steps are those of a commit (rules.py), and are carried out in the same way: after a fenced or unknown write it starts over
with `view.begun()`. It ends with Done, Refused, or with the Write of `resolve` in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.exactly_once.rules import Commit, Done, Look, Read, Stop, View, Write, key, roll_forward


class Resolution(Enum):
    """How to resolve a batch that is prepared, once everything is committed that can be.

    RECOVER: change nothing else.
    ACCEPT_LOSS: the batch is complete without what is not committed.
    REPLAY: the query's next run writes again what is aborted, if its rows are proved the same.
    """

    RECOVER = "recover"
    ACCEPT_LOSS = "accept-loss"
    REPLAY = "replay"


class Refusal(Enum):
    """Why nothing is done."""

    NO_RECORD = "the commit log has no record of it"
    MOVED_ON = "the commit log is at another batch"
    COMPLETE = "the batch is complete"
    ABORTED = "nothing of the batch is visible, and the next run writes it again"
    CLOSED = "nothing is prepared"
    TO_BE_REPLAYED = "the next run writes the lost rows again"
    UNRESOLVED = "some of its transactions are not committed: --accept-loss or --replay"
    UNKNOWN = "it is not proved that what is not committed was aborted, so writing it again could double rows: --accept-loss"
    PARTITION_UNKNOWN = "it is not known which of Spark's partitions the transactions are of: --accept-loss"
    PREPARED = "the batch is prepared, and is to be committed: recover"


@dataclass(frozen=True, slots=True)
class Refused:
    """An end without a change. transactional_ids: what is not committed, for UNRESOLVED, UNKNOWN and PARTITION_UNKNOWN."""

    refusal: Refusal
    transactional_ids: tuple[str, ...] = ()


NOTHING_TO_RESOLVE = {
    State.COMPLETE: Refusal.COMPLETE,
    State.ABORTED: Refusal.ABORTED,
    State.CLOSED: Refusal.CLOSED,
    State.REPLAY: Refusal.TO_BE_REPLAYED,
}


def resolve(view: View, resolution: Resolution) -> Read | Commit | Write | Refused:
    """Returns the next step towards an end of the last record's batch.

    Everything is committed that can be; `resolution` is for the rest. So where all are committed, or all are aborted, the record
    says that, whatever `resolution` is.
    The view is of that batch, with no transactions of its own.
    """
    if not view.read:
        return Read()
    last = view.last
    if last is None:
        return Refused(Refusal.NO_RECORD)
    if last.batch != view.batch:
        return Refused(Refusal.MOVED_ON)
    if last.state is State.REPLAY and resolution is Resolution.ACCEPT_LOSS:
        return Write(State.COMPLETE, last.transactions, last.rows, last.committed, last.aborted)
    if last.state is not State.PREPARED:
        return Refused(NOTHING_TO_RESOLVE[last.state])
    step = roll_forward(view, last)
    return _unresolved(view, last, resolution) if isinstance(step, Stop) else step


def _unresolved(view: View, last: CommitRecord, resolution: Resolution) -> Write | Refused:
    """Not all are committed, not all aborted, and the record is still the last."""
    outcomes = {each: (view.outcomes or {}).get(each, Outcome.UNKNOWN) for each in (h.transactional_id for h in last.to_commit)}
    missing = tuple(each for each, outcome in outcomes.items() if outcome is not Outcome.COMMITTED)
    committed = (*last.committed, *(each for each in outcomes if each not in missing))
    if resolution is Resolution.RECOVER:
        return Refused(Refusal.UNRESOLVED, missing)
    if resolution is Resolution.ACCEPT_LOSS:
        return Write(State.COMPLETE, last.transactions, last.rows, committed, missing)
    if any(outcomes[each] is Outcome.UNKNOWN for each in missing):
        return Refused(Refusal.UNKNOWN, missing)
    if any(each.spark_partition < 0 for each in last.transactions):
        return Refused(Refusal.PARTITION_UNKNOWN, missing)
    return Write(State.REPLAY, last.transactions, last.rows, committed, missing)


def batch_to_abort(last: CommitRecord | None) -> int:
    """Returns the batch whose record lists the aborted transactions: the last one's, which otherwise stays as it is."""
    return 0 if last is None else last.batch


def abort(view: View) -> Read | Look | Write | Done | Refused:
    """Returns the next step towards aborting all open transactions of a failed batch job, or of a query that does not run.

    They are in the log before any is aborted, so that a commit() that still runs does not prepare one of them: it stops. The view
    is of `batch_to_abort`; for a job of batch 0, with the transactions that its tasks told of.
    """
    if not view.read:
        return Read()
    last = view.last
    if last is not None and last.state is State.PREPARED:
        return Refused(Refusal.PREPARED)
    if last is not None and last.state is State.REPLAY:
        return Refused(Refusal.TO_BE_REPLAYED)
    if last is not None and last.state is State.COMPLETE and view.own:
        return Refused(Refusal.COMPLETE)
    if batch_to_abort(last) != view.batch:
        return Refused(Refusal.MOVED_ON)
    if view.listed is None:
        return Look()
    own = {key(each.handle) for each in view.own}
    found = (*view.own, *(PreparedTransaction(each, -1, 0) for each in view.listed if key(each) not in own))
    logged = set() if last is None else {key(each) for each in last.handles}
    new = tuple(each for each in found if key(each.handle) not in logged)
    if not new:
        return Done(tuple(each.handle for each in found))
    # What the log says of the last batch still holds, for a commit of it again.
    ids = tuple(each.handle.transactional_id for each in new)
    if last is None:
        return Write(State.CLOSED, new, 0, aborted=ids)
    return Write(last.state, (*last.transactions, *new), last.rows, last.committed, (*last.aborted, *ids))
