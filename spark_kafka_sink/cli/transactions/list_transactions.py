"""`transactions list`: what every query and job has open, without changing anything."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import click

from spark_kafka_sink.cli.transactions.connection import Connection, connected
from spark_kafka_sink.cli.transactions.overview import QueryLine, TransactionLine, asked_about, overview, query_of
from spark_kafka_sink.cli.transactions.result import handle_json, rows_of, rows_text
from spark_kafka_sink.cli.transactions.settings import ConnectionOptions
from spark_kafka_sink.cli.transactions.text_table import age, partitions_text, text_table
from spark_kafka_sink.exactly_once.commit_record_codec import CommitRecordError
from spark_kafka_sink.exactly_once.last_records import LastRecords
from spark_kafka_sink.exactly_once.transaction_client import ONGOING
from spark_kafka_sink.producer.transactions.handle import TransactionHandle


def list_transactions(options: ConnectionOptions) -> None:
    """Ends with 1 where brokers do not answer, or may not, and where not all of the commit log can be read. That there is no
    commit log is said on stderr."""
    with connected(options) as connection:
        has_log = connection.has_log(connection.deadline())
        lines, unreadable = _lines(connection, has_log=has_log)
    now_ms = time.time_ns() // 1_000_000
    if options.as_json:
        for line in lines:
            click.echo(json.dumps(_json(line)))
    else:
        click.echo(_text(lines, options, now_ms))
    if not has_log:
        click.echo(f"Note: {connection.no_log}", err=True)
    for error in unreadable:
        click.echo(f"Note: {error}", err=True)
    if unreadable:
        raise click.exceptions.Exit(1)


def _lines(connection: Connection, *, has_log: bool) -> tuple[list[QueryLine], list[CommitRecordError]]:
    """Also what of the log cannot be read."""
    # What is open is asked for before the log is read: what was prepared between the two is then no orphan.
    deadline = connection.deadline()
    ids = [each.transactional_id for each in connection.transactions.list_open(f"{connection.prefix}.", deadline)]
    by_query = {each: query_id for each in ids if (query_id := query_of(connection.prefix, each)) is not None}
    logged = connection.records(deadline) if has_log else LastRecords()
    records = logged.records
    wanted = {*by_query, *asked_about(connection.prefix, (each.record for each in records.values()))}
    described = connection.transactions.describe(wanted, deadline)
    listed: dict[str, tuple[TransactionHandle, ...]] = {}
    for each, query_id in by_query.items():
        said = described.get(each)
        if said is not None and said.state == ONGOING:
            handle = TransactionHandle(each, said.producer_id, said.epoch, 0, 0, said.partitions)
            listed[query_id] = (*listed.get(query_id, ()), handle)
    lines = overview(connection.prefix, records, listed, described, time.time_ns() // 1_000_000)
    if has_log:
        return [_read_first(line, logged.unreadable) for line in lines], logged.unreadable
    # What the log says under another name may be that these are prepared: none of them may be aborted.
    to_do = f"{connection.no_log}; if there never was one, what is open ends when it times out"
    return [replace(line, to_do=to_do) for line in lines], []


def _read_first(line: QueryLine, unreadable: Iterable[CommitRecordError]) -> QueryLine:
    """What is open may be prepared, by a record that nobody here can read."""
    is_unread = any(error.facts.get("query_id") == line.query_id for error in unreadable)
    return replace(line, to_do="its record in the commit log cannot be read: see below") if is_unread else line


def _text(lines: list[QueryLine], options: ConnectionOptions, now_ms: int) -> str:
    if not lines:
        return f"Nothing is open under {options.prefix}, and nothing is in {options.commit_log_topic}."
    head = ("QUERY", "BATCH", "STATE", "ROWS", "WRITTEN", "OPEN", "TO DO")
    parts = [text_table(head, [_query_row(line, now_ms) for line in lines])]
    rows = [_transaction_row(each) for line in lines for each in line.transactions]
    if rows:
        parts.append(text_table(("TRANSACTION", "STATE", "AGE", "TIMES OUT IN", "ROWS", "PARTITIONS"), rows))
    return "\n\n".join(parts)


def _query_row(line: QueryLine, now_ms: int) -> tuple[str, ...]:
    count = str(sum(each.age_ms is not None for each in line.transactions))
    if line.record is None or line.written_ms is None:
        return line.query_id, "-", "no record", "-", "-", count, line.to_do
    record = line.record
    written = f"{_iso(line.written_ms)} ({age(now_ms - line.written_ms)} ago)"
    return line.query_id, str(record.batch), record.state, f"{record.rows:,}", written, count, line.to_do or "-"


def _transaction_row(line: TransactionLine) -> tuple[str, ...]:
    rows = rows_text(rows_of(line.handle))
    times = ["-" if ms is None else age(ms) for ms in (line.age_ms, line.left_ms)]
    return line.handle.transactional_id, line.standing, *times, rows, partitions_text(line.handle.partitions)


def _json(line: QueryLine) -> Mapping[str, object]:
    record = line.record
    return {
        "query_id": line.query_id,
        "batch": None if record is None else record.batch,
        "state": None if record is None else record.state,
        "rows": None if record is None else record.rows,
        "written": None if line.written_ms is None else _iso(line.written_ms),
        "to_do": line.to_do,
        "transactions": list(_transactions_json(line.transactions)),
    }


def _transactions_json(lines: Iterable[TransactionLine]) -> Iterable[Mapping[str, object]]:
    for line in lines:
        yield {
            **handle_json(line.handle),
            "state": line.standing,
            "age_ms": line.age_ms,
            "times_out_in_ms": line.left_ms,
        }


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
