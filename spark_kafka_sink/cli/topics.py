"""The commands `spark-kafka-sink topics` and their options. Each command imports its modules when it runs."""

from __future__ import annotations

from typing import Any, Final

import click

from spark_kafka_sink.cli.shared_options import (
    BOOTSTRAP_SERVERS,
    COMMAND_CONFIG,
    JSON_LINES,
    TopicsOptions,
    set_option,
    timeout,
    with_options,
)

_EXIT_CODES: Final = "Exits with 0 on success, 1 if the brokers reject the request or do not answer, 2 for wrong options."

_connected = with_options(
    (JSON_LINES, timeout(10.0, "Seconds that brokers have to answer."), COMMAND_CONFIG, BOOTSTRAP_SERVERS), TopicsOptions
)


@click.group(epilog=_EXIT_CODES)
def topics() -> None:
    """Create, list and describe topics, and print their newest records."""


@topics.command(epilog=_EXIT_CODES)
@_connected
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), metavar="N", help="Number of partitions.  [default: the brokers']")
@click.option("--replication-factor", type=click.IntRange(1, 32767), metavar="N", help="Replicas.  [default: the brokers']")
@click.option("--config", "configs", metavar="NAME=VALUE", multiple=True, help="Topic config; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
def create(options: TopicsOptions, name: str, **others: Any) -> None:
    """Create the topic NAME.

    The command returns when each partition has a leader.
    """
    from spark_kafka_sink.cli.topic_commands import TopicToCreate, create_topic

    create_topic(options, TopicToCreate(name, **others))


@topics.command("list", epilog=_EXIT_CODES)
@_connected
@click.option("--internal", is_flag=True, help="Include Kafka's internal topics.")
def list_(options: TopicsOptions, internal: bool) -> None:
    """List the topics that the client is allowed to see."""
    from spark_kafka_sink.cli.topic_commands import list_topics

    list_topics(options, internal=internal)


@topics.command(epilog=_EXIT_CODES)
@_connected
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def describe(options: TopicsOptions, names: tuple[str, ...]) -> None:
    """Describe topics: partitions, leaders, replicas, offsets, and the configs that are set on the topic."""
    from spark_kafka_sink.cli.topic_commands import describe_topics

    describe_topics(options, names)


@topics.command(epilog=_EXIT_CODES)
@_connected
@click.argument("name")
@click.option("-n", "count", default=10, show_default=True, type=click.IntRange(0, 100_000), help="Number of records.")
@click.option("-p", "--partition", type=click.IntRange(min=0), metavar="N", help="Read this partition only.")
@click.option("-f", "--follow", is_flag=True, help="Print new records until Ctrl+C.")
@click.option("--uncommitted", is_flag=True, help="Include records of open and aborted transactions.")
@click.option("--whole", is_flag=True, help="Print keys, values and headers in full.")
@click.option("--schema-registry-url", metavar="URL", help="Decode keys and values with the schemas of this registry.")
@set_option("An option of the registry, such as schema.registry.ssl.ca.location=ca.pem; may be repeated.")
def tail(options: TopicsOptions, name: str, **others: Any) -> None:
    """Print the newest records of the topic NAME, oldest first.

    Each line has the partition, offset, timestamp, key, value and headers of a record. Bytes that are not readable text are
    printed in hexadecimal. Long values are cut unless --whole or --json is given. `schema 7` comes before a key or a value in
    Confluent's wire format. With --schema-registry-url it is decoded, which needs the extra `verify`.
    """
    from spark_kafka_sink.cli.topic_tail import TailOptions, tail_topic

    tail_topic(options, TailOptions(name, **others))
