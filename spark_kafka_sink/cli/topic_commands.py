"""`topics create`, `list` and `describe`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import click

from spark_kafka_sink.cli.client_settings import cluster_client
from spark_kafka_sink.cli.shared_options import TopicsOptions, pairs
from spark_kafka_sink.cli.transactions.result import text_table
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.topics import (
    BROKER_DEFAULT,
    TOPIC,
    Offsets,
    configs_of,
    creation_error,
    metadata_error,
    new_topic,
    offsets_of,
    topics_metadata,
    wait_for_leaders,
)
from spark_kafka_sink.client.topics import create_topic as ask_to_create
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import AuthorizationError, BrokerError, UnsupportedVersionError
from spark_kafka_sink.protocol.apis.metadata import MetadataResponsePartition, MetadataResponseTopic
from spark_kafka_sink.protocol.apis.topics import CreatableTopicResult
from spark_kafka_sink.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from spark_kafka_sink.exactly_once.topic_reader import TopicReader
    from spark_kafka_sink.records.record_reader import Record

_SET_ON_TOPIC: Final = 1
"""The source of a config that is set on the topic itself (ConfigSource.TOPIC_CONFIG)."""


def escaped(text: str) -> str:
    """Returns text from brokers without line breaks and characters that would change a terminal's state."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


@contextmanager
def connected(options: TopicsOptions) -> Iterator[tuple[ClusterClient, float]]:
    """Yields a client and the deadline of its answers; errors are one line each, without a traceback."""
    with cluster_client(options.bootstrap_servers, options.command_config, options.timeout_s) as client:
        yield client, time.monotonic() + options.timeout_s


def note(text: str) -> None:
    click.echo(f"Note: {text}", err=True)


def follow(reader: TopicReader, timeout_s: float, show: Callable[[list[tuple[int, Record]]], object]) -> None:
    """Shows new records of a topic as they come, until Ctrl+C, which is no failure."""
    with suppress(KeyboardInterrupt):
        while True:
            show(reader.new(time.monotonic() + timeout_s))


# create


def create_topic(
    options: TopicsOptions,
    name: str,
    *,
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[str],
    if_not_exists: bool,
) -> None:
    """Creates a topic and waits for its leaders.

    partitions, replication_factor: None for the brokers' defaults. configs: `NAME=VALUE`.
    """
    values = {config: value.strip() for config, value in pairs("--config", configs).items()}
    new = new_topic(name, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, values)
    with connected(options) as (client, deadline):
        result = ask_to_create(client, new, deadline)
        exists = result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        if result.error_code and not (exists and if_not_exists):
            raise _not_created(client, result, is_default=partitions is None or replication_factor is None)
        count = wait_for_leaders(client, name, deadline)
    if options.as_json:
        click.echo(json.dumps({"topic": name, "created": not exists, "partitions": count}))
    else:
        done = "exists already" if exists else "was created"
        click.echo(f"Topic {name} {done} with {counted(count, 'partition')}.")


def _not_created(client: ClusterClient, result: CreatableTopicResult, *, is_default: bool) -> BrokerError:
    error = creation_error(client, result)
    if is_default and result.error_code in (ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR):
        text = f"{error.message}; brokers before Kafka 2.4 have no defaults: set --partitions and --replication-factor"
        return BrokerError(text, **error.facts)
    return error


# list


def list_topics(options: TopicsOptions, *, internal: bool) -> None:
    """Prints a line for each topic."""
    with connected(options) as (client, deadline):
        found = topics_metadata(client, None, deadline).topics
    # Topics of tools, such as the sink's commit log and Schema Registry's, are not internal to the brokers; `_` marks them.
    shown = (each for each in found if internal or not (each.is_internal or (each.name or "").startswith("_")))
    topics = sorted(shown, key=lambda each: each.name or "")
    if options.as_json:
        for each in topics:
            click.echo(json.dumps({"topic": each.name, "partitions": len(each.partitions), "replicas": _replicas(each)}))
    elif topics:
        rows = [(escaped(each.name or ""), f"{len(each.partitions):,}", str(_replicas(each))) for each in topics]
        click.echo(text_table(("TOPIC", "PARTITIONS", "REPLICAS"), rows))
    else:
        click.echo("There are no topics that this client is allowed to see.", err=True)


def _replicas(topic: MetadataResponseTopic) -> int:
    return max((len(each.replica_nodes) for each in topic.partitions), default=0)


# describe


def describe_topics(options: TopicsOptions, names: Sequence[str]) -> None:
    """Prints partitions and configs of each topic. Raises a ClickException for one that cannot be described."""
    with connected(options) as (client, deadline):
        for topic in topics_metadata(client, names, deadline).topics:
            name = topic.name or ""
            if topic.error_code:
                raise metadata_error(client, name, topic.error_code)
            offsets = offsets_of(client, topic, deadline)
            try:
                configs = _configs(client, name, deadline)
            except (AuthorizationError, UnsupportedVersionError) as error:
                note(str(error))
                configs = None
            if options.as_json:
                click.echo(json.dumps(_as_json(topic, offsets, configs)))
            else:
                click.echo(_as_text(topic, offsets, configs))


def _configs(client: ClusterClient, name: str, deadline: float) -> dict[str, str | None]:
    found = configs_of(client, TOPIC, name, deadline)
    return {config: one.value for config, one in sorted(found.items()) if one.config_source == _SET_ON_TOPIC}


def _as_json(topic: MetadataResponseTopic, offsets: Offsets, configs: Mapping[str, str | None] | None) -> dict[str, object]:
    return {
        "topic": topic.name,
        "partitions": [
            {
                "partition": each.partition_index,
                "leader": each.leader_id if each.leader_id >= 0 else None,
                "replicas": list(each.replica_nodes),
                "in_sync": list(each.isr_nodes),
                "first_offset": offsets[each.partition_index][0] if each.partition_index in offsets else None,
                "next_offset": offsets[each.partition_index][1] if each.partition_index in offsets else None,
            }
            for each in _sorted(topic)
        ],
        "configs": configs,
    }


def _as_text(topic: MetadataResponseTopic, offsets: Offsets, configs: Mapping[str, str | None] | None) -> str:
    rows = [
        (
            str(each.partition_index),
            str(each.leader_id) if each.leader_id >= 0 else "none",
            ",".join(map(str, each.replica_nodes)),
            ",".join(map(str, each.isr_nodes)),
            *(f"{offset:,}" for offset in offsets.get(each.partition_index, ())),
        )
        for each in _sorted(topic)
    ]
    head = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "FIRST OFFSET", "NEXT OFFSET")
    padded = [(*row, *("?" for _ in range(len(head) - len(row)))) for row in rows]
    lines = [f"Topic {escaped(topic.name or '')}", text_table(head, padded)]
    if configs:
        lines.append("Configs set on the topic:")
        lines += [escaped(f"  {name}={value}") for name, value in configs.items()]
    return "\n".join(lines)


def _sorted(topic: MetadataResponseTopic) -> list[MetadataResponsePartition]:
    return sorted(topic.partitions, key=lambda each: each.partition_index)
