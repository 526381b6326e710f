"""The command `spark-kafka-sink verify`. It imports its modules when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from spark_kafka_sink.cli.shared_options import BOOTSTRAP_SERVERS
from spark_kafka_sink.errors import DOCS_URL
from spark_kafka_sink.installation import check_libraries

_EXIT_CODES: Final = (
    "Exits with 0 if nothing differs, 2 for wrong options or columns, 3 if Kafka or the registry cannot be reached."
    " Exits with 4 if there are differences or bad records, 5 if there is no record to decode, and 1 for any other failure."
)


# The address is at the start of a line, where nothing breaks it in two.
@click.command(epilog=f"{_EXIT_CODES}\n\nSee {DOCS_URL}/verifying.html for examples and what is compared.")
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
@click.option(
    "-o",
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="An option that the topic was written with, such as value.format=avro; may be repeated.",
)
@click.option(
    "--command-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Properties file with the client's settings, without the prefix `kafka.`, as Kafka's own tools take it.",
)
@click.option("--consumer", "consumer", metavar="NAME=VALUE", multiple=True, help="Setting of confluent-kafka's consumer.")
@click.option("--spark-conf", "spark_conf", metavar="NAME=VALUE", multiple=True, help="Setting of the Spark session.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def verify(**options: Any) -> None:
    """Read a topic back with another client and compare it with the data that was written.

    With --source, every record is compared with the rows of the source: missing, repeated and foreign records and fields that
    differ are found. Without --source, every record is decoded with its schema, and bad records are listed. It needs the extra
    `verify`, and Spark if there is a source. The options are those of the write.
    """
    check_libraries()  # ahead of the modules that import them, so that a broken library is one line
    from spark_kafka_sink.cli.topic_verification import VerifyOptions, verify_topic

    code = verify_topic(VerifyOptions(**options))
    if code:
        raise click.exceptions.Exit(code)
