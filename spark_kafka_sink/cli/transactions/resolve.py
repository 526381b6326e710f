"""`transactions resolve`: what becomes of a batch whose transactions were committed in part."""

from __future__ import annotations

from typing import Final

import click

from spark_kafka_sink.cli.transactions.connection import Connection, connected
from spark_kafka_sink.cli.transactions.recover import recovery
from spark_kafka_sink.cli.transactions.resolution import Resolution, resolution
from spark_kafka_sink.cli.transactions.result import Result, transactions_text
from spark_kafka_sink.cli.transactions.settings import ConnectionOptions
from spark_kafka_sink.exactly_once.commit_record import State
from spark_kafka_sink.exactly_once.evidence import Outcome
from spark_kafka_sink.exactly_once.resolving import Means, Refusal
from spark_kafka_sink.exactly_once.share import is_job

_STATES: Final = {Means.ACCEPT_LOSS: State.COMPLETE, Means.REPLAY: State.REPLAY}
_QUESTIONS: Final = {
    Means.ACCEPT_LOSS: "Go on without them?",
    Means.REPLAY: "Have the query write them again?",
}
_DONE: Final = {
    Means.ACCEPT_LOSS: "complete, without {rows:,} rows that are lost; the query goes on with the next batch",
    Means.REPLAY: "{rows:,} rows are to be written again: start the query, it commits them if they are proved the same",
}


def resolve(options: ConnectionOptions, query_id: str, batch: int, *, replay: bool, yes: bool) -> None:
    """Ends with 1 where there is nothing to resolve, it cannot be done, or the question was answered with no."""
    if replay and is_job(query_id):
        raise click.UsageError("a job is not run again under its id, so nothing is replayed: --accept-loss")
    with connected(options) as connection:
        result = _resolved(connection, query_id, batch, Means.REPLAY if replay else Means.ACCEPT_LOSS, yes=yes)
    result.show(as_json=options.as_json)
    if not result.done:
        raise click.exceptions.Exit(1)


def _resolved(connection: Connection, query_id: str, batch: int, means: Means, *, yes: bool) -> Result:
    """First everything is committed that can be, whatever is decided of the rest: `prepared` has promised it."""
    logged = connection.record(query_id)
    if logged is None or not logged.record.transactions:
        why = Refusal.NO_RECORD.value if logged is None else "it has no rows"
        return Result(query_id, batch, False, f"there is nothing to resolve: {why}")
    found = resolution(connection, query_id, batch, Means.RECOVER)
    if found.refusal is None:
        return recovery(query_id, batch, found)
    is_lost = found.refusal is Refusal.UNRESOLVED
    is_given_up = found.refusal is Refusal.TO_BE_REPLAYED and means is Means.ACCEPT_LOSS
    if not is_lost and not is_given_up:
        return Result(query_id, batch, False, f"there is nothing to resolve: {_why(found)}")
    _show(query_id, batch, found)
    if not yes:
        click.confirm(_QUESTIONS[means], abort=True, err=True)
    found = resolution(connection, query_id, batch, means)
    if found.refusal is not None:
        return Result(query_id, batch, False, _why(found), found.lost)
    assert found.record is not None
    if found.record.state is not _STATES[means]:  # what was in doubt is proved by now
        return recovery(query_id, batch, found)
    return Result(query_id, batch, True, _DONE[means].format(rows=found.lost_rows), found.lost)


def _show(query_id: str, batch: int, found: Resolution) -> None:
    """What is at stake, before anything is decided."""
    assert found.record is not None
    visible = found.record.rows - found.lost_rows
    unknown = sum(each.records for each, word in found.lost if word == Outcome.UNKNOWN)
    counts = [f"{visible:,} rows are committed", f"{found.lost_rows - unknown:,} are lost", f"{unknown:,} are unknown"]
    said = ", ".join(counts if unknown else counts[:2])
    click.echo(f"{query_id}, batch {batch}: {said}, in these transactions:", err=True)
    click.echo(transactions_text(found.lost), err=True)
    if any(word == Outcome.UNKNOWN for _, word in found.lost):
        click.echo("What is `unknown` may be visible all the same: nobody can tell any more.", err=True)


def _why(found: Resolution) -> str:
    """Of a refusal."""
    assert found.refusal is not None
    if found.refusal is Refusal.MOVED_ON and found.record is not None:
        return f"the commit log is at batch {found.record.batch}, {found.record.state}"
    return found.refusal.value
