"""The errors of a commit that cannot go on: why, which rows, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from spark_kafka_sink.errors import BatchAbortedError, CommitStoppedError, CommitTimeoutError, KafkaSinkError
from spark_kafka_sink.exactly_once.commit_log import COMPLETE_FOR_MS
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.exactly_once.rules import Reason, View
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

# More are counted, not named: an error is read by people.
_MAX_NAMED = 10

_COMMAND = "spark-kafka-sink transactions"
_TO_DO: Mapping[Reason, str] = {
    Reason.BEHIND: "end the other driver, or start from a checkpoint that is not older; batches that the log has are not written"
    " again",
    Reason.OTHER_ROWS: "let one driver only run the query, on the checkpoint that it began with; if the query was changed, let it"
    " finish this batch as it was; if it gives other rows each time it is run (rand() and the like), end the batch with"
    " `{recover}`, and go on from a new checkpoint, whose source starts behind it",
    Reason.OTHER_TOPICS: "if this is another query, give it a checkpoint of its own; if it is another sink in the same"
    " foreachBatch, give each a commit.log.topic and a transactional.id.prefix of its own; if its topic was changed, let it"
    " finish this batch with the topic it had",
    Reason.GAP: "call the sink of a foreachBatch for each batch, also for one without rows; start from the checkpoint that the"
    " log belongs to; or, if the batches between are known to be in Kafka, or not wanted, set commit.log.start={batch}",
    Reason.NO_RECORD: "set commit.log.topic, commit.log.partitions and transactional.id.prefix as they were; or, if the query"
    " has run without exactly-once until now, or its log was deleted, set commit.log.start={batch} for this start",
    Reason.CLOSED: "{again}",
    Reason.UNRESOLVED: "run `{resolve}`, which shows what became of each, with --replay to write the lost ones again when the"
    " query starts, if all of those are proved to be aborted, or with --accept-loss to go on without them",
    Reason.NOT_REPLAYED: "run `{resolve} --accept-loss` to go on without the rows that were lost",
}


# By the state of the batch before.
_BACK = "start the query from the checkpoint that the log belongs to, which writes that batch again"
_UNFINISHED: Mapping[State, str] = {
    State.PREPARED: "run `{recover}`, which ends what is left of that batch, and start the query from the checkpoint that it"
    " belongs to",
    State.REPLAY: f"{_BACK}, or go on without its lost rows: `{{resolve}} --accept-loss`",
    State.ABORTED: f"{_BACK}, or, if its rows are not wanted, set commit.log.start={{batch}}",
    State.CLOSED: f"{_BACK}; or, if the query has run without exactly-once until now, or those rows are not wanted, set"
    " commit.log.start={batch} for this start",
}

# A job has one batch, and an id that it has never again: what is in doubt is not to be written by another one as well.
_OF_JOB: Mapping[Reason, str] = {
    **_TO_DO,
    Reason.UNRESOLVED: "run `{resolve} --accept-loss`, which shows what became of each, and commits what can be; what is"
    " committed stays, so run the job again for the lost rows only",
}


def commit_stopped(
    batch: MicroBatch, view: View, reason: Reason, options: str, *, is_invisible: bool = True
) -> CommitStoppedError:
    """Returns the error of a batch whose commit would lose or double rows. is_invisible: nobody can have committed this run's."""
    last = view.last
    said = "no record" if last is None else f"batch {last.batch}, {last.state}, {last.rows:,} rows"
    shown = last.transactions if last is not None and last.batch == batch.number else view.own
    outcomes = view.outcomes or {}
    ordered = sorted(shown, key=lambda each: outcomes.get(each.handle.transactional_id, "") == "committed")  # in doubt: first
    advice = _OF_JOB if batch.is_job else _TO_DO
    to_do = (advice[reason] if last is None or reason is not Reason.UNFINISHED else _UNFINISHED[last.state]).format(
        batch=batch.number,
        again=_again(batch),
        recover=_command("recover", batch, options),
        resolve=_command("resolve", batch, f"--batch {last.batch if last is not None else batch.number} {options}"),
    )
    is_own = last is not None and any(each in last.handles for each in view.own_handles)
    invisible = f" Of this run {rows_of(view.own)} are not visible." if is_invisible and not is_own else ""
    return CommitStoppedError(
        f"{batch}: {reason.value}.{invisible} The log's last word is: {said}."
        f" Transactions: {_handles((each.handle for each in ordered), outcomes)}. To go on: {to_do}",
        reason=reason.name,
        query_id=batch.query_id,
        batch=batch.number,
        rows=view.rows,
        transactional_ids=tuple(each.handle.transactional_id for each in shown),
    )


def checkpoint_deleted(query_id: str, view: View, other: CommitRecord) -> CommitStoppedError:
    """Returns the error of a query without a record, whose checkpoint is where `other`'s query had its own."""
    return CommitStoppedError(
        f"batch {view.batch} of {query_id}: its checkpoint {other.checkpoint} was that of query {other.query_id}, which has"
        f" reached batch {other.batch} ({other.state}): if it was deleted since, this query would write the same rows again, from"
        f" its source's start. {rows_of(view.own)} are not visible. To go on: bring the checkpoint back; or, if they are to"
        f" be written, or that is another machine's folder, set commit.log.start={view.batch} for this start",
        reason="CHECKPOINT_DELETED",
        query_id=query_id,
        batch=view.batch,
        rows=view.rows,
    )


def batch_aborted(batch: MicroBatch, own: Iterable[PreparedTransaction], ended: Iterable[TransactionHandle]) -> BatchAbortedError:
    lost = tuple(ended)
    return BatchAbortedError(
        f"{batch}: nothing that this run wrote of it is visible, nor will be; to write it again, {_again(batch)}."
        f" Of its transactions {len(lost)} were aborted before they could be committed, or had too little"
        f" time left (kafka.transaction.timeout.ms, which a batch and its commit have to be done in; by"
        f" this machine's clock, which must not be ahead of the brokers'): {_handles(lost)}",
        query_id=batch.query_id,
        batch=batch.number,
        rows=sum(each.handle.records for each in own),
        transactional_ids=tuple(each.transactional_id for each in lost),
    )


class RowVisibility(Enum):
    """The visibility of a run's rows, as far as it is known when the time of their commit is over."""

    ABORTED = "None of this run's rows is visible, and its transactions are aborted."
    OPEN = (
        "None of this run's rows is visible, but some of its transactions are open until kafka.transaction.timeout.ms has passed,"
        " or until `{abort}` ends them; consumers that read committed wait for them."
    )
    UNKNOWN = "It is not known whether they are prepared, so some of them may be visible."
    PREPARED = "They are prepared, and some of them may be visible."
    VISIBLE = "All rows of the batch are visible, but the commit log does not say yet that it is complete."


def commit_timeout(
    batch: MicroBatch,
    own: Iterable[PreparedTransaction],
    timeout_s: float,
    error: KafkaSinkError,
    visibility: RowVisibility,
    options: str,
) -> CommitTimeoutError:
    known = visibility.value.format(abort=_command("abort", batch, options))
    if visibility in (RowVisibility.ABORTED, RowVisibility.OPEN):
        to_do = _again(batch) if batch.is_job else f"{_again(batch)}, which writes the batch again"
    elif batch.is_job:
        to_do = (
            f"run `{_command('recover', batch, options)}` within {COMPLETE_FOR_MS // 3_600_000} hours, which ends it and says"
            " what became of it; run the job again only where that says so"
        )
    else:
        to_do = f"{_again(batch)}, and the commit goes on where it was"
    return CommitTimeoutError(
        f"{batch}: {rows_of(own)} could not be committed within {timeout_s:.0f} s: {error.message}. {known} To go on: {to_do}",
        query_id=batch.query_id,
        batch=batch.number,
        standing=visibility.name,
    )


def _command(name: str, batch: MicroBatch, options: str) -> str:
    return f"{_COMMAND} {name} --query {batch.query_id} {options}".rstrip()


def _again(batch: MicroBatch) -> str:
    return "run the job again" if batch.is_job else "start the query again"


def rows_of(transactions: Iterable[PreparedTransaction]) -> str:
    return f"{sum(each.handle.records for each in transactions):,} rows"


def _handles(handles: Iterable[TransactionHandle], outcomes: Mapping[str, str] | None = None) -> str:
    """Names each transaction with its rows, where they are, and what became of it."""
    said = []
    for each in handles:
        where = ", ".join(f"{topic} {numbers}" for topic, numbers in each.partitions)
        outcome = (outcomes or {}).get(each.transactional_id)
        said.append(f"{each.transactional_id}, {each.records:,} rows in {where}{f' ({outcome})' if outcome else ''}")
    more = [f"and {len(said) - _MAX_NAMED} more"] if len(said) > _MAX_NAMED else []
    return "; ".join(said[:_MAX_NAMED] + more) or "none"
