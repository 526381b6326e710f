"""Decides the fate of transactions that no commit() will end, for operators and for failed batch jobs. Pure.

The steps are those of a commit (commit_rules.py), carried out in the same way: after a fenced or unknown write they start over
with `view.begun()`. They end with Done, Refused, or with the Write of `resolve` in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State, with_rows
from spark_kafka_sink.exactly_once.commit_rules import (
    Commit,
    Done,
    Look,
    Read,
    Stop,
    View,
    Write,
    asked_for,
    key,
    rewritten,
    roll_forward,
)
from spark_kafka_sink.exactly_once.proof import Outcome, Proof, proof_of
from spark_kafka_sink.producer.transactions.handle import TransactionHandle


class Resolution(Enum):
    """How to resolve a prepared batch after every transaction that can be committed is committed.

    RECOVER: change nothing else.
    ACCEPT_LOSS: complete the batch without the transactions that are not committed.
    REPLAY: the query's next run writes the aborted rows again, if they are proved to be the same.
    """

    RECOVER = "recover"
    ACCEPT_LOSS = "accept-loss"
    REPLAY = "replay"


class Refusal(Enum):
    """The reason why nothing is done."""

    NO_RECORD = "the commit log has no record of it"
    MOVED_ON = "the commit log is at another batch"
    COMPLETE = "the batch is complete"
    ABORTED = "nothing of the batch is visible, and the next run writes it again"
    CLOSED = "nothing is prepared"
    TO_BE_REPLAYED = "the next run writes the lost rows again"
    UNRESOLVED = "some of its transactions are not committed: --accept-loss or --replay"
    UNKNOWN = "not all uncommitted transactions are proved to be aborted, so a replay could duplicate rows: --accept-loss"
    PARTITION_UNKNOWN = "the Spark partitions of the transactions are unknown: --accept-loss"
    PREPARED = "the batch is prepared and must be committed: recover"
    COMMITTED = "some of its transactions are committed, though the commit log has no record of that"


@dataclass(frozen=True, slots=True)
class Refused:
    """An end without a change. transactional_ids: the uncommitted ones, for UNRESOLVED, UNKNOWN and PARTITION_UNKNOWN."""

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

    Every transaction that can be committed is committed; `resolution` is for the rest. If all are committed, or all are aborted,
    the record says so, whatever `resolution` is. `view.own` is empty.
    """
    if not view.read:
        return Read()
    last = view.last
    if last is None:
        return Refused(Refusal.NO_RECORD)
    if last.batch != view.batch:
        return Refused(Refusal.MOVED_ON)
    if last.state is State.REPLAY and resolution is Resolution.ACCEPT_LOSS:
        return rewritten(last, State.COMPLETE, last.committed, last.aborted)
    if last.state is not State.PREPARED:
        return Refused(NOTHING_TO_RESOLVE[last.state])
    step = roll_forward(view, last)
    return _unresolved(view, last, resolution) if isinstance(step, Stop) else step


def with_proofs(view: View, proofs: Mapping[TransactionHandle, Outcome]) -> View:
    """Returns the view with the outcomes that are proved by other means than the coordinators' responses."""
    if view.outcomes is None or view.last is None:
        return view
    proved = {each.transactional_id: proofs[each] for each in view.last.to_commit if each in proofs}
    unknown = {each for each, outcome in view.outcomes.items() if outcome is Outcome.UNKNOWN}
    return replace(view, outcomes={**view.outcomes, **{each: proved[each] for each in unknown & proved.keys()}})


def _unresolved(view: View, last: CommitRecord, resolution: Resolution) -> Write | Refused:
    """Handles a batch of which not all transactions are committed and not all are aborted; its record is still the last."""
    deciding = [each.transactional_id for each in with_rows(last.to_commit)]
    outcomes = {each: (view.outcomes or {}).get(each, Outcome.UNKNOWN) for each in deciding}
    report = tuple(each.transactional_id for each in last.to_commit if each.transactional_id not in outcomes)
    missing = tuple(each for each, outcome in outcomes.items() if outcome is not Outcome.COMMITTED)
    committed = (*last.committed, *(each for each, outcome in outcomes.items() if outcome is Outcome.COMMITTED))
    if resolution is Resolution.RECOVER:
        return Refused(Refusal.UNRESOLVED, missing)
    if resolution is Resolution.ACCEPT_LOSS:
        return rewritten(last, State.COMPLETE, committed, (*missing, *report))
    if any(outcomes[each] is Outcome.UNKNOWN for each in missing):
        return Refused(Refusal.UNKNOWN, missing)
    if any(each.spark_partition < 0 and each.handle.records for each in last.transactions):
        return Refused(Refusal.PARTITION_UNKNOWN, missing)
    return rewritten(last, State.REPLAY, committed, (*missing, *report))


def batch_to_abort(last: CommitRecord | None) -> int:
    """Returns the batch whose record lists the aborted transactions: the last one's, which otherwise stays as it is."""
    return 0 if last is None else last.batch


def kept(view: View) -> frozenset[tuple[str, int, int]]:
    """Returns the keys of the tasks' transactions that the batch's record says are committed, or are to be."""
    if view.last is None or view.last.batch != view.batch:
        return frozenset()
    return asked_for(view.last) & {key(each) for each in view.own_handles}


def has_committed(view: View) -> bool:
    """Returns whether a transaction of the tasks is proved to be committed that no record lists: then the log was deleted."""
    described, known = view.described or {}, kept(view)
    unknown = [each for each in view.own_handles if key(each) not in known]
    return any(proof_of(each, described.get(each.transactional_id)) is Proof.COMMITTED for each in unknown)


def abort(view: View) -> Read | Look | Write | Done | Refused:
    """Returns the next step towards aborting all open transactions of a failed batch job, or of a query that is not running.

    They are logged before any is aborted, so that a commit() that is still running stops instead of preparing one of them. The
    view is of `batch_to_abort`; for a job it is of batch 0, with the transactions that its tasks reported.
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
    if has_committed(view):
        return Refused(Refusal.COMMITTED)
    own = {key(each.handle) for each in view.own}
    found = (*view.own, *(PreparedTransaction(each, -1, 0) for each in view.listed if key(each) not in own))
    logged = set() if last is None else {key(each) for each in last.handles}
    new = tuple(each for each in found if key(each.handle) not in logged)
    if not new:
        return Done(tuple(each.handle for each in found))
    # What the log says about the last batch still holds if its commit is repeated.
    ids = tuple(each.handle.transactional_id for each in new)
    if last is None:
        return Write(State.CLOSED, new, 0, aborted=ids)
    # What an earlier abort has added and ended goes, or the record of a query that fails again and again would grow.
    left, open_keys = [], {key(each.handle) for each in found}
    for each in last.transactions:
        is_added = each.spark_partition < 0 and each.handle.transactional_id in last.aborted
        if not is_added or key(each.handle) in open_keys:
            left.append(each)
    aborted = tuple(each for each in last.aborted if each in {one.handle.transactional_id for one in left})
    return replace(rewritten(last, last.state, last.committed, (*aborted, *ids)), transactions=(*left, *new))


def end_stopped(view: View) -> Read | Look | Commit | Write | Done | Refused:
    """Returns the next step towards ending what a stopped run of a query has open: `recover` if it is prepared, then `abort`.

    The next run of the query would do the same, but readers would wait for it. The view is of `batch_to_abort`.
    """
    if view.last is not None and view.last.state is State.PREPARED:
        return resolve(view, Resolution.RECOVER)
    return abort(view)
