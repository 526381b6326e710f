"""The commands, their options and what each is for. What a command needs is imported when it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from spark_kafka_sink.cli.check import check
from spark_kafka_sink.cli.topics import topics
from spark_kafka_sink.exactly_once.commit_log_settings import DEFAULT_TOPIC
from spark_kafka_sink.version import __version__

if TYPE_CHECKING:
    from spark_kafka_sink.cli.transactions.connection import ConnectionOptions

_PREFIX: Final = "spark-kafka-sink"
"""The sink's default transactional.id.prefix, whose module is not imported for a --help."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
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
@click.option("--tls", type=click.Path(path_type=Path), metavar="FOLDER", help="Encrypt; ca.pem and client.pem go there.")
@click.option("--acl", "acls", metavar="TEXT", multiple=True, help="'--allow-principal User:ana --operation Write --topic t'.")
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


main.add_command(check)
main.add_command(topics)

# Transactions

_EXIT_CODES: Final = "Exits with 0 when all is done, 1 when something could not be done, 2 for wrong options."


@main.group(epilog=_EXIT_CODES)
def transactions() -> None:
    """What delivery.guarantee=exactly-once has left open, and how it is ended.

    A batch or job is `prepared` while its transactions are to be committed. A driver that is started again ends what it left
    behind by itself; these commands are for when it is not, and for what it may not decide. docs/transactions.md has each state.
    """


_COMMON: Final = (
    click.option("--json", "as_json", is_flag=True, help="JSON lines instead of text."),
    click.option(
        "--timeout",
        "timeout_s",
        default=60.0,
        show_default=True,
        type=click.FloatRange(0, 3600, min_open=True),
        help="Seconds that brokers have to answer, for each query or job.",
    ),
    click.option(
        "--command-config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Properties of the client, as Kafka's tools take them: name=value lines.",
    ),
    click.option(
        "--commit-log-partitions",
        type=click.IntRange(min=1),
        metavar="N",
        help="The sink's commit.log.partitions, if the topic was given more since.  [default: all of the topic]",
    ),
    click.option("--commit-log-topic", default=DEFAULT_TOPIC, show_default=True, help="The sink's commit.log.topic."),
    click.option("--prefix", default=_PREFIX, show_default=True, help="The sink's transactional.id.prefix."),
    click.option("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="Brokers to ask first."),
)


def _connected(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that all commands have, and passes them on as `ConnectionOptions`."""

    def with_connection(**values: Any) -> None:
        from spark_kafka_sink.cli.transactions.connection import ConnectionOptions

        options = ConnectionOptions(**{each.name: values.pop(each.name) for each in fields(ConnectionOptions)})
        command(options, **values)

    with_connection.__name__, with_connection.__doc__ = command.__name__, command.__doc__
    decorated: Any = with_connection
    for option in _COMMON:
        decorated = option(decorated)
    # click keeps them from the last to the first: a command's own come first in its help.
    decorated.__click_params__ += getattr(command, "__click_params__", [])
    made: Callable[..., None] = decorated
    return made


_query = click.option(
    "--query", required=True, metavar="ID", help="Of the query, as its checkpoint's `metadata` has it, or of the job."
)
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@transactions.command("list", epilog=_EXIT_CODES)
@_connected
def list_(options: ConnectionOptions) -> None:
    """Queries and jobs with their last batch, their open transactions, and what to do about each.

    Changes nothing. What is open and in no record is of a batch that is being written just now, or is left over of one that
    failed; readers with isolation.level=read_committed wait behind each open transaction.
    """
    from spark_kafka_sink.cli.transactions.list_transactions import list_transactions

    list_transactions(options)


@transactions.command(epilog=_EXIT_CODES)
@_connected
@click.option("--query", metavar="ID", help="Of one query or job.")
@click.option("--all", "every", is_flag=True, help="Of all queries and jobs in the commit log.")
def recover(options: ConnectionOptions, query: str | None, every: bool) -> None:
    """Commit what is prepared and whose driver is gone; forget jobs that ended more than an hour ago.

    Starting the query again does the same. A driver that is alive after all loses its claim on the commit log, reads it again and
    goes on from there: nothing is committed twice. What was aborted meanwhile is not touched: that is for `resolve`.
    """
    if (query is None) is not every:
        raise click.UsageError("either --query ID or --all is needed, and not both")
    from spark_kafka_sink.cli.transactions.resolve import recover as run

    run(options, query)


@transactions.command(epilog=_EXIT_CODES)
@_connected
@_query
@_yes
def abort(options: ConnectionOptions, query: str, yes: bool) -> None:
    """Abort the open transactions of a query or job that does not run any more, unless they are prepared.

    They would be aborted by the query's next commit, or once transaction.timeout.ms has passed; until then readers wait for them.
    A driver that runs after all stops with its next commit, and its batch is written again when it is started again.
    """
    from spark_kafka_sink.cli.transactions.abort import abort as run

    run(options, query, yes=yes)


@transactions.command(epilog=_EXIT_CODES)
@_connected
@_query
@click.option("--batch", required=True, type=click.IntRange(min=0), metavar="N", help="The batch that the query stopped at.")
@click.option("--accept-loss", is_flag=True, help="Go on without the rows that are lost.")
@click.option("--replay", is_flag=True, help="Have the query write them again, if they are proved the same.")
@_yes
def resolve(options: ConnectionOptions, query: str, batch: int, accept_loss: bool, replay: bool, yes: bool) -> None:
    """Decide on a batch that was committed in part, because the brokers aborted the other part before its driver came back.

    All that can be committed is committed first, and what is lost is shown. With --replay the query's next run writes the whole
    batch again and commits only the lost part, if every task has as many rows as the first time with the same checksum; it stops
    where that is not so.
    """
    if accept_loss is replay:
        raise click.UsageError("either --accept-loss or --replay is needed, and not both")
    from spark_kafka_sink.cli.transactions.resolve import resolve as run

    run(options, query, batch, replay=replay, yes=yes)
