"""`report tail`: the newest records of `report.topic`, as lines that people can read."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from spark_kafka_sink.cli.record_text import time_text
from spark_kafka_sink.cli.shared_options import TopicsOptions
from spark_kafka_sink.cli.topic_commands import connected
from spark_kafka_sink.cli.topic_tail import note
from spark_kafka_sink.counts import counted
from spark_kafka_sink.exactly_once.topic_reader import TopicReader
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, NO_OFFSET
from spark_kafka_sink.spark.driver.topic_history import reports_in


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
        _print(reader.newest(options.count, deadline), options, as_json=connection.as_json)
        with suppress(KeyboardInterrupt):  # which ends --follow, and is no failure
            while options.follow:
                _print(reader.new(time.monotonic() + connection.timeout_s), options, as_json=connection.as_json)


def _print(records: Iterable[tuple[int, Record]], options: ReportTailOptions, *, as_json: bool) -> None:
    for record, (batch, name, guarantee) in reports_in(options.name, records, note):
        if options.query not in (None, batch.query_id, name) or options.batch not in (None, batch.batch):
            continue
        if as_json:
            click.echo(record.value)
            continue
        click.echo(f"{time_text(record.timestamp)}  {batch.line(name)}, {guarantee}")
        for (topic, partition), part in sorted(batch.report.partitions.items()) if options.partitions else ():
            where = topic if partition == ALL_PARTITIONS else f"{topic}-{partition}"
            offsets = "" if part.first_offset == NO_OFFSET else f", offsets {part.first_offset:,} to {part.last_offset:,}"
            click.echo(f"  {where}: {counted(part.records, 'row')}{offsets}")
