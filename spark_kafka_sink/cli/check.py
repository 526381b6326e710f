"""The command `spark-kafka-sink check`. It imports its modules when it runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import click

from spark_kafka_sink.cli.shared_options import BOOTSTRAP_SERVERS, LOCAL_BROKER, pairs
from spark_kafka_sink.installation import check_libraries

_EXIT_CODES: Final = (
    "Exits with 0 if nothing is wrong, 1 if there is a cross, 2 for wrong options. Exits with 3 if there is no cross, but the"
    " time ran out before everything was checked."
)


@click.command(epilog=_EXIT_CODES)
@BOOTSTRAP_SERVERS
@click.option("--topic", metavar="NAME", help="The sink's option topic.")
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="An option of format('kafka_sink'), such as delivery.guarantee=exactly-once or kafka.acks=all; may be repeated.",
)
@click.option(
    "--command-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Properties file with the client's settings, without the prefix `kafka.`, as Kafka's own tools take it.",
)
@click.option(
    "--timeout",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0, 3600, min_open=True),
    help="Seconds for everything.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def check(
    bootstrap_servers: str | None,
    topic: str | None,
    settings: tuple[str, ...],
    command_config: Path | None,
    timeout: float,
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
    report = run(options, timeout=timeout)
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
