"""The commands, their options and what each is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from spark_kafka_sink.cli.transactions.commands import transactions


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="spark-kafka-sink")
def main() -> None:
    """A Kafka sink for PySpark in pure Python."""


@main.command()
@click.option("--port", default=9092, show_default=True, type=click.IntRange(0, 65535), help="Of the first broker; 0: any free.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--advertised-host", help="Where clients are told to connect to, if that is not the host.")
@click.option("--brokers", default=1, show_default=True, type=click.IntRange(1, 100), help="How many, on ports side by side.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="A folder that keeps everything; in memory if not given.")
@click.option("--like", metavar="RELEASE", help="The release of Kafka that clients see, such as 3.7; docs/broker.md.")
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of Kafka's broker; docs/broker.md.")
@click.option("--sasl-users", type=click.Path(path_type=Path), metavar="FILE", help="Lines of user=password who may log in.")
@click.option("--fault", "faults", metavar="TEXT", multiple=True, help="'produce error=NOT_LEADER_OR_FOLLOWER times=3'.")
@click.option("--log-format", default="text", show_default=True, type=click.Choice(["text", "json"]), help="Of the log.")
@click.option("--verbose", is_flag=True, help="Log connections and transactions, too.")
def broker(**options: Any) -> None:
    """A Kafka broker in this process, for development and tests.

    It speaks Kafka's protocol with real clients: producers, transactions, consumer groups, admin. It ends on Ctrl+C and
    SIGTERM, and keeps what was written if there is a folder. Not for production: nothing is replicated.
    """
    from spark_kafka_sink.cli.run_broker import BrokerOptions, run_broker

    run_broker(BrokerOptions(**options))


main.add_command(transactions)
