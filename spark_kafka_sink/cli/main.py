"""The commands and their options. Each command imports the module of its work when it runs, so that --help is quick."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import click

from spark_kafka_sink.cli.shared_options import (
    BOOTSTRAP_SERVERS,
    COMMAND_CONFIG,
    JSON_LINES,
    JSON_OBJECT,
    LOCAL_BROKER,
    TopicsOptions,
    TransactionsOptions,
    pairs,
    set_option,
    timeout,
    with_options,
)
from spark_kafka_sink.errors import DOCS_URL, InstallationError
from spark_kafka_sink.installation import check_libraries
from spark_kafka_sink.options.guarantee_options import DEFAULT_TOPIC, ExactlyOnce
from spark_kafka_sink.version import __version__

_PREFIX: Final = ExactlyOnce().transactional_id_prefix

_WORK: Final = {
    "broker": "run_broker:run_broker",
    "topics create": "topic_commands:create_topic",
    "topics list": "topic_commands:list_topics",
    "topics describe": "topic_commands:describe_topics",
    "topics tail": "topic_tail:tail_topic",
    "report tail": "report_tail:tail_reports",
    "watch": "watch:watch_page",
    "verify": "topic_verification:verify_topic",
    "transactions list": "transactions.list_transactions:list_transactions",
    "transactions recover": "transactions.resolve:recover",
    "transactions abort": "transactions.abort:abort",
    "transactions resolve": "transactions.resolve:resolve",
}
"""The module and the function of each command's work."""


def _run(command: str, *arguments: Any, **options: Any) -> Any:
    module, _, function = _WORK[command].partition(":")
    return getattr(importlib.import_module(f"spark_kafka_sink.cli.{module}"), function)(*arguments, **options)


class _Commands(click.Group):
    """Group of commands that reports a library that is missing, broken or too old in one line, and how to name brokers."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if found := re.search(r"unexpected extra arguments? \((\S+:\d+)", error.message):
                raise click.UsageError(f"{error.message}. Write --bootstrap-servers {found[1]}", error.ctx) from None
            raise
        except InstallationError as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """A Kafka sink for PySpark in pure Python."""


# The address is at the start of a line, where nothing breaks it in two.
@main.command(epilog=f"See {DOCS_URL}/broker.html for the releases of --like and the settings of --set.")
@click.option("--port", default=9092, show_default=True, type=click.IntRange(0, 65535), help="First broker's port; 0: any free.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--advertised-host", help="Host name for clients, if it differs from --host.")
@click.option(
    "--brokers", default=1, show_default=True, type=click.IntRange(1, 100), help="Number of brokers, on consecutive ports."
)
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder for data; without it, data is kept in memory.")
@click.option("--like", metavar="RELEASE", help="Kafka release that clients see, such as 3.7.")
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="Kafka broker setting.")
@click.option(
    "--sasl-users", type=click.Path(path_type=Path), metavar="FILE", help="Users who may log in, as lines of user=password."
)
@click.option("--tls", type=click.Path(path_type=Path), metavar="FOLDER", help="Use TLS; writes ca.pem and client.pem to FOLDER.")
@click.option(
    "--acl", "acls", metavar="TEXT", multiple=True, help="ACL: '--allow-principal User:ana --operation Write --topic t'."
)
@click.option(
    "--registry-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Also run a schema registry, in memory, on this port of 127.0.0.1; 0: any free.",
)
@click.option("--verbose", is_flag=True, help="Also log connections and transactions.")
def broker(**options: Any) -> None:
    """Run a Kafka broker for development and tests.

    It works with real Kafka clients: producers, transactions, consumer groups and admin clients. Ctrl+C or SIGTERM stops it.
    With --data-dir, data survives a restart. Not for production: nothing is replicated.
    """
    _run("broker", **options)


# topics

_TOPICS_CODES: Final = "Exits with 0 on success, 1 if the brokers reject the request or do not answer, 2 for wrong options."

_topics_options = with_options(
    (JSON_LINES, timeout(10.0, "Seconds that brokers have to answer."), COMMAND_CONFIG, BOOTSTRAP_SERVERS), TopicsOptions
)


@main.group(epilog=_TOPICS_CODES)
def topics() -> None:
    """Create, list and describe topics, and print their newest records."""


@topics.command(epilog=_TOPICS_CODES)
@_topics_options
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), metavar="N", help="Number of partitions.  [default: the brokers']")
@click.option("--replication-factor", type=click.IntRange(1, 32767), metavar="N", help="Replicas.  [default: the brokers']")
@click.option("--config", "configs", metavar="NAME=VALUE", multiple=True, help="Topic config; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
def create(options: TopicsOptions, name: str, **others: Any) -> None:
    """Create the topic NAME.

    The command returns when each partition has a leader.
    """
    _run("topics create", options, name, **others)


@topics.command("list", epilog=_TOPICS_CODES)
@_topics_options
@click.option("--internal", is_flag=True, help="Include Kafka's internal topics.")
def list_topics(options: TopicsOptions, internal: bool) -> None:
    """List the topics that the client is allowed to see."""
    _run("topics list", options, internal=internal)


@topics.command(epilog=_TOPICS_CODES)
@_topics_options
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def describe(options: TopicsOptions, names: tuple[str, ...]) -> None:
    """Describe topics: partitions, leaders, replicas, offsets, and the configs that are set on the topic."""
    _run("topics describe", options, names)


@topics.command(epilog=_TOPICS_CODES)
@_topics_options
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
    _run("topics tail", options, name=name, **others)


# report


@main.group(epilog=_TOPICS_CODES)
def report() -> None:
    """Read the records of the option report.topic."""


@report.command("tail", epilog=_TOPICS_CODES)
@_topics_options
@click.argument("name")
@click.option("-n", "count", default=10, show_default=True, type=click.IntRange(0, 100_000), help="Number of newest reports.")
@click.option("-f", "--follow", is_flag=True, help="Print new reports until Ctrl+C.")
@click.option("--query", metavar="ID", help="Print reports of the query with this id or name only.")
@click.option("--batch", type=click.IntRange(min=0), metavar="N", help="Print reports of this micro-batch only.")
@click.option("--partitions", is_flag=True, help="Print a line for each partition: rows, first and last offset.")
def tail_reports(options: TopicsOptions, name: str, **others: Any) -> None:
    """Print the newest reports in the topic NAME, oldest first.

    A line is a committed micro-batch or batch job. --query and --batch look for it among the newest 10,000 records.
    """
    _run("report tail", options, name=name, **others)


# watch


@main.command(epilog="Exits with 0, or with 1 if the page does not answer at the start or at the end, or is another program's.")
@click.option(
    "--url",
    default="http://127.0.0.1:9404/metrics",
    show_default=True,
    metavar="URL",
    help="The page that serve_prometheus(metrics) serves in the driver.",
)
@click.option(
    "--interval",
    "interval_s",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="Seconds between two looks at the page.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    help="Seconds until the command ends.  [default: it waits for Ctrl+C]",
)
def watch(url: str, interval_s: float, timeout_s: float | None) -> None:
    """Show the streaming queries of a driver that serves its metrics.

    Shows a line for each query: its last micro-batch, its rates, latencies, retries, and by how much its next commit is late. In
    a terminal the table is replaced in place. Otherwise a line is printed for each micro-batch that is seen. Ctrl+C ends the
    command, and nothing else. It needs the extra `prometheus`.
    """
    check_libraries()  # ahead of the modules that import them, so that a broken library is one line
    _run("watch", url, interval_s, timeout_s)


# check

_CHECK_CODES: Final = (
    "Exits with 0 if nothing is wrong, 1 if there is a cross, 2 for wrong options. Exits with 3 if there is no cross, but the"
    " time ran out before everything was checked."
)


@main.command(epilog=_CHECK_CODES)
@BOOTSTRAP_SERVERS
@click.option("--topic", metavar="NAME", help="The sink's option topic.")
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="An option of format('kafka_sink'), such as delivery.guarantee=exactly-once or kafka.acks=all; may be repeated.",
)
@COMMAND_CONFIG
@timeout(10.0, "Seconds for everything.")
@JSON_OBJECT
def check(
    bootstrap_servers: str | None,
    topic: str | None,
    settings: tuple[str, ...],
    command_config: Path | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Test a sink's settings: brokers, TLS, login, rights, topic, transactions and schema registry.

    Prints a tick, a cross or "not checked" for each, and what to do about each cross. Writes nothing to the topic.
    """
    check_libraries()  # ahead of the modules that import them, so that a broken library is one line
    from spark_kafka_sink.cli.client_settings import settings_of
    from spark_kafka_sink.spark.driver.check import check as run

    options = {"kafka.bootstrap.servers": LOCAL_BROKER}
    if command_config is not None:
        options |= {f"kafka.{name}": value for name, value in settings_of(command_config).items()}
    options |= pairs("--set", settings)
    named = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    options |= {name: value for name, value in named.items() if value is not None}
    report = run(options, timeout=timeout_s)
    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        click.echo(report.text(plain=not _can_print("✓✗–")))
    if report.failed:
        raise click.exceptions.Exit(2 if report.wrong_options else 1)
    if not report.complete:
        raise click.exceptions.Exit(3)


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


# verify

_VERIFY_CODES: Final = (
    "Exits with 0 if nothing differs, 2 for wrong options or columns, 3 if Kafka or the registry cannot be reached."
    " Exits with 4 if there are differences or bad records, 5 if there is no record to decode, and 1 for any other failure."
)


# The address is at the start of a line, where nothing breaks it in two.
@main.command(epilog=f"{_VERIFY_CODES}\n\nSee {DOCS_URL}/verifying.html for examples and what is compared.")
@BOOTSTRAP_SERVERS
@click.option("--topic", required=True, metavar="NAME", help="The topic to read.")
@click.option("--source", metavar="PATH", help="Path of the data that was written, or the name of a table.")
@click.option(
    "--source-format",
    default="parquet",
    show_default=True,
    metavar="FORMAT",
    help="Format of --source: parquet, json, csv, delta, or any other that Spark reads; `table` for a table.",
)
@click.option("--source-option", "source_options", metavar="NAME=VALUE", multiple=True, help="Option of Spark's reader.")
@click.option("--select", "selected", metavar="SQL", multiple=True, help="Column of the records, such as 'id AS key'.")
@click.option("--columns", metavar="NAMES", help="Parts to compare: key, value, headers, timestamp, partition.  [default: all]")
@click.option("--allow-duplicates", is_flag=True, help="Accept records that are there more often than in the source.")
@click.option("--from-timestamp", metavar="TIME", help="Read from this time on, such as 2026-11-24T00:00:00Z.")
@click.option("--examples", default=5, show_default=True, type=click.IntRange(0, 1000), help="Number of differences to show.")
@click.option("--schema-registry-url", metavar="URL", help="The sink's option schema.registry.url.")
@set_option("An option that the topic was written with, such as value.format=avro; may be repeated.")
@COMMAND_CONFIG
@click.option("--consumer", "consumer", metavar="NAME=VALUE", multiple=True, help="Setting of confluent-kafka's consumer.")
@click.option("--spark-conf", "spark_conf", metavar="NAME=VALUE", multiple=True, help="Setting of the Spark session.")
@JSON_OBJECT
def verify(**options: Any) -> None:
    """Read a topic back with another client and compare it with the data that was written.

    With --source, every record is compared with the rows of the source: missing, repeated and foreign records and fields that
    differ are found. Without --source, every record is decoded with its schema, and bad records are listed. It needs the extra
    `verify`, and Spark if there is a source. The options are those of the write.
    """
    check_libraries()  # ahead of the modules that import them, so that a broken library is one line
    if code := _run("verify", **options):
        raise click.exceptions.Exit(code)


# Transactions

_EXIT_CODES: Final = "Exit codes: 0 on success, 1 if something could not be done, 2 for invalid options."


@main.group(epilog=f"{_EXIT_CODES}\n\nSee {DOCS_URL}/transactions.html for what each state means.")
def transactions() -> None:
    """List and end transactions left open by delivery.guarantee=exactly-once.

    A batch or job is `prepared` until its transactions are committed. A restarted driver ends its own leftovers. Use these
    commands if it is not restarted, or for decisions that it cannot make.
    """


_transactions_options = with_options(
    (
        JSON_LINES,
        timeout(60.0, "Seconds to wait for brokers, per query or job."),
        COMMAND_CONFIG,
        click.option(
            "--commit-log-partitions",
            type=click.IntRange(min=1),
            metavar="N",
            help="The sink's commit.log.partitions, if partitions were added later.  [default: all of the topic]",
        ),
        click.option("--commit-log-topic", default=DEFAULT_TOPIC, show_default=True, help="The sink's commit.log.topic."),
        click.option("--prefix", default=_PREFIX, show_default=True, help="The sink's transactional.id.prefix."),
        BOOTSTRAP_SERVERS,
    ),
    TransactionsOptions,
)
_query = click.option("--query", required=True, metavar="ID", help="Query id, from `metadata` in its checkpoint, or job id.")
_yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


@transactions.command("list", epilog=_EXIT_CODES)
@_transactions_options
def list_transactions(options: TransactionsOptions) -> None:
    """List queries and jobs, their open transactions and what to do.

    This command changes nothing. An `orphan` is an open transaction without a record in the commit log. It belongs to a batch
    that is being written now, or is left over from a failed one. Readers with isolation.level=read_committed wait for each open
    transaction.
    """
    _run("transactions list", options)


@transactions.command(epilog=_EXIT_CODES)
@_transactions_options
@click.option("--query", metavar="ID", help="Only this query or job.")
@click.option("--all", "every", is_flag=True, help="All queries and jobs in the commit log.")
def recover(options: TransactionsOptions, query: str | None, every: bool) -> None:
    """Commit prepared transactions of drivers that are gone.

    Restarting the query does the same. This command also forgets jobs that ended more than an hour ago. If a driver still runs,
    it loses its claim on the commit log, reads the log again and continues, so nothing is committed twice. Use `resolve` for
    transactions that the brokers have aborted.
    """
    if (query is None) is not every:
        raise click.UsageError("set either --query ID or --all, not both")
    _run("transactions recover", options, query)


@transactions.command(epilog=_EXIT_CODES)
@_transactions_options
@_query
@_yes
def abort(options: TransactionsOptions, query: str, yes: bool) -> None:
    """Abort open transactions of a query or job that no longer runs.

    It refuses to abort prepared transactions: use `recover` for them. Readers wait for open transactions until the query's next
    commit aborts them or transaction.timeout.ms has passed. If a driver still runs, it stops at its next commit, and writes its
    batch again after a restart.
    """
    _run("transactions abort", options, query, yes=yes)


@transactions.command(epilog=_EXIT_CODES)
@_transactions_options
@_query
@click.option("--batch", required=True, type=click.IntRange(min=0), metavar="N", help="The batch at which the query stopped.")
@click.option("--accept-loss", is_flag=True, help="Continue without the lost rows.")
@click.option("--replay", is_flag=True, help="Have the query write the lost rows again, if they are unchanged.")
@_yes
def resolve(options: TransactionsOptions, query: str, batch: int, accept_loss: bool, replay: bool, yes: bool) -> None:
    """Resolve a batch that is only partly committed.

    This happens if brokers abort the rest of a prepared batch before its driver comes back. The command first commits everything
    that can be committed and shows the lost rows. With --replay, the query's next run writes the whole batch again and commits
    only the lost part. The run stops if any task's row count or checksum differs from the first time. If the brokers no longer
    know how a transaction ended, --replay looks for its marker in each partition that it wrote to, and is refused without it.
    """
    if accept_loss is replay:
        raise click.UsageError("set either --accept-loss or --replay, not both")
    _run("transactions resolve", options, query, batch, replay=replay, yes=yes)
