"""`transactions recover` and `resolve`: commit what is prepared, and decide on a batch that was committed in part."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click

from spark_kafka_sink.cli.transactions.connection import Connection, ConnectionOptions, connected
from spark_kafka_sink.cli.transactions.result import COMMAND, Result, how_to_resolve, transactions_text, written_again
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.exactly_once import resolving
from spark_kafka_sink.exactly_once.commit_log import COMPLETE_FOR_MS, old_jobs
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.execution import Execution
from spark_kafka_sink.exactly_once.micro_batch import is_job
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.exactly_once.resolving import NOTHING_TO_RESOLVE, Refusal, Refused, Resolution
from spark_kafka_sink.exactly_once.rules import View, Write
from spark_kafka_sink.exactly_once.transactional_ids import foreign_prefix
from spark_kafka_sink.producer.transactions.handle import TransactionHandle


@dataclass(frozen=True, slots=True)
class ResolvedBatch:
    """The outcome of a batch. refusal: why nothing was written, None where something was. record: the query's last one now.
    lost: what is not committed, with what is proved of it."""

    refusal: Refusal | None
    record: CommitRecord | None
    lost: tuple[tuple[TransactionHandle, str], ...] = ()

    @property
    def lost_rows(self) -> int:
        return sum(each.records for each, _ in self.lost)


def resolve_batch(connection: Connection, query_id: str, batch: int, resolution: Resolution) -> ResolvedBatch:
    """Commits what can be committed of a prepared batch, and ends the rest as `resolution` says.

    It claims the log, as any commit does. What had been written when the claim was lost is no refusal at the next attempt.
    """
    written = list[Write]()

    def decide(view: View) -> object:
        step = resolving.resolve(view, resolution)
        if isinstance(step, Write):
            written.append(step)
        return step

    def finish(execution: Execution, end: object) -> ResolvedBatch:
        assert isinstance(end, Refused)
        is_written = any(end.refusal is NOTHING_TO_RESOLVE[each.state] for each in written)
        refusal, last = None if is_written else end.refusal, execution.view.last
        if last is None:
            return ResolvedBatch(refusal, None)
        outcomes = execution.view.outcomes or {}
        words = {each: str(outcomes.get(each, Outcome.UNKNOWN)) for each in end.transactional_ids}
        words = words or dict.fromkeys(last.aborted, str(Outcome.ABORTED))
        lost = ((each, words[each.transactional_id]) for each in last.handles if each.transactional_id in words)
        return ResolvedBatch(refusal, last, tuple(lost))

    return connection.carry_out(query_id, View(batch, ()), decide, finish)


# recover

# By the state that was written.
_ENDED: Final[Mapping[State, str]] = {
    State.COMPLETE: "committed, with {rows:,} rows",
    State.ABORTED: "the brokers have aborted all of its transactions, nothing of it is visible: {again}",
    State.REPLAY: "the brokers have aborted what was written again, too: {again}",
}
# By the last state, where nothing is prepared.
_OVER: Final[Mapping[State, str]] = {
    State.COMPLETE: "all {rows:,} rows of the batch are visible{do_not}",
    State.ABORTED: "nothing of the batch is visible, {again}",
    State.CLOSED: "nothing of it is visible, {again}",
    State.REPLAY: "lost rows are to be written again, {again}",
}
# The query's driver, or another command, has ended it.
_NOTHING_TO_COMMIT: Final = frozenset({*NOTHING_TO_RESOLVE.values(), Refusal.MOVED_ON})


def recover(options: ConnectionOptions, query_id: str | None) -> None:
    """Commits what is prepared of one query or job, or of all for None.

    Exits with 1 where one of them could not be committed, after all others were, and where there is no commit log.
    """
    with connected(options) as connection:
        results = _all(connection) if query_id is None else [_one(connection, query_id)]
    for result in results:
        result.show(as_json=options.as_json)
    if not results and not options.as_json:
        # It says what was looked at: another prefix may have something.
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
    """Says in any case what became of a query or job, because somebody asks."""
    # What is open is asked for before the log is read: what was prepared and committed between the two would be in neither.
    is_open = is_job(query_id) and bool(connection.transactions.open_handles(connection.ids(query_id), connection.deadline()))
    logged = connection.record(query_id)
    if logged is None:
        hours = COMPLETE_FOR_MS // 3_600_000
        first = f"{COMMAND} abort --query {query_id}, as it has open transactions, and then " if is_open else ""
        advice = f"; if it failed less than {hours} hours ago, nothing of it is visible: {first}{written_again(query_id)}"
        raise click.ClickException(f"{query_id}: {Refusal.NO_RECORD.value}{advice if is_job(query_id) else ''}")
    if logged.record.state is State.PREPARED:
        return _recovered(connection, logged.record)
    return Result(query_id, logged.record.batch, True, f"nothing is prepared: {_over(logged.record)}")


def _over(record: CommitRecord) -> str:
    lost = sum(each.records for each in record.aborted_handles)
    if record.state is State.COMPLETE and lost:
        return f"{record.rows - lost:,} rows of the batch are visible; {lost:,} are lost, which somebody has accepted"
    again = written_again(record.query_id)
    do_not = f"; do not {again}" if is_job(record.query_id) else ""
    return _OVER[record.state].format(rows=record.rows, do_not=do_not, again=again)


def _recovered(connection: Connection, record: CommitRecord) -> Result:
    """Returns an error of one query as its result, so that all others are still committed."""
    if not record.transactions:
        # Nobody can tell that its driver has this prefix, and would be kept from writing; nor does anybody wait for it.
        return Result(record.query_id, record.batch, True, "there is nothing to commit: it has no rows")
    try:
        found = resolve_batch(connection, record.query_id, record.batch, Resolution.RECOVER)
    except KafkaSinkError as error:
        return Result(record.query_id, record.batch, False, str(error))
    return recovery(record.query_id, record.batch, found)


def recovery(query_id: str, batch: int, found: ResolvedBatch) -> Result:
    """Returns what came of committing all that is prepared."""
    last = found.record
    if found.refusal is None:
        assert last is not None
        return Result(query_id, batch, True, _ENDED[last.state].format(rows=last.rows, again=written_again(query_id)))
    is_done = found.refusal in _NOTHING_TO_COMMIT
    text = found.refusal.value
    if found.refusal is Refusal.UNRESOLVED:
        is_proved = all(word == Outcome.ABORTED for _, word in found.lost)
        count, to_do = len(found.lost), f"{COMMAND} {how_to_resolve(query_id, batch, is_proved=is_proved)}"
        text = f"{count} of its transactions with {found.lost_rows:,} rows are not committed: {to_do}"
    return Result(query_id, batch, is_done, text, found.lost)


def _forgotten(connection: Connection, record: CommitRecord) -> Result:
    try:
        is_gone = connection.forget(record)
    except KafkaSinkError as error:
        return Result(record.query_id, record.batch, False, str(error))
    return Result(record.query_id, record.batch, True, "the job is over, and forgotten" if is_gone else "the job is not over")


# resolve

_STATES: Final = {Resolution.ACCEPT_LOSS: State.COMPLETE, Resolution.REPLAY: State.REPLAY}
_QUESTIONS: Final = {
    Resolution.ACCEPT_LOSS: "Go on without them?",
    Resolution.REPLAY: "Have the query write them again?",
}
_DONE: Final = {
    Resolution.ACCEPT_LOSS: "complete, without {rows:,} rows that are lost; the query goes on with the next batch",
    Resolution.REPLAY: "{rows:,} rows are to be written again: start the query, it commits them if they are proved the same",
}


def resolve(options: ConnectionOptions, query_id: str, batch: int, *, replay: bool, yes: bool) -> None:
    """Decides on a batch that was committed in part.

    Exits with 1 where there is nothing to resolve, it cannot be done, or the question was answered with no.
    """
    if replay and is_job(query_id):
        raise click.UsageError("a job is not run again under its id, so nothing is replayed: --accept-loss")
    with connected(options) as connection:
        result = _resolved(connection, query_id, batch, Resolution.REPLAY if replay else Resolution.ACCEPT_LOSS, yes=yes)
    result.show(as_json=options.as_json)
    if not result.done:
        raise click.exceptions.Exit(1)


def _resolved(connection: Connection, query_id: str, batch: int, resolution: Resolution, *, yes: bool) -> Result:
    """Commits first everything that can be, whatever is decided on the rest: `prepared` has promised it."""
    logged = connection.record(query_id)
    if logged is None or not logged.record.transactions:
        why = Refusal.NO_RECORD.value if logged is None else "it has no rows"
        return Result(query_id, batch, False, f"there is nothing to resolve: {why}")
    found = resolve_batch(connection, query_id, batch, Resolution.RECOVER)
    if found.refusal is None:
        return recovery(query_id, batch, found)
    is_lost = found.refusal is Refusal.UNRESOLVED
    is_given_up = found.refusal is Refusal.TO_BE_REPLAYED and resolution is Resolution.ACCEPT_LOSS
    if not is_lost and not is_given_up:
        return Result(query_id, batch, False, f"there is nothing to resolve: {_why(found)}")
    _show(query_id, batch, found)
    if not yes:
        click.confirm(_QUESTIONS[resolution], abort=True, err=True)
    found = resolve_batch(connection, query_id, batch, resolution)
    if found.refusal is not None:
        return Result(query_id, batch, False, _why(found), found.lost)
    assert found.record is not None
    if found.record.state is not _STATES[resolution]:  # what was in doubt is proved by now
        return recovery(query_id, batch, found)
    return Result(query_id, batch, True, _DONE[resolution].format(rows=found.lost_rows), found.lost)


def _show(query_id: str, batch: int, found: ResolvedBatch) -> None:
    """Prints what is at stake, before anything is decided."""
    assert found.record is not None
    visible = found.record.rows - found.lost_rows
    unknown = sum(each.records for each, word in found.lost if word == Outcome.UNKNOWN)
    counts = [f"{visible:,} rows are committed", f"{found.lost_rows - unknown:,} are lost", f"{unknown:,} are unknown"]
    said = ", ".join(counts if unknown else counts[:2])
    click.echo(f"{query_id}, batch {batch}: {said}, in these transactions:", err=True)
    click.echo(transactions_text(found.lost), err=True)
    if any(word == Outcome.UNKNOWN for _, word in found.lost):
        click.echo("What is `unknown` may be visible all the same: nobody can tell any more.", err=True)


def _why(found: ResolvedBatch) -> str:
    """Returns the reason of a refusal."""
    assert found.refusal is not None
    if found.refusal is Refusal.MOVED_ON and found.record is not None:
        return f"the commit log is at batch {found.record.batch}, {found.record.state}"
    return found.refusal.value
