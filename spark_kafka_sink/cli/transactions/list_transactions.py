"""`transactions list`: lists open transactions of every query and job, and what to do about them. Changes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import click

from spark_kafka_sink.cli.shared_options import TransactionsOptions
from spark_kafka_sink.cli.transactions.connection import Connection, connected
from spark_kafka_sink.cli.transactions.result import (
    age,
    handle_json,
    how_to_resolve,
    partitions_text,
    rows_text,
    text_table,
    written_again,
)
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.exactly_once.commit_log import LastRecords, LoggedRecord
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.commit_rules import key
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds, foreign_prefix, is_job
from spark_kafka_sink.exactly_once.proof import Proof, TransactionDescription, proof_of
from spark_kafka_sink.exactly_once.transaction_client import ONGOING, PREPARE_COMMIT, is_unlisted
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.reports.report_facts import printable


def list_transactions(options: TransactionsOptions) -> None:
    """Prints the open transactions of every query and job.

    Exits with 1 if brokers do not answer or refuse to, or if a part of the commit log cannot be read. If there is no commit log,
    it prints a note to stderr. If brokers do not list transactions, it prints those in the commit log, and exits with 1.
    """
    with connected(options) as connection:
        has_log = connection.has_log(connection.deadline())
        lines, notes = _lines(connection, has_log=has_log)
    now_ms = time.time_ns() // 1_000_000
    if options.as_json:
        for line in lines:
            click.echo(json.dumps(_json(line)))
    else:
        click.echo(_text(lines, options, now_ms, is_listed=not any(map(is_unlisted, notes))))
    if not has_log:
        click.echo(f"Note: {connection.no_log}", err=True)
    for error in notes:
        click.echo(f"Note: {error}", err=True)
    if notes:
        raise click.exceptions.Exit(1)


def _lines(connection: Connection, *, has_log: bool) -> tuple[list[QueryLine], list[KafkaSinkError]]:
    """Returns the lines, and the errors of what they do not show: log records that cannot be read, and unlisted transactions."""
    # Open transactions are listed before the log is read, so that one prepared in between does not look like an orphan.
    deadline = connection.deadline()
    ids, notes = _open_ids(connection, deadline)
    by_query = {each: query_id for each in ids if (query_id := query_of(connection.prefix, each)) is not None}
    logged = connection.records(deadline) if has_log else LastRecords()
    records = logged.records
    asked = {*by_query, *asked_about(connection.prefix, (each.record for each in records.values()))}
    described = connection.transactions.describe(asked, deadline)
    listed: dict[str, tuple[TransactionHandle, ...]] = {}
    for each, query_id in by_query.items():
        said = described.get(each)
        if said is not None and said.state in _SHOWN:
            handle = TransactionHandle(each, said.producer_id, said.epoch, 0, 0, said.partitions)
            listed[query_id] = (*listed.get(query_id, ()), handle)
    lines = overview(connection.prefix, records, listed, described, time.time_ns() // 1_000_000)
    if has_log:
        # A record that this version cannot read may have prepared the open transactions.
        unread = {error.facts.get("query_id") for error in logged.unreadable}
        to_do = "its commit log record cannot be read: see the note below"
        lines = [replace(line, to_do=to_do) if line.query_id in unread else line for line in lines]
        return lines, [*notes, *logged.unreadable]
    # A log with another name may say that these are prepared, so none of them may be aborted.
    to_do = f"{connection.no_log}; if there never was one, the transactions end when they time out"
    return [replace(line, to_do=to_do) for line in lines], notes


def _open_ids(connection: Connection, deadline: float) -> tuple[list[str], list[KafkaSinkError]]:
    """Returns the ids of all open transactions; without them the error, if brokers do not list transactions."""
    try:
        return connection.transactions.list_open(f"{connection.prefix}.", deadline, states=_SHOWN), []
    except KafkaSinkError as error:
        if not is_unlisted(error):
            raise
        return [], [error]


def _text(lines: list[QueryLine], options: TransactionsOptions, now_ms: int, *, is_listed: bool) -> str:
    if not lines and not is_listed:
        return f"{options.commit_log_topic} is empty."
    if not lines:
        return f"No transactions are open under the prefix {options.prefix}, and {options.commit_log_topic} is empty."
    head = ("QUERY", "NAME", "CHECKPOINT", "BATCH", "STATE", "ROWS", "WRITTEN", "OPEN", "TO DO")
    parts = [text_table(head, [_query_row(line, now_ms) for line in lines])]
    rows = [
        (
            each.handle.transactional_id,
            each.status,
            *("-" if ms is None else age(ms) for ms in (each.age_ms, each.left_ms)),
            rows_text(each.handle),
            partitions_text(each.handle.partitions),
        )
        for line in lines
        for each in line.transactions
    ]
    if rows:
        parts.append(text_table(("TRANSACTION", "STATE", "AGE", "TIMES OUT IN", "ROWS", "PARTITIONS"), rows))
    return "\n\n".join(parts)


def _query_row(line: QueryLine, now_ms: int) -> tuple[str, ...]:
    count = str(sum(each.age_ms is not None for each in line.transactions))
    if line.record is None or line.written_ms is None:
        return line.query_id, "-", "-", "-", "no record", "-", "-", count, line.to_do
    record = line.record
    written = f"{_iso(line.written_ms)} ({age(now_ms - line.written_ms)} ago)"
    name, checkpoint = (printable(each) or "-" for each in (record.name, record.checkpoint))
    done = str(record.batch), record.state, f"{record.rows:,}", written
    return line.query_id, name, checkpoint, *done, count, line.to_do or "-"


def _json(line: QueryLine) -> Mapping[str, object]:
    record = line.record
    return {
        "query_id": line.query_id,
        "name": None if record is None else record.name or None,
        "checkpoint": None if record is None else record.checkpoint or None,
        "batch": None if record is None else record.batch,
        "state": None if record is None else record.state,
        "rows": None if record is None else record.rows,
        "written": None if line.written_ms is None else _iso(line.written_ms),
        "to_do": line.to_do,
        "transactions": [
            {**handle_json(each.handle), "state": each.status, "age_ms": each.age_ms, "times_out_in_ms": each.left_ms}
            for each in line.transactions
        ],
    }


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# The overview (pure functions)


class TransactionStatus(StrEnum):
    """The known status of a transaction.

    PREPARED: open, will be committed.
    COMMITTING: committed, and visible when the brokers have written its markers.
    COMMITTED, ABORTED: proved to be so. UNKNOWN: neither is proved.
    CLOSED: open, will be aborted on request.
    ORPHAN: open, without a record in the log.
    """

    PREPARED = "prepared"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    CLOSED = "closed"
    ORPHAN = "orphan"


_STATUSES: Final[Mapping[Proof, TransactionStatus]] = {
    Proof.OPEN: TransactionStatus.PREPARED,
    Proof.COMMITTED: TransactionStatus.COMMITTED,
    Proof.ABORTED: TransactionStatus.ABORTED,
    Proof.UNKNOWN: TransactionStatus.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class TransactionLine:
    """A transaction that readers wait for, or a prepared one.

    age_ms: time since it began; None if it has ended. left_ms: time until its coordinator aborts it; None if it is not open.
    """

    handle: TransactionHandle
    status: TransactionStatus
    age_ms: int | None
    left_ms: int | None


@dataclass(frozen=True, slots=True)
class QueryLine:
    """A query or job. record: None if the log has none. written_ms: its time since the epoch. to_do: "" for nothing."""

    query_id: str
    record: CommitRecord | None
    written_ms: int | None
    transactions: tuple[TransactionLine, ...]
    to_do: str


Described = Mapping[str, TransactionDescription]


def query_of(prefix: str, transactional_id: str) -> str | None:
    """Returns the query that a task's id belongs to; None for another prefix's or the commit log's id."""
    query_id = transactional_id.removeprefix(f"{prefix}.").partition(".")[0]
    return query_id if TransactionalIds(prefix, query_id).owns(transactional_id) else None


def asked_about(prefix: str, records: Iterable[CommitRecord]) -> list[str]:
    """Returns the transactional ids of records whose transactions may still be open."""
    own = (record for record in records if foreign_prefix(prefix, record) is None)
    return [each.transactional_id for record in own for each in _unfinished(record)]


def overview(
    prefix: str,
    records: Mapping[str, LoggedRecord],
    listed: Mapping[str, tuple[TransactionHandle, ...]],
    described: Described,
    now_ms: int,
) -> list[QueryLine]:
    """Returns a line for each query and job. Those that need action come first.

    Args:
        prefix: the prefix of transactional ids. The line of a query with another prefix says only that.
        records: the last record of each query.
        listed: the open transactions of each query.
        described: descriptions of all open transactions and of those in `asked_about`.
        now_ms: the time in ms since the epoch.
    """
    lines = [
        _line(prefix, query_id, records.get(query_id), listed.get(query_id, ()), described, now_ms)
        for query_id in sorted({*records, *listed})
    ]
    return sorted(lines, key=lambda line: not line.to_do)


def _line(
    prefix: str,
    query_id: str,
    found: LoggedRecord | None,
    listed: tuple[TransactionHandle, ...],
    described: Described,
    now_ms: int,
) -> QueryLine:
    record, written_ms = (found.record, found.written_ms) if found is not None else (None, None)
    other = foreign_prefix(prefix, record) if record is not None else None
    if record is not None and other is not None:
        return QueryLine(query_id, record, written_ms, (), "" if record.state is State.COMPLETE else f"list --prefix {other}")
    known = _known(record, described) if record is not None else {}
    keys = {key(each) for each in known} | {
        (each.transactional_id, described[each.transactional_id].producer_id, described[each.transactional_id].epoch)
        for each, status in known.items()
        if status is TransactionStatus.COMMITTING  # the coordinator has bumped its epoch
    }
    others = [
        (each, TransactionStatus.COMMITTING if _is_committing(each, described) else TransactionStatus.ORPHAN)
        for each in listed
        if key(each) not in keys
    ]
    lines = tuple(_transaction(each, status, described, now_ms) for each, status in (*known.items(), *others))
    return QueryLine(query_id, record, written_ms, lines, _to_do(query_id, record, {line.status for line in lines}))


def _unfinished(record: CommitRecord) -> tuple[TransactionHandle, ...]:
    return record.to_commit if record.state is State.PREPARED else record.aborted_handles


def _known(record: CommitRecord, described: Described) -> dict[TransactionHandle, TransactionStatus]:
    """Returns the transactions of a record to show: unfinished and lost ones."""
    if record.state is State.REPLAY:
        return dict.fromkeys(record.aborted_handles, TransactionStatus.ABORTED)
    proofs = {each: proof_of(each, described.get(each.transactional_id)) for each in _unfinished(record)}
    if record.state is State.PREPARED:
        return {
            each: TransactionStatus.COMMITTING
            if proof is Proof.COMMITTED and _is_committing(each, described)
            else _STATUSES[proof]
            for each, proof in proofs.items()
        }
    return {each: TransactionStatus.CLOSED for each, proof in proofs.items() if proof is Proof.OPEN}


def _is_committing(handle: TransactionHandle, described: Described) -> bool:
    said = described.get(handle.transactional_id)
    return said is not None and said.state == PREPARE_COMMIT


def _transaction(handle: TransactionHandle, status: TransactionStatus, described: Described, now_ms: int) -> TransactionLine:
    said = described.get(handle.transactional_id)
    is_open = said is not None and (said.state, said.producer_id, said.epoch) == (ONGOING, handle.producer_id, handle.epoch)
    if said is None or not (is_open or status is TransactionStatus.COMMITTING):
        return TransactionLine(handle, status, None, None)
    age_ms = max(0, now_ms - said.start_time_ms)  # the start is by the brokers' clock, now is by ours
    return TransactionLine(handle, status, age_ms, max(0, said.timeout_ms - age_ms) if is_open else None)


_SHOWN: Final = (ONGOING, PREPARE_COMMIT)
_COMMITTING: Final = "its rows are visible when the brokers have written the markers; if they do not, see docs/support.md"
_ORPHANS: Final = "if it no longer runs: abort --query {id}; if it runs, its {next}commit ends them"
# By the state of the last record, if no transactions are open.
_TO_DO: Final[Mapping[State, str]] = {
    State.COMPLETE: "",
    State.ABORTED: "{again}",
    State.CLOSED: "{again}",
    State.REPLAY: "restart the query to write the lost rows again",
}


def _to_do(query_id: str, record: CommitRecord | None, statuses: set[TransactionStatus]) -> str:
    if record is not None and record.state is State.PREPARED:
        text = _of_prepared(query_id, record.batch, statuses - {TransactionStatus.ORPHAN})
    elif TransactionStatus.COMMITTING in statuses:
        text = _COMMITTING
    elif TransactionStatus.CLOSED in statuses:
        text = "abort --query {id}"
    elif TransactionStatus.ORPHAN in statuses:
        text = _ORPHANS
    else:
        text = _TO_DO[record.state] if record is not None else ""
    return text.format(id=query_id, again=written_again(query_id), next="" if is_job(query_id) else "next ")


def _of_prepared(query_id: str, batch: int, statuses: set[TransactionStatus]) -> str:
    committed = {TransactionStatus.COMMITTED, TransactionStatus.COMMITTING}
    if TransactionStatus.COMMITTING in statuses <= committed:
        return _COMMITTING
    if statuses <= {TransactionStatus.PREPARED, *committed}:
        return "recover --query {id}" if is_job(query_id) else "restart the query, or: recover --query {id}"
    if statuses == {TransactionStatus.ABORTED}:
        return "{again}"
    to_resolve = how_to_resolve(query_id, batch)
    if TransactionStatus.PREPARED in statuses:
        return f"recover --query {query_id} before the open ones time out, then: {to_resolve}"
    return to_resolve
