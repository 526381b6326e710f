"""The rules of commit() as one pure function that returns the next step from what is known.

Execution carries out the steps. It starts over when it loses its claim to the log, or when the outcome of a write is unknown.
Tests explore every order of events of two concurrent drivers (tests/exactly_once/model).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from spark_kafka_sink.exactly_once.commit_record import (
    NO_ID,
    CommitRecord,
    PreparedTransaction,
    State,
    TaskRows,
    stored_rows,
    with_rows,
)
from spark_kafka_sink.exactly_once.proof import Outcome, TransactionDescription
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, covers

# The fraction of the transaction timeout that is reserved for the commit. A commit takes no longer (`commit_timeout_ms`), so it
# ends before its transactions time out: it cannot find some of them aborted after it has committed others.
#
# Half of it is for writing the record. If the record is not in the log by then, nothing is committed. However slow the log is,
# nearly two of 15 minutes are left for EndTxn; a coordinator's fail-over takes half a minute.
_SHARE_OF_COMMIT: Final = 4
# Upper limit of a commit's duration.
_MAX_COMMIT_MS: Final = 300_000


def commit_timeout_ms(transaction_timeout_ms: int) -> int:
    """Returns how long a commit may take, which is also the transaction time that must be left when it begins, in ms."""
    return min(transaction_timeout_ms // _SHARE_OF_COMMIT, _MAX_COMMIT_MS)


class Reason(Enum):
    """Why a query stops."""

    BEHIND = "the commit log is ahead: another driver runs this query, or its checkpoint was rolled back"
    OTHER_ROWS = (
        "the batch had a different number of rows before: two drivers use copies of one checkpoint, or it was rolled back"
    )
    OTHER_TOPICS = (
        "the batch was written to different topics: another query uses this checkpoint, or another sink this query's id"
    )
    UNFINISHED = "the previous batch is not complete in the commit log"
    GAP = "batches are missing in the commit log"
    NO_RECORD = "the commit log has no record of this query, which has committed batches before"
    CLOSED = "the run was stopped, or its transactions were aborted by an operator"
    UNRESOLVED = "some transactions of the batch are not proved to be committed, and not all are proved to be aborted"
    NOT_REPLAYED = "the replayed rows are not proved to be the lost ones"
    TOPIC_REPLACED = "the batch was already committed in part, so its other transactions were committed as well"


@dataclass(frozen=True, slots=True)
class Read:
    """A step: claim the log (InitProducerId on this query's id there), then read it."""


@dataclass(frozen=True, slots=True)
class Look:
    """A step: describe the batch's own transactions, and list all open transactions under the query's ids."""


@dataclass(frozen=True, slots=True)
class Write:
    """A step: write this to the log. The writer chooses the record id."""

    state: State
    transactions: tuple[PreparedTransaction, ...]
    rows: int
    committed: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    tasks: tuple[TaskRows, ...] = ()
    topic_ids: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """A step: send EndTxn(commit) for each transaction and note the outcomes.

    If one of the record's topics was replaced and none of the transactions is committed, EndTxn(abort) is sent instead, which is
    a timeout to any other driver. Once one is committed, the others are as well, or rows in other topics would be lost. Nothing
    is sent before the record says which topics are `gone`: afterwards no one could find out.
    """

    handles: tuple[TransactionHandle, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """An end: the batch is complete. EndTxn(abort) is sent for each leftover; the responses do not matter."""

    leftovers: tuple[TransactionHandle, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """An end: the batch cannot be completed with its own transactions. Abort them and fail, so that it is written again."""

    leftovers: tuple[TransactionHandle, ...]
    ended: tuple[TransactionHandle, ...]  # no longer open, or too old


@dataclass(frozen=True, slots=True)
class Stop:
    """An end: fail, because continuing would lose or duplicate rows. `leftovers` are aborted first.

    A retry stops again, except after TOPIC_REPLACED: these rows went with their topic, and the batch is complete.
    """

    reason: Reason
    leftovers: tuple[TransactionHandle, ...]


Step = Read | Look | Write | Commit | Done | GiveUp | Stop


@dataclass(frozen=True, slots=True)
class View:
    """The knowledge of a commit about one batch.

    own: the batch's transactions as reported by its tasks. start: the batch at which the log may begin (commit.log.start).
    last: the query's last record, once `read`. described, listed: the findings of Look; None before.
    outcomes: the outcomes of `last.to_commit` by transactional id; None before. reread: whether the log still had the same end
    when it was claimed and read again after that, or after Look. letters: the topic of dead letters, if there is one.
    tasks: the rows that Spark passed to each task with rows; if empty, these are the rows in `own`.
    replaced: the topics of `own` that were deleted since, and perhaps created again, as Look found.
    gone: the topics of `last` that were replaced when some of its transactions were committed and others were not. A commit keeps
    them until it ends, because no record has them once it has written that the query was told.
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
    letters: str | None = None
    tasks: tuple[TaskRows, ...] = ()
    replaced: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()

    @property
    def rows(self) -> int:
        return sum(each.handle.records for each in self.own)

    @property
    def passed(self) -> tuple[TaskRows, ...]:
        return self.tasks or stored_rows(self.own)

    @property
    def own_handles(self) -> tuple[TransactionHandle, ...]:
        return tuple(each.handle for each in self.own)

    def begun(self) -> View:
        """Returns the view with nothing known: at the start, after a lost claim, and after a write with an unknown outcome."""
        return View(self.batch, self.own, self.start, letters=self.letters, tasks=self.tasks, gone=self.gone)

    def with_read(self, last: CommitRecord | None) -> View:
        """Returns the view after the log was claimed and read. Earlier findings stay valid if no other writer wrote since."""
        before, now = (None if each is None else each.record_id for each in (self.last, last))
        is_same = self.read and before == now
        if is_same and (self.outcomes is not None or self.described is not None):
            return replace(self, reread=True)
        return replace(self.begun(), read=True, last=last).with_gone_of(last)

    def with_look(
        self,
        described: Mapping[str, TransactionDescription],
        listed: tuple[TransactionHandle, ...],
        now_ms: int,
        replaced: frozenset[str] = frozenset(),
    ) -> View:
        return replace(self, described=described, listed=listed, now_ms=now_ms, replaced=replaced)

    def with_gone(self, gone: frozenset[str]) -> View:
        return replace(self, gone=self.gone | gone)

    def with_outcomes(self, outcomes: Mapping[str, Outcome]) -> View:
        return replace(self, outcomes=outcomes)

    def with_written(self, record: CommitRecord) -> View:
        """Returns the view after `record` was committed as the log's end.

        Transactions listed before `prepared` may be ended after `complete`. For a batch that is written again, everything is
        examined again.
        """
        listed = self.listed if record.state in (State.PREPARED, State.COMPLETE) else None
        return replace(self.begun(), read=True, last=record, listed=listed).with_gone_of(record)

    def with_gone_of(self, last: CommitRecord | None) -> View:
        is_complete = last is not None and (last.batch, last.state) == (self.batch, State.COMPLETE)
        return self.with_gone(last.gone) if last is not None and is_complete else self


def decide(view: View) -> Step:
    """Returns the next step. Equal views give equal steps."""
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
    """Decides about a batch after the last record's. Even commit.log.start does not abandon transactions that were prepared."""
    is_next = view.batch == last.batch + 1
    if view.batch == view.start and last.state not in (State.PREPARED, State.REPLAY):
        return _new_batch(view)
    if is_next and last.state is State.COMPLETE:
        return _new_batch(view)
    return _stop(view, Reason.UNFINISHED if is_next or last.state is not State.COMPLETE else Reason.GAP)


def _same_batch(view: View, last: CommitRecord) -> Step:
    if last.state in (State.PREPARED, State.COMPLETE):
        if _has_other_rows(view, last):
            return _stop(view, Reason.OTHER_ROWS)
        # Non-deterministic rows may change some topics, a different query has all others.
        own, before = _topics(view, view.own), _topics(view, last.transactions)
        if own and before and own.isdisjoint(before):
            return _stop(view, Reason.OTHER_TOPICS)
    match last.state:
        case State.COMPLETE:
            if last.gone:
                return replace(rewritten(last, State.COMPLETE, last.committed, last.aborted), topic_ids=())
            return _stop(view, Reason.TOPIC_REPLACED) if view.gone else Done(_leftovers(view))
        case State.PREPARED:
            return roll_forward(view, last)
        case State.ABORTED | State.CLOSED:
            return _new_batch(view)
        case State.REPLAY:
            return _replayed(view, last)


def _has_other_rows(view: View, last: CommitRecord) -> bool:
    """Returns whether Spark passed another number of rows to the tasks before.

    A replay has the same number, but brokers may reject other rows of it, which on.error=drop leaves out. So what they stored is
    not compared, except with a record of an older version, which does not tell what Spark passed.
    """
    passed = sum(each.rows for each in view.passed)
    return passed != sum(each.rows for each in last.tasks) if last.tasks else last.rows not in (passed, view.rows)


def _topics(view: View, transactions: tuple[PreparedTransaction, ...]) -> set[str]:
    """Returns the topics of rows. Brokers may reject a row in one attempt and not in another, so dead letters do not count."""
    return {topic for each in transactions if each.handle.records for topic, _ in each.handle.partitions} - {view.letters}


def _new_batch(view: View) -> Step:
    if view.last is not None and _keys(view.own_handles) & _keys(view.last.aborted_handles):
        return _stop(view, Reason.CLOSED)
    return _prepare(view, view.own, ())


def _prepare(view: View, chosen: tuple[PreparedTransaction, ...], kept: tuple[PreparedTransaction, ...]) -> Step:
    """Prepares the batch. `chosen` will be committed; `kept` are already committed."""
    if view.described is None or view.listed is None:
        return Look()
    ended = tuple(each.handle for each in chosen if not _is_open(each.handle, view))
    if ended and not view.reread:
        return Read()  # whoever ended them may have committed the batch with others
    chosen = tuple(each for each in chosen if each.handle.records or each.handle not in ended)  # rows do without their report
    if ended := tuple(each for each in ended if each.records):
        return GiveUp(_leftovers(view), ended)
    transactions = (*kept, *chosen)
    rows = sum(each.handle.records for each in transactions)
    tasks = () if sorted(view.passed) == sorted(stored_rows(transactions)) else view.passed
    committed = tuple(each.handle.transactional_id for each in kept)
    gone = _ids_of_gone(view.last.gone) if kept and view.last is not None else ()
    topic_ids = tuple(sorted({*gone, *(each for one in chosen for each in one.handle.topic_ids)}))
    return Write(State.PREPARED, transactions, rows, committed=committed, tasks=tasks, topic_ids=topic_ids)


def rewritten(last: CommitRecord, state: State, committed: tuple[str, ...] = (), aborted: tuple[str, ...] = ()) -> Write:
    """Returns the last record in another state."""
    return Write(state, last.transactions, last.rows, committed, aborted, last.tasks, _ids_of_gone(last.gone))


def _ids_of_gone(topics: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((topic, NO_ID) for topic in sorted(topics))


def prepares_first(view: View, step: Step) -> bool:
    """Returns whether this step makes the batch's own rows visible sooner or later, and none of the batch is prepared yet."""
    if not isinstance(step, Write) or step.state is not State.PREPARED:
        return False
    return view.last is None or view.last.batch != view.batch or view.last.state in (State.ABORTED, State.CLOSED)


def _is_open(handle: TransactionHandle, view: View) -> bool:
    """Returns whether the coordinator reports the transaction as open, with enough time left, and its topics are still there.

    With transaction version 1 an abort does not change the epoch, and a task that has not noticed it starts the transaction again
    with the next partition that it writes to. The earlier rows are then lost, and the coordinator no longer knows their
    partitions.
    """
    assert view.described is not None
    said = view.described.get(handle.transactional_id)
    if said is None or (said.state, said.producer_id, said.epoch) != ("Ongoing", handle.producer_id, handle.epoch):
        return False
    if not covers(said.partitions, handle.partitions) or not view.replaced.isdisjoint(topic for topic, _ in handle.partitions):
        return False
    return view.now_ms - said.start_time_ms <= said.timeout_ms - commit_timeout_ms(said.timeout_ms)


def ms_to_prepare(view: View, write: Write) -> int | None:
    """Returns how many ms after Look writing a `prepared` record may take; None if nothing in it can time out."""
    kept = set(write.committed)
    ids = [each.handle.transactional_id for each in write.transactions if each.handle.transactional_id not in kept]
    described = [said for each in ids if (said := (view.described or {}).get(each)) is not None]
    ends = [said.start_time_ms + said.timeout_ms - commit_timeout_ms(said.timeout_ms) // 2 for said in described]
    return min(ends) - view.now_ms if ends else None


def roll_forward(view: View, last: CommitRecord) -> Read | Write | Commit | Stop:
    """Commits the transactions of a prepared record, even if another driver wrote it."""
    if view.outcomes is None:
        topic_ids = {*(each for each in last.topic_ids if each[0] not in view.gone), *_ids_of_gone(view.gone)}
        if topic_ids == set(last.topic_ids):
            return Commit(last.to_commit)
        return replace(rewritten(last, State.PREPARED, last.committed), topic_ids=tuple(sorted(topic_ids)))
    outcomes = {each.transactional_id: view.outcomes.get(each.transactional_id, Outcome.UNKNOWN) for each in last.to_commit}
    found = {outcomes[each.transactional_id] for each in with_rows(last.to_commit)}
    if found <= {Outcome.COMMITTED}:
        lost = tuple(each for each, outcome in outcomes.items() if outcome is not Outcome.COMMITTED)  # the report, if any
        return rewritten(last, State.COMPLETE, aborted=lost)
    if not view.reread:
        return Read()
    if found == {Outcome.ABORTED}:
        if last.committed:
            return rewritten(last, State.REPLAY, last.committed, tuple(outcomes))
        return rewritten(last, State.ABORTED)
    return _stop(view, Reason.UNRESOLVED)


def _replayed(view: View, last: CommitRecord) -> Step:
    """Replays the rest of a partly committed batch. Spark must pass the same rows to every task as the first time.

    Brokers may reject other rows, up to all rows of a task, which then has a transaction in one attempt only. Its rows are
    prepared unless its first transaction is kept. The batch has no report, because neither run wrote all of its rows.
    """
    is_told_apart = len({each.spark_partition for each in last.passed}) == len(last.passed)  # not if partitions are unknown
    if not is_told_apart or not _has_same_rows(view, last):
        return _stop(view, Reason.NOT_REPLAYED)
    aborted = set(last.aborted)
    kept = tuple(each for each in last.transactions if each.handle.transactional_id not in aborted)
    visible = {each.spark_partition for each in kept}
    lost = tuple(each for each in view.own if each.spark_partition not in visible and each.handle.records)
    return _prepare(view, lost, kept)


def _has_same_rows(view: View, last: CommitRecord) -> bool:
    """Returns whether Spark passed the same rows to the tasks before. Of an older version's record, see `_has_other_rows`."""
    before = sorted(last.passed)
    return before == sorted(view.passed) or (not last.tasks and before == sorted(stored_rows(view.own)))


def _leftovers(view: View) -> tuple[TransactionHandle, ...]:
    """Returns the abandoned transactions: own ones that the record does not list and, if the batch is complete, those listed
    before it was prepared. None of them can still be prepared, because all belong to this batch or to an earlier one."""
    found = view.own_handles
    if view.last is None or view.last.batch != view.batch:
        return found
    if view.last.state is State.COMPLETE:
        own = _keys(found)
        found = (*found, *(each for each in view.listed or () if key(each) not in own))
    asked_for = _keys(view.last.handles) - _keys(view.last.aborted_handles)
    return tuple(each for each in found if key(each) not in asked_for)


def key(handle: TransactionHandle) -> tuple[str, int, int]:
    """Returns the key of one transaction. A listing of the brokers has fewer fields than a handle."""
    return handle.transactional_id, handle.producer_id, handle.epoch


def asked_for(record: CommitRecord) -> frozenset[tuple[str, int, int]]:
    """Returns the keys of the transactions that a record commits, whether done or not. No one may abort them."""
    if record.state in (State.ABORTED, State.CLOSED):
        return frozenset()
    return frozenset(_keys(record.handles) - _keys(record.aborted_handles))


def _keys(handles: Iterable[TransactionHandle]) -> set[tuple[str, int, int]]:
    return {key(each) for each in handles}


def _stop(view: View, reason: Reason) -> Stop:
    return Stop(reason, _leftovers(view))
