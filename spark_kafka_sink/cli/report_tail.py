"""`report tail`: the newest records of `report.topic`, as lines that people can read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import click

from spark_kafka_sink.cli.record_text import time_text
from spark_kafka_sink.cli.shared_options import TopicsOptions
from spark_kafka_sink.cli.topic_commands import connected, escaped, follow, note
from spark_kafka_sink.counts import counted
from spark_kafka_sink.exactly_once.topic_reader import TopicReader
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, NO_OFFSET
from spark_kafka_sink.spark.driver.topic_history import reports_in

_LOOKED_AT: Final = 10_000
"""Records among which a query or a batch is looked for."""


@dataclass(frozen=True, slots=True)
class ReportTailOptions:
    """The arguments of the command. query: an id or a name; None for all. batch: None for all."""

    name: str
    count: int
    follow: bool
    query: str | None
    batch: int | None
    partitions: bool


def tail_reports(connection: TopicsOptions, **given: Any) -> None:
    """Prints the newest reports by the fields of ReportTailOptions, then with `follow` each new one until Ctrl+C."""
    options = ReportTailOptions(**given)
    with connected(connection) as (client, deadline):
        reader = TopicReader(client, options.name, deadline, note=note)
        chooses = options.query is not None or options.batch is not None
        records = reader.newest(max(options.count, _LOOKED_AT) if chooses else options.count, deadline)
        if not _print(records, options, as_json=connection.as_json) and chooses:
            note(f"none of the newest {len(records):,} records of topic {options.name} is such a report")
        if options.follow:
            follow(reader, connection.timeout_s, lambda new: _print(new, options, as_json=connection.as_json))


def _print(records: Iterable[tuple[int, Record]], options: ReportTailOptions, *, as_json: bool) -> int:
    """Prints the newest reports among records that are asked for. Returns their number."""
    found = [
        (record, report)
        for record, report in reports_in(options.name, records, note)
        if options.query in (None, report.batch.query_id, report.name) and options.batch in (None, report.batch.batch)
    ]
    for record, (batch, name, guarantee) in found[-options.count :] if options.count else ():
        if as_json:
            click.echo(record.value)
            continue
        click.echo(escaped(f"{time_text(record.timestamp)}  {batch.line(name)}, {guarantee}"))
        for (topic, partition), part in sorted(batch.report.partitions.items()) if options.partitions else ():
            where = topic if partition == ALL_PARTITIONS else f"{topic}-{partition}"
            offsets = "" if part.first_offset == NO_OFFSET else f", offsets {part.first_offset:,} to {part.last_offset:,}"
            click.echo(escaped(f"  {where}: {counted(part.records, 'row')}{offsets}"))
    return len(found)
