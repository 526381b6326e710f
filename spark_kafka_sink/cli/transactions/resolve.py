"""`transactions recover` and `resolve`: commit prepared transactions, and resolve a batch that is only partly committed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import click

from spark_kafka_sink.cli.shared_options import TransactionsOptions
from spark_kafka_sink.cli.transactions.abort import check_not_committed
from spark_kafka_sink.cli.transactions.connection import Connection, connected
from spark_kafka_sink.cli.transactions.result import COMMAND, Result, how_to_resolve, transactions_text, written_again
from spark_kafka_sink.client.topics import records_are_gone
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.exactly_once import recovery_rules
from spark_kafka_sink.exactly_once.commit_log import COMPLETE_FOR_MS, old_jobs
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.commit_rules import View, Write
from spark_kafka_sink.exactly_once.execution import Execution
from spark_kafka_sink.exactly_once.micro_batch import foreign_prefix, is_job
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.exactly_once.recovery_rules import NOTHING_TO_RESOLVE, Refusal, Refused, Resolution
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

_NO_PROOFS: Final[Mapping[TransactionHandle, Outcome]] = {}


@dataclass(frozen=True, slots=True)
class ResolvedBatch:
    """The outcome of a batch.

    Attributes:
        refusal: why nothing was written; None if something was.
        record: the query's last record now.
        lost: the uncommitted transactions, each with its proved outcome.
    """

    refusal: Refusal | None
    record: CommitRecord | None
    lost: tuple[tuple[TransactionHandle, str], ...] = ()

    @property
    def lost_rows(self) -> int:
        return sum(each.records for each, _ in self.lost)


def resolve_batch(
    connection: Connection,
    query_id: str,
    batch: int,
    resolution: Resolution,
    proofs: Mapping[TransactionHandle, Outcome] = _NO_PROOFS,
) -> ResolvedBatch:
    """Commits what can be committed of a prepared batch, and ends the rest according to `resolution`.

    proofs: outcomes of transactions, which count where the coordinators' responses prove nothing.

    It claims the log, as any commit does. A record that it wrote before it lost the claim does not count as a refusal at the next
    attempt.
    """
    written = list[Write]()

    def decide(view: View) -> object:
        step = recovery_rules.resolve(recovery_rules.with_proofs(view, proofs), resolution)
        if isinstance(step, Write):
            written.append(step)
        return step

    def finish(execution: Execution, end: object) -> ResolvedBatch:
        assert isinstance(end, Refused)
        is_written = any(end.refusal is NOTHING_TO_RESOLVE.get(each.state) for each in written)
        refusal, last = None if is_written else end.refusal, execution.view.last
        if last is None:
            return ResolvedBatch(refusal, None)
        outcomes = recovery_rules.with_proofs(execution.view, proofs).outcomes or {}
        words = {each: str(outcomes.get(each, Outcome.UNKNOWN)) for each in end.transactional_ids}
        words = words or dict.fromkeys(last.aborted, str(Outcome.ABORTED))
        lost = ((each, words[each.transactional_id]) for each in last.handles if each.transactional_id in words)
        return ResolvedBatch(refusal, last, tuple(lost))

    return connection.carry_out(query_id, View(batch, ()), decide, finish)


# recover

# By the state that was written.
_ENDED: Final[Mapping[State, str]] = {
    State.COMPLETE: "committed, with {rows}",
    State.ABORTED: "the brokers aborted all of its transactions, so none of its rows are visible: {again}",
    State.REPLAY: "the brokers aborted the rewritten rows too: {again}",
}
# By the last state, if nothing is prepared.
_OVER: Final[Mapping[State, str]] = {
    State.COMPLETE: "all rows of the batch are visible ({rows}){do_not}",
    State.ABORTED: "no rows of the batch are visible; {again}",
    State.CLOSED: "none of its rows are visible; {again}",
    State.REPLAY: "lost rows must be written again; {again}",
}
# The query's driver or another command has ended it.
_NOTHING_TO_COMMIT: Final = frozenset({*NOTHING_TO_RESOLVE.values(), Refusal.MOVED_ON})


def recover(options: TransactionsOptions, query_id: str | None) -> None:
    """Commits the prepared transactions of one query or job, or of all if `query_id` is None.

    Exits with 1 if there is no commit log, or if one of them could not be committed. The others are committed first.
    """
    with connected(options) as connection:
        results = _all(connection) if query_id is None else [_one(connection, query_id)]
    for result in results:
        result.show(as_json=options.as_json)
    if not results and not options.as_json:
        # The message names the prefix, because another prefix may have something.
        click.echo(f"Nothing is prepared under the prefix {options.prefix}.")
    if not all(result.done for result in results):
        raise click.exceptions.Exit(1)


def _all(connection: Connection) -> list[Result]:
    logged = connection.records(connection.deadline())
    own = [each for each in logged.records.values() if foreign_prefix(connection.prefix, each.record) is None]
    prepared = [each.record for each in own if each.record.state is State.PREPARED]
    old = old_jobs(own, connection.prefix, time.time_ns() // 1_000_000)
    return [
        *(_recovered(connection, record) for record in prepared),
        *(_forgotten(connection, record) for record in old),
        *(Result(str(error.facts.get("query_id", error.facts["topic"])), None, False, str(error)) for error in logged.unreadable),
    ]


def _one(connection: Connection, query_id: str) -> Result:
    """Returns the state of a query or job in any case, because the user asked about it."""
    # Open transactions are listed before the log is read. One prepared and committed in between would be in neither.
    is_open = is_job(query_id) and bool(connection.transactions.open_handles(connection.ids(query_id), connection.deadline()))
    logged = connection.record(query_id)
    if logged is None and is_job(query_id):
        check_not_committed(connection, query_id)
    if logged is None:
        hours = COMPLETE_FOR_MS // 3_600_000
        first = f"run {COMMAND} abort --query {query_id}, because it has open transactions, and then " if is_open else ""
        advice = f"; if it failed less than {hours} hours ago, none of its rows are visible: {first}{written_again(query_id)}"
        raise click.ClickException(f"{query_id}: {Refusal.NO_RECORD.value}{advice if is_job(query_id) else ''}")
    if logged.record.state is State.PREPARED:
        return _recovered(connection, logged.record)
    return Result(query_id, logged.record.batch, True, f"nothing is prepared: {_over(logged.record)}")


def _over(record: CommitRecord) -> str:
    lost = sum(each.records for each in record.aborted_handles)
    if record.state is State.COMPLETE and lost:
        visible = counted(record.rows - lost, "row of the batch is", "rows of the batch are")
        return f"{visible} visible; {counted(lost, 'is', 'are')} lost, and the loss was accepted{_gone(record)}"
    again = written_again(record.query_id)
    do_not = f"; do not {again}" if is_job(record.query_id) else ""
    return _OVER[record.state].format(rows=counted(record.rows, "row"), do_not=do_not, again=again) + _gone(record)


def _gone(record: CommitRecord) -> str:
    return f", but {records_are_gone(record.gone)}" if record.gone else ""


def _recovered(connection: Connection, record: CommitRecord) -> Result:
    """Commits one query. It returns errors as the result, so that the others are still committed."""
    if not record.transactions:
        # Its driver may have another prefix, so claiming would not fence it. Nothing waits for this batch either.
        return Result(record.query_id, record.batch, True, "there is nothing to commit, because it has no rows")
    try:
        found = resolve_batch(connection, record.query_id, record.batch, Resolution.RECOVER)
    except KafkaSinkError as error:
        return Result(record.query_id, record.batch, False, str(error))
    return recovery(record.query_id, record.batch, found)


def recovery(query_id: str, batch: int, found: ResolvedBatch) -> Result:
    """Returns the result of committing everything that is prepared."""
    last = found.record
    if found.refusal is None:
        assert last is not None
        text = _ENDED[last.state].format(rows=counted(last.rows, "row"), again=written_again(query_id))
        return Result(query_id, batch, True, f"{text}{_gone(last)}")
    is_done = found.refusal in _NOTHING_TO_COMMIT
    text = found.refusal.value
    if found.refusal is Refusal.UNRESOLVED:
        count, to_do = len(found.lost), f"{COMMAND} {how_to_resolve(query_id, batch)}"
        rows, verb = counted(found.lost_rows, "row"), "is" if count == 1 else "are"
        text = f"{count} of its transactions with {rows} {verb} not committed: {to_do}"
    return Result(query_id, batch, is_done, text, found.lost)


def _forgotten(connection: Connection, record: CommitRecord) -> Result:
    try:
        is_gone = connection.forget(record)
    except KafkaSinkError as error:
        return Result(record.query_id, record.batch, False, str(error))
    return Result(
        record.query_id, record.batch, True, "the job has ended and is forgotten" if is_gone else "the job has not ended"
    )


# resolve

_STATES: Final = {Resolution.ACCEPT_LOSS: State.COMPLETE, Resolution.REPLAY: State.REPLAY}
_QUESTIONS: Final = {
    Resolution.ACCEPT_LOSS: "Continue without these rows?",
    Resolution.REPLAY: "Have the query write these rows again?",
}
_DONE: Final = {
    Resolution.ACCEPT_LOSS: "complete, without {lost}; the query continues with the next batch",
    Resolution.REPLAY: "{rows} will be written again: start the query, which commits them if they are unchanged",
}


def resolve(options: TransactionsOptions, query_id: str, batch: int, *, replay: bool, yes: bool) -> None:
    """Resolves a batch that is only partly committed.

    Exits with 1 if there is nothing to resolve, if it cannot be done, or if the user declines.
    """
    if replay and is_job(query_id):
        raise click.UsageError("a job cannot be replayed, because it never runs again under the same id: use --accept-loss")
    with connected(options) as connection:
        result = _resolved(connection, query_id, batch, Resolution.REPLAY if replay else Resolution.ACCEPT_LOSS, yes=yes)
    result.show(as_json=options.as_json)
    if not result.done:
        raise click.exceptions.Exit(1)


def _resolved(connection: Connection, query_id: str, batch: int, resolution: Resolution, *, yes: bool) -> Result:
    """First commits everything that can be committed, as `prepared` promises, whatever is decided about the rest."""
    logged = connection.record(query_id)
    if logged is None or not logged.record.transactions:
        why = Refusal.NO_RECORD.value if logged is None else "the batch has no rows"
        return Result(query_id, batch, False, f"there is nothing to resolve: {why}")
    found = resolve_batch(connection, query_id, batch, Resolution.RECOVER)
    if found.refusal is None:
        return recovery(query_id, batch, found)
    is_lost = found.refusal is Refusal.UNRESOLVED
    is_given_up = found.refusal is Refusal.TO_BE_REPLAYED and resolution is Resolution.ACCEPT_LOSS
    if not is_lost and not is_given_up:
        return Result(query_id, batch, False, f"there is nothing to resolve: {_why(found)}")
    proofs, reasons = dict[TransactionHandle, Outcome](), list[str]()
    unknown = [each for each, word in found.lost if word == Outcome.UNKNOWN]
    if resolution is Resolution.REPLAY and unknown:
        proofs, reasons = connection.look_for_markers(unknown, logged.written_ms)
        lost = ((each, str(proofs.get(each, word))) for each, word in found.lost)
        found = replace(found, lost=tuple((each, word) for each, word in lost if word != Outcome.COMMITTED))
    if found.lost:
        _show(query_id, batch, found)
        if not yes:
            click.confirm(_QUESTIONS[resolution], abort=True, err=True)
    found = resolve_batch(connection, query_id, batch, resolution, proofs)
    if found.refusal is not None:
        return Result(query_id, batch, False, "; ".join((_why(found), *reasons)), found.lost)
    assert found.record is not None
    if found.record.state is not _STATES[resolution]:  # the outcome in doubt is proved by now
        return recovery(query_id, batch, found)
    return Result(
        query_id,
        batch,
        True,
        _DONE[resolution].format(rows=counted(found.lost_rows, "row"), lost=counted(found.lost_rows, "lost row")),
        found.lost,
    )


def _show(query_id: str, batch: int, found: ResolvedBatch) -> None:
    """Prints the committed, lost and unknown rows before the decision."""
    assert found.record is not None
    visible = found.record.rows - found.lost_rows
    unknown = sum(each.records for each, word in found.lost if word == Outcome.UNKNOWN)
    lost = found.lost_rows - unknown
    counts = [
        f"{counted(visible, 'row is', 'rows are')} committed",
        f"{counted(lost, 'is', 'are')} lost",
        f"{counted(unknown, 'is', 'are')} unknown",
    ]
    said = ", ".join(counts if unknown else counts[:2])
    click.echo(f"{query_id}, batch {batch}: {said}, in these transactions:", err=True)
    click.echo(transactions_text(found.lost), err=True)
    if any(word == Outcome.UNKNOWN for _, word in found.lost):
        click.echo("Transactions in state `unknown` may be visible: their outcome is not proved.", err=True)


def _why(found: ResolvedBatch) -> str:
    """Returns the reason for a refusal."""
    assert found.refusal is not None
    if found.refusal is Refusal.MOVED_ON and found.record is not None:
        return f"the commit log is at batch {found.record.batch}, {found.record.state}"
    return found.refusal.value
