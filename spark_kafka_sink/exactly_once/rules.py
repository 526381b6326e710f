"""The next step of commit(): every rule of the protocol in one pure function, from what is known to one step.

Execution carries the steps out. It starts over from nothing when it loses its claim to the log, or does not know what became of
something that it wrote. Tests walk through every order of events of two drivers that do so (tests/exactly_once/model).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State
from spark_kafka_sink.exactly_once.proof import Outcome, TransactionDescription
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, covers

# The share of the transactions' time that is kept for the commit. A commit itself takes no longer (`commit_timeout_ms`), so one
# that begins ends while its transactions live: it cannot find some of them timed out when it has committed others.
#
# Half of it is for the record, which must be in the log while the other half is left, or nothing is committed. So however slow
# the log is, nearly two minutes of 15 are left for EndTxn, where a coordinator's fail-over takes half a minute.
_SHARE_OF_COMMIT: Final = 4
# Longer than that nobody waits for a commit.
_MAX_COMMIT_MS: Final = 300_000


def commit_timeout_ms(transaction_timeout_ms: int) -> int:
    """Returns how long a commit may take, and how much of its transactions' time must be left when it begins."""
    return min(transaction_timeout_ms // _SHARE_OF_COMMIT, _MAX_COMMIT_MS)


class Reason(Enum):
    """Why a query stops."""

    BEHIND = "the commit log is ahead: another driver runs this query, or its checkpoint was rolled back"
    OTHER_ROWS = "the batch had another number of rows before: two drivers run on copies of one checkpoint, or it was rolled back"
    OTHER_TOPICS = "the batch was written to other topics: another query has this checkpoint, or another sink this query's id"
    UNFINISHED = "the batch before is not complete in the commit log"
    GAP = "batches are missing in the commit log"
    NO_RECORD = "the commit log knows nothing of this query, which has committed batches before"
    CLOSED = "the run was aborted from outside, and its transactions with it"
    UNRESOLVED = "of the transactions of the batch some are not proved to be committed, and not all are proved to be aborted"
    NOT_REPLAYED = "the rows that were written again are not proved to be those that were lost"


@dataclass(frozen=True, slots=True)
class Read:
    """Claim the log (InitProducerId on this query's id there), and then read it."""


@dataclass(frozen=True, slots=True)
class Look:
    """Describe the batch's own transactions, and list all that are open under the query's ids."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write this to the log; its record id is the writer's to choose."""

    state: State
    transactions: tuple[PreparedTransaction, ...]
    rows: int
    committed: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """EndTxn(commit) for each; their outcomes are to be learned."""

    handles: tuple[TransactionHandle, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The batch is complete. EndTxn(abort) for each that is left; what it answers does not matter."""

    leftovers: tuple[TransactionHandle, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The batch is not complete, and cannot be with its own transactions: abort those and fail; written again, it can be."""

    leftovers: tuple[TransactionHandle, ...]
    ended: tuple[TransactionHandle, ...]  # no longer open, or too old


@dataclass(frozen=True, slots=True)
class Stop:
    """Fail; going on would lose or double rows, and the same batch would stop again. `leftovers` are aborted first."""

    reason: Reason
    leftovers: tuple[TransactionHandle, ...]


Step = Read | Look | Write | Commit | Done | GiveUp | Stop


@dataclass(frozen=True, slots=True)
class View:
    """The knowledge that a commit of one batch has.

    own: the batch's transactions, as its tasks have told. start: the batch at which the log may begin (commit.log.start).
    last: the query's last record, once `read`. described, listed: what Look found, None before.
    outcomes: what became of `last.to_commit`, by transactional id, None before. reread: the log still ended the same when it was
    claimed and read again after that, or after Look.
    """

    batch: int
    own: tuple[PreparedTransaction, ...]
    start: int | None = None
    now_ms: int = 0
    read: bool = False
    last: CommitRecord | None = None
    described: Mapping[str, TransactionDescription] | None = None
    listed: tuple[TransactionHandle, ...] | None = None
    outcomes: Mapping[str, Outcome] | None = None
    reread: bool = False

    @property
    def rows(self) -> int:
        return sum(each.handle.records for each in self.own)

    @property
    def own_handles(self) -> tuple[TransactionHandle, ...]:
        return tuple(each.handle for each in self.own)

    def begun(self) -> View:
        """Nothing is known: at first, and when the claim is lost or it is unknown what became of a record that was written."""
        return View(self.batch, self.own, self.start)

    def with_read(self, last: CommitRecord | None) -> View:
        """The log was claimed, and read after that. What was found out meanwhile counts if nobody wrote since."""
        is_same = self.read and _record_id(last) == _record_id(self.last)
        if is_same and (self.outcomes is not None or self.described is not None):
            return replace(self, reread=True)
        return replace(self.begun(), read=True, last=last)

    def with_look(
        self, described: Mapping[str, TransactionDescription], listed: tuple[TransactionHandle, ...], now_ms: int
    ) -> View:
        return replace(self, described=described, listed=listed, now_ms=now_ms)

    def with_outcomes(self, outcomes: Mapping[str, Outcome]) -> View:
        return replace(self, outcomes=outcomes)

    def with_written(self, record: CommitRecord) -> View:
        """The log ends with it: its own EndTxn answered NONE. What was listed before `prepared` may be ended after `complete`;
        of a batch that is written again everything is looked at again."""
        listed = self.listed if record.state in (State.PREPARED, State.COMPLETE) else None
        return replace(self.begun(), read=True, last=record, listed=listed)


def decide(view: View) -> Step:
    """The next step. The same view always gives the same."""
    if not view.read:
        return Read()
    last = view.last
    if last is None:
        return _new_batch(view) if view.batch in (0, view.start) else _stop(view, Reason.NO_RECORD)
    if view.batch < last.batch:
        return _stop(view, Reason.BEHIND)
    if view.batch == last.batch:
        return _same_batch(view, last)
    return _later_batch(view, last)


def _later_batch(view: View, last: CommitRecord) -> Step:
    """Even commit.log.start leaves no transactions behind that somebody was promised to see."""
    is_next = view.batch == last.batch + 1
    if view.batch == view.start and last.state not in (State.PREPARED, State.REPLAY):
        return _new_batch(view)
    if is_next and last.state is State.COMPLETE:
        return _new_batch(view)
    return _stop(view, Reason.UNFINISHED if is_next or last.state is not State.COMPLETE else Reason.GAP)


def _same_batch(view: View, last: CommitRecord) -> Step:
    if last.state in (State.PREPARED, State.COMPLETE) and view.rows != last.rows:
        return _stop(view, Reason.OTHER_ROWS)
    if last.state in (State.PREPARED, State.COMPLETE) and _are_apart(_topics(view.own), _topics(last.transactions)):
        return _stop(view, Reason.OTHER_TOPICS)
    match last.state:
        case State.COMPLETE:
            return Done(_leftovers(view))
        case State.PREPARED:
            return roll_forward(view, last)
        case State.ABORTED | State.CLOSED:
            return _new_batch(view)
        case State.REPLAY:
            return _replayed(view, last)


def _topics(transactions: tuple[PreparedTransaction, ...]) -> set[str]:
    return {topic for each in transactions for topic, _ in each.handle.partitions}


def _are_apart(some: set[str], others: set[str]) -> bool:
    """Rows that are not deterministic may have some other topic when they are written again, a whole other query has others."""
    return bool(some) and bool(others) and some.isdisjoint(others)


def _new_batch(view: View) -> Step:
    if view.last is not None and _keys(view.own_handles) & _keys(view.last.aborted_handles):
        return _stop(view, Reason.CLOSED)
    return _prepare(view, view.own, ())


def _prepare(view: View, chosen: tuple[PreparedTransaction, ...], kept: tuple[PreparedTransaction, ...]) -> Step:
    """`chosen` are to be committed; `kept` are committed already."""
    if view.described is None or view.listed is None:
        return Look()
    ended = tuple(each.handle for each in chosen if not _is_open(each.handle, view))
    if ended and not view.reread:
        return Read()  # who ended them may have committed the batch with others
    if ended:
        return GiveUp(_leftovers(view), ended)
    transactions = (*kept, *chosen)
    rows = sum(each.handle.records for each in transactions)
    return Write(State.PREPARED, transactions, rows, committed=_ids(kept))


def _is_open(handle: TransactionHandle, view: View) -> bool:
    """Whether it is open by the coordinator's word, and for long enough.

    With transactions of version 1 an abort leaves the epoch as it is, and a task that has not noticed it begins the transaction
    again with the next partition that it writes to. What was written before is gone then, and the coordinator does not know those
    partitions any more.
    """
    assert view.described is not None
    said = view.described.get(handle.transactional_id)
    if said is None or (said.state, said.producer_id, said.epoch) != ("Ongoing", handle.producer_id, handle.epoch):
        return False
    if not covers(said.partitions, handle.partitions):
        return False
    return view.now_ms - said.start_time_ms <= said.timeout_ms - commit_timeout_ms(said.timeout_ms)


def ms_to_prepare(view: View, write: Write) -> int | None:
    """Returns how many ms after Look a record that says `prepared` may take; None where nothing in it can time out."""
    kept = set(write.committed)
    ids = [each.handle.transactional_id for each in write.transactions if each.handle.transactional_id not in kept]
    described = [said for each in ids if (said := (view.described or {}).get(each)) is not None]
    ends = [said.start_time_ms + said.timeout_ms - commit_timeout_ms(said.timeout_ms) // 2 for said in described]
    return min(ends) - view.now_ms if ends else None


def roll_forward(view: View, last: CommitRecord) -> Read | Write | Commit | Stop:
    """Commit what a prepared record lists, whoever wrote it."""
    if view.outcomes is None:
        return Commit(last.to_commit)
    outcomes = {each.transactional_id: view.outcomes.get(each.transactional_id, Outcome.UNKNOWN) for each in last.to_commit}
    found = set(outcomes.values())
    if found <= {Outcome.COMMITTED}:
        return Write(State.COMPLETE, last.transactions, last.rows)
    if not view.reread:
        return Read()
    if found == {Outcome.ABORTED}:
        if last.committed:
            return Write(State.REPLAY, last.transactions, last.rows, last.committed, tuple(outcomes))
        return Write(State.ABORTED, last.transactions, last.rows)
    return _stop(view, Reason.UNRESOLVED)


def _replayed(view: View, last: CommitRecord) -> Step:
    """Replays the rest of a batch that was committed in part; the rows of every task must be those of the first time."""
    before = {each.spark_partition: each for each in last.transactions}
    again = {each.spark_partition: each for each in view.own}
    is_told_apart = len(before) == len(last.transactions)  # it is not where partitions are unknown
    if not is_told_apart or sorted(map(_content, view.own)) != sorted(map(_content, last.transactions)):
        return _stop(view, Reason.NOT_REPLAYED)
    lost = [where for where, each in before.items() if each.handle.transactional_id in last.aborted]
    kept = tuple(each for where, each in before.items() if where not in lost)
    return _prepare(view, tuple(again[where] for where in lost), kept)


def _content(transaction: PreparedTransaction) -> tuple[int, int, int]:
    return transaction.spark_partition, transaction.handle.records, transaction.checksum


def _leftovers(view: View) -> tuple[TransactionHandle, ...]:
    """Returns what is open for nothing: own ones that the record does not ask for, and when the batch is complete what was listed
    before it was prepared. Nobody can prepare any of those any more: all that could are of this batch or of one before."""
    found = view.own_handles
    if view.last is None or view.last.batch != view.batch:
        return found
    if view.last.state is State.COMPLETE:
        found = (*found, *(each for each in view.listed or () if key(each) not in _keys(found)))
    asked_for = _keys(view.last.handles) - _keys(view.last.aborted_handles)
    return tuple(each for each in found if key(each) not in asked_for)


def key(handle: TransactionHandle) -> tuple[str, int, int]:
    """Returns the key of one transaction. What brokers list says less than its handle does."""
    return handle.transactional_id, handle.producer_id, handle.epoch


def asked_for(record: CommitRecord) -> frozenset[tuple[str, int, int]]:
    """Keys of the transactions that a record wants committed, whether they are or not. Nobody else may abort them."""
    if record.state in (State.ABORTED, State.CLOSED):
        return frozenset()
    return frozenset(_keys(record.handles) - _keys(record.aborted_handles))


def _record_id(record: CommitRecord | None) -> str | None:
    return None if record is None else record.record_id


def _keys(handles: Iterable[TransactionHandle]) -> set[tuple[str, int, int]]:
    return {key(each) for each in handles}


def _stop(view: View, reason: Reason) -> Stop:
    return Stop(reason, _leftovers(view))


def _ids(transactions: tuple[PreparedTransaction, ...]) -> tuple[str, ...]:
    return tuple(each.handle.transactional_id for each in transactions)
