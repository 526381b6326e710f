"""`transactions recover`: what a driver that is gone has prepared is committed; with --all jobs that are over are forgotten."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import click

from spark_kafka_sink.cli.transactions.connection import Connection, connected
from spark_kafka_sink.cli.transactions.overview import COMMAND, how_to_resolve, written_again
from spark_kafka_sink.cli.transactions.resolution import Resolution, resolution
from spark_kafka_sink.cli.transactions.result import Result
from spark_kafka_sink.cli.transactions.settings import ConnectionOptions
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.commit_record_codec import CommitRecordError
from spark_kafka_sink.exactly_once.evidence import Outcome
from spark_kafka_sink.exactly_once.foreign_prefix import foreign_prefix
from spark_kafka_sink.exactly_once.old_jobs import COMPLETE_FOR_MS, old_jobs
from spark_kafka_sink.exactly_once.resolving import NOTHING_TO_RESOLVE, Means, Refusal
from spark_kafka_sink.exactly_once.share import is_job

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
    """query_id: None for all. Ends with 1 where one of them could not be committed, after all others were, and where there is no
    commit log."""
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
        *(_unread(error) for error in logged.unreadable),
    ]


def _one(connection: Connection, query_id: str) -> Result:
    """Somebody asks what became of it: that is said in any case."""
    # What is open is asked for before the log is read: what was prepared and committed between the two would be in neither.
    is_open = is_job(query_id) and bool(connection.transactions.open_handles(connection.ids(query_id), connection.deadline()))
    logged = connection.record(query_id)
    if logged is None:
        raise click.ClickException(f"{query_id}: {Refusal.NO_RECORD.value}{_unrecorded(query_id, is_open=is_open)}")
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


def _unrecorded(query_id: str, *, is_open: bool) -> str:
    if not is_job(query_id):
        return ""
    first = f"{COMMAND} abort --query {query_id}, as it has open transactions, and then " if is_open else ""
    hours = COMPLETE_FOR_MS // 3_600_000
    return f"; if it failed less than {hours} hours ago, nothing of it is visible: {first}{written_again(query_id)}"


def _unread(error: CommitRecordError) -> Result:
    return Result(str(error.facts.get("query_id", error.facts["topic"])), None, False, str(error))


def _recovered(connection: Connection, record: CommitRecord) -> Result:
    """What is wrong with one keeps no other from being committed."""
    if not record.transactions:
        # Nobody can tell that its driver has this prefix, and would be kept from writing; nor does anybody wait for it.
        return Result(record.query_id, record.batch, True, "there is nothing to commit: it has no rows")
    try:
        found = resolution(connection, record.query_id, record.batch, Means.RECOVER)
    except KafkaSinkError as error:
        return Result(record.query_id, record.batch, False, str(error))
    return recovery(record.query_id, record.batch, found)


def recovery(query_id: str, batch: int, found: Resolution) -> Result:
    """What came of committing all that is prepared."""
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
