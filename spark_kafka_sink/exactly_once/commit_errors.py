"""Errors of a commit that cannot continue: the cause, the affected rows, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from spark_kafka_sink.client.topics import records_are_gone
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import BatchAbortedError, CommitStoppedError, CommitTimeoutError, KafkaSinkError
from spark_kafka_sink.exactly_once.commit_log import COMPLETE_FOR_MS
from spark_kafka_sink.exactly_once.commit_log_topic import HOW_TO_LOOK
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State, TaskRows
from spark_kafka_sink.exactly_once.commit_rules import Reason, View, key
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

# Further ones are only counted, to keep the error readable.
_MAX_NAMED = 10

CHECKPOINT_DELETED = "CHECKPOINT_DELETED"
"""The fact `reason` of an error that no `Reason` causes."""

_COMMAND = "spark-kafka-sink transactions"
_LOOK = (
    "if its log was deleted: set commit.log.start={batch} as well, but first look whether rows of this batch are visible, because"
    f" that start writes them again: {HOW_TO_LOOK}"
)
# The cures of each reason, the likeliest first.
_TO_DO: Mapping[Reason, tuple[str, ...]] = {
    Reason.BEHIND: (
        "if an older checkpoint was restored: start from the checkpoint that the log belongs to; batches that are in the log are"
        " not written again",
        "if another driver runs this query: stop one of the two",
    ),
    Reason.OTHER_ROWS: (
        "run the query on one driver only, on its original checkpoint",
        "if you changed the query: finish this batch with the old version first",
        "if the query is not deterministic (rand() and the like): end the batch with `{recover}`, and continue from a new"
        " checkpoint whose source starts after this batch",
    ),
    Reason.OTHER_TOPICS: (
        "if you changed the topic: finish this batch with the old topic first",
        "if it is a second sink in the same foreachBatch: give each sink its own commit.log.topic and transactional.id.prefix",
        "if this is a different query: give it its own checkpoint",
    ),
    Reason.GAP: (
        "start from the checkpoint that the log belongs to",
        "in foreachBatch, call the sink for every batch, even one without rows",
        "if the missing batches are known to be in Kafka or are not wanted: set commit.log.start={batch}",
    ),
    Reason.NO_RECORD: (
        "if the query has run without exactly-once so far: set commit.log.start={batch} for this start",
        "set commit.log.topic, commit.log.partitions and transactional.id.prefix to their previous values",
        "{look}",
    ),
    Reason.CLOSED: ("{again}",),
    Reason.UNRESOLVED: (
        "run `{resolve}`, which shows the outcome of each transaction: add --replay to write the lost ones again"
        " at the next start, if all of them are proved to be aborted, or --accept-loss to continue without them",
    ),
    Reason.TOPIC_REPLACED: ("{again}, which continues with the next batch; rows of other topics are visible",),
    Reason.NOT_REPLAYED: ("run `{resolve} --accept-loss` to continue without the lost rows",),
}


# By the state of the batch before.
_BACK = "start the query from the checkpoint that the log belongs to, to write that batch again"
_UNFINISHED: Mapping[State, tuple[str, ...]] = {
    State.PREPARED: (
        "run `{recover}`, which ends the remaining transactions of that batch, and start the query from the"
        " checkpoint that it belongs to",
    ),
    State.REPLAY: (_BACK, "to continue without its lost rows: run `{resolve} --accept-loss`"),
    State.ABORTED: (_BACK, "if its rows are not wanted: set commit.log.start={batch}"),
    State.CLOSED: (
        _BACK,
        "if the query has run without exactly-once so far, or those rows are not wanted: set commit.log.start={batch} for this"
        " start",
        "{look}",
    ),
}

# A job has one batch and a unique id, so no other run may write what is in doubt.
_OF_JOB: Mapping[Reason, tuple[str, ...]] = {
    **_TO_DO,
    Reason.TOPIC_REPLACED: ("do not run the job again for rows of other topics, because they are visible",),
    Reason.UNRESOLVED: (
        "run `{resolve} --accept-loss`, which shows the outcome of each transaction and commits those that can"
        " be committed; committed rows stay, so run the job again for the lost rows only",
    ),
}


def commit_stopped(
    batch: MicroBatch,
    view: View,
    reason: Reason,
    options: str,
    *,
    is_invisible: bool = True,
    left_open: tuple[TransactionHandle, ...] = (),
    replaced: frozenset[str] = frozenset(),
) -> CommitStoppedError:
    """Returns the error of a batch whose commit would lose or duplicate rows.

    is_invisible: whether this run's rows cannot have been committed. left_open: open transactions of the query that no one ends.
    replaced: the topics that were deleted since.
    """
    last = view.last
    said = (
        "no record"
        if last is None
        else f"batch {last.batch}, {last.state}, {counted(last.rows, 'row')}{_of(last.rows, last.tasks)}"
    )
    shown = last.transactions if last is not None and last.batch == batch.number else view.own
    outcomes = view.outcomes or {}
    ordered = sorted(shown, key=lambda each: outcomes.get(each.handle.transactional_id, "") == "committed")  # doubtful ones first
    advice = _OF_JOB if batch.is_job else _TO_DO
    cures = advice[reason] if last is None or reason is not Reason.UNFINISHED else _UNFINISHED[last.state]
    values = {
        "batch": batch.number,
        "again": _again(batch),
        "look": _LOOK.format(batch=batch.number),
        "recover": _command("recover", batch, options),
        "resolve": _command("resolve", batch, f"--batch {last.batch if last is not None else batch.number} {options}"),
    }
    to_do = [cure.format_map(values) for cure in cures]
    lines = [f"{number}. {cure}" for number, cure in enumerate(to_do, 1)]
    how = f" To continue: {to_do[0]}" if len(to_do) == 1 else "\n".join(["\nTo continue, the likeliest first:", *lines])
    held = (
        f" These transactions of the query are open, and read_committed consumers wait for them: {_handles(left_open)}. If no"
        f" other driver runs the query, end them: `{_command('abort', batch, options)}`."
        if left_open
        else ""
    )
    is_own = last is not None and not set(last.handles).isdisjoint(view.own_handles)
    one, many = (f"{_of(view.rows, view.tasks, ',')} of this run {verb}" for verb in ("is", "are"))
    gone = f", and {records_are_gone(replaced)}" if replaced else ""
    invisible = f" {rows_of(view.own, one, many)} not visible." if is_invisible and not is_own else ""
    return CommitStoppedError(
        f"{batch}: {reason.value}{gone}.{invisible} The last record in the commit log is: {said}."
        f" Transactions: {_handles((each.handle for each in ordered), outcomes)}.{held}{how}",
        reason=reason.name,
        query_id=batch.query_id,
        batch=batch.number,
        rows=view.rows,
        transactional_ids=tuple(each.handle.transactional_id for each in shown),
    )


def checkpoint_deleted(query_id: str, view: View, other: CommitRecord) -> CommitStoppedError:
    """Returns the error of a query without a record that uses the checkpoint of another query."""
    return CommitStoppedError(
        f"batch {view.batch} of {query_id}: its checkpoint {other.checkpoint} belonged to query {other.query_id}, which has"
        f" reached batch {other.batch} ({other.state}): if the checkpoint was deleted, this query would write the same rows again"
        f" from the start of its source. {rows_of(view.own, ' is', ' are')} not visible. To continue: restore the checkpoint; or,"
        f" if these rows are wanted, or the folder is on another machine, set commit.log.start={view.batch} for this start",
        reason=CHECKPOINT_DELETED,
        query_id=query_id,
        batch=view.batch,
        rows=view.rows,
    )


def batch_aborted(
    batch: MicroBatch,
    own: Iterable[PreparedTransaction],
    ended: Iterable[TransactionHandle],
    kept: frozenset[tuple[str, int, int]] = frozenset(),
    replaced: frozenset[str] = frozenset(),
) -> BatchAbortedError:
    """Returns the error of a batch that has to be written again.

    kept: the keys of those in `own` that are committed, because a replay of the batch leaves them out. replaced: the topics that
    were deleted since.
    """
    lost = tuple(ended)
    visible = [each for each in own if key(each.handle) in kept]
    invisible = [each for each in own if key(each.handle) not in kept]
    known = "none of this run's rows is or will become visible"
    if visible:
        known = (
            f"{rows_of(visible, ' of this run is', ' of this run are')} visible, and none of the others is or will become visible"
        )
    why = (
        f"Before the commit, {counted(len(lost), 'of its transactions was', 'of its transactions were')} aborted or had too"
        " little time left: a batch and its commit must finish within kafka.transaction.timeout.ms, and this machine's clock must"
        f" not be ahead of the brokers' clocks: {_handles(lost)}"
    )
    if replaced:
        why = f"It was not committed, because {records_are_gone(replaced)}"
    return BatchAbortedError(
        f"{batch}: {known}; to write the batch again, {_again(batch)}. {why}",
        query_id=batch.query_id,
        batch=batch.number,
        rows=sum(each.handle.records for each in invisible),
        transactional_ids=tuple(each.transactional_id for each in lost),
    )


class RowVisibility(Enum):
    """The visibility of a run's rows, as far as it is known when their commit times out."""

    ABORTED = "None of this run's rows is visible, and its transactions are aborted."
    OPEN = (
        "None of this run's rows is visible, but some of its transactions stay open until kafka.transaction.timeout.ms has passed"
        " or `{abort}` ends them; read_committed consumers wait for them."
    )
    UNKNOWN = "It is unknown whether they are prepared, so some of them may be visible."
    PREPARED = "They are prepared, and some of them may be visible."
    COMMITTING = (
        "All rows of the batch are committed, and will be visible when the brokers have written the transaction markers."
        " {committing}; read_committed consumers wait for them."
    )
    VISIBLE = "All rows of the batch are visible, but the commit log does not record it as complete yet."


def commit_timeout(
    batch: MicroBatch,
    own: Iterable[PreparedTransaction],
    timeout_s: float,
    error: KafkaSinkError,
    visibility: RowVisibility,
    options: str,
    committing: str = "",
    gone: frozenset[str] = frozenset(),
) -> CommitTimeoutError:
    """committing: what is known of transactions whose markers are missing. gone: as in View."""
    known = visibility.value.format(abort=_command("abort", batch, options), committing=committing)
    known += f" But {records_are_gone(gone)}." if gone else ""
    if visibility in (RowVisibility.ABORTED, RowVisibility.OPEN):
        written = "" if batch.is_job else ", which writes the batch again, unless another driver has committed it"
        to_do = f"{_again(batch)}{written}"
    elif batch.is_job:
        to_do = (
            f"run `{_command('recover', batch, options)}` within {COMPLETE_FOR_MS // 3_600_000} hours, which ends it and"
            " reports the outcome; run the job again only if the report says so"
        )
    else:
        to_do = f"{_again(batch)}: the commit continues where it stopped"
    return CommitTimeoutError(
        f"{batch}: {rows_of(own)} could not be committed within {timeout_s:.0f} s: {error.message}. {known} To continue: {to_do}",
        query_id=batch.query_id,
        batch=batch.number,
        standing=visibility.name,
    )


def _command(name: str, batch: MicroBatch, options: str) -> str:
    return f"{_COMMAND} {name} --query {batch.query_id} {options}".rstrip()


def _again(batch: MicroBatch) -> str:
    return "run the job again" if batch.is_job else "start the query again"


def rows_of(transactions: Iterable[PreparedTransaction], one: str = "", many: str = "") -> str:
    """Returns the number of rows, followed by `one` if it is 1, else by `many`."""
    return counted(sum(each.handle.records for each in transactions), f"row{one}", f"rows{many}")


def _of(stored: int, tasks: tuple[TaskRows, ...], end: str = "") -> str:
    """Returns how many rows Spark passed to the tasks, as text, if that is known and is not the number of stored rows."""
    passed = sum(each.rows for each in tasks)
    return f", of {passed:,} that Spark passed to tasks{end}" if tasks and passed != stored else ""


def _handles(handles: Iterable[TransactionHandle], outcomes: Mapping[str, str] | None = None) -> str:
    """Returns each transaction with its rows, their partitions and its outcome, as text."""
    said, more = [], 0
    for number, each in enumerate(handles):
        if number >= _MAX_NAMED:
            more += 1
            continue
        where = ", ".join(f"{topic} {numbers}" for topic, numbers in each.partitions)
        outcome = (outcomes or {}).get(each.transactional_id)
        rows = counted(each.records, "row") if each.records else "rows"  # brokers do not count them
        said.append(f"{each.transactional_id}, {rows} in {where}{f' ({outcome})' if outcome else ''}")
    return "; ".join([*said, *([f"and {more} more"] if more else [])]) or "none"
