"""`topics tail`: the newest records of a topic, as lines that people can read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from spark_kafka_sink.cli.record_text import RecordText
from spark_kafka_sink.cli.shared_options import TopicsOptions
from spark_kafka_sink.cli.topic_commands import connected, follow, note
from spark_kafka_sink.exactly_once.topic_reader import TopicReader
from spark_kafka_sink.records.record_reader import Record


@dataclass(frozen=True, slots=True)
class TailOptions:
    """The arguments of `tail`. partition: None for all. schema_registry_url: None: keys and values are not decoded."""

    name: str
    count: int
    partition: int | None
    follow: bool
    uncommitted: bool
    whole: bool
    schema_registry_url: str | None
    settings: tuple[str, ...]


def tail_topic(connection: TopicsOptions, **given: Any) -> None:
    """Prints the newest records by the fields of TailOptions, then with `follow` each new one until Ctrl+C."""
    options = TailOptions(**given)
    with (
        RecordText.of(options.name, options.schema_registry_url, options.settings, whole=options.whole) as text,
        connected(connection) as (client, deadline),
    ):
        shown = text.json if connection.as_json else text.line
        reader = TopicReader(
            client, options.name, deadline, partition=options.partition, uncommitted=options.uncommitted, note=note
        )

        def show(records: list[tuple[int, Record]]) -> None:
            for partition, record in records:
                click.echo(shown(partition, record))

        show(reader.newest(options.count, deadline))
        if options.follow:
            follow(reader, connection.timeout_s, show)
