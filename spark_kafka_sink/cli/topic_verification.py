"""`verify`: compares a topic with a source, or decodes all its records."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from spark_kafka_sink.cli.client_settings import settings_of
from spark_kafka_sink.cli.shared_options import LOCAL_BROKER, pairs
from spark_kafka_sink.installation import check_extra, check_spark
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.options.registry_options import URL, registry_config
from spark_kafka_sink.options.schema_options import FORMAT, PARTS, is_registry_option
from spark_kafka_sink.options.secret import is_provider_option
from spark_kafka_sink.registry.registry_client import RegistryClient
from spark_kafka_sink.spark.plugin_checks import checked_options
from spark_kafka_sink.verify.inspection import inspected
from spark_kafka_sink.verify.outcome import ExitCode, exit_code_of, explain
from spark_kafka_sink.verify.read_back import TopicRange, consumer_settings, whole_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KAFKA: Final = "kafka."
_TABLE: Final = "table"


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The options of the command."""

    bootstrap_servers: str | None
    topic: str
    source: str | None
    source_format: str
    source_options: tuple[str, ...]
    selected: tuple[str, ...]
    columns: str | None
    allow_duplicates: bool
    from_timestamp: str | None
    examples: int
    schema_registry_url: str | None
    settings: tuple[str, ...]
    command_config: Path | None
    consumer: tuple[str, ...]
    spark_conf: tuple[str, ...]
    as_json: bool


def verify_topic(**given: Any) -> int:
    """Verifies the topic, prints the result and returns the exit code. An error is printed in one or a few lines.

    given: the fields of VerifyOptions.
    """
    options = VerifyOptions(**given)
    check_extra("confluent_kafka", "spark-kafka-sink verify")
    settings = _settings(options)
    since_ms = None if options.from_timestamp is None else _milliseconds(options.from_timestamp)
    if options.source is not None:
        check_spark()
    elif options.selected or options.source_options:
        raise click.UsageError("--select and --source-option need --source")
    try:
        run = _inspected if options.source is None else _compared
        return run(options, settings, since_ms)
    except (click.ClickException, click.exceptions.Exit):
        raise
    except (Exception, KeyboardInterrupt) as error:
        click.echo(f"Error: {explain(error)}", err=True)
        return int(exit_code_of(error))


# Settings


def _settings(options: VerifyOptions) -> dict[str, str]:
    """Returns the sink's options."""
    settings = {f"{_KAFKA}bootstrap.servers": LOCAL_BROKER}
    if options.command_config is not None:
        settings |= {f"{_KAFKA}{name}": value for name, value in settings_of(options.command_config).items()}
    settings |= pairs("--set", options.settings)
    named = {f"{_KAFKA}bootstrap.servers": options.bootstrap_servers, URL: options.schema_registry_url, "topic": options.topic}
    return settings | {name: value for name, value in named.items() if value is not None}


def _milliseconds(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time, such as 2026-11-24T00:00:00Z", param_hint="--from-timestamp") from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


# With a source


def _compared(options: VerifyOptions, settings: dict[str, str], since_ms: int | None) -> int:
    from pyspark.sql import functions as F

    from spark_kafka_sink.verify.comparison import COLUMNS
    from spark_kafka_sink.verify.topic_records import check_serializers, compare_with_topic

    sink = checked_options(settings, warns_of_security=False)
    check_serializers(sink)
    columns = _columns(options.columns, COLUMNS)
    if options.columns is None and sink.producer.partitioner_ignore_keys:
        columns = tuple(name for name in columns if name != "partition")
    consumer = consumer_settings(sink.producer) | pairs("--consumer", options.consumer)
    topic = whole_topic(options.topic, consumer, since_ms)
    spark = _session(options)
    try:
        rows = _source(spark, options)
        if "topic" in rows.columns and not any(each.startswith("topic=") for each in options.settings):
            rows, sink = rows.where(F.col("topic") == options.topic), replace(sink, topic=None)  # each row names its own topic
        found = compare_with_topic(rows, sink, topic, columns=columns, examples=options.examples)
    finally:
        spark.stop()
    same = found.same(allow_duplicates=options.allow_duplicates)
    if options.as_json:
        click.echo(json.dumps({"topic": options.topic, "same": same, **asdict(found)}))
    else:
        click.echo(f"topic {options.topic}: {'as the source has it' if same else 'DIFFERENT from the source'}\n{found}")
    return _code(same)


def _code(is_fine: bool) -> int:
    return int(ExitCode.OK if is_fine else ExitCode.DIFFERENCE)


def _columns(text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    columns = known if text is None else tuple(name.strip() for name in text.split(","))
    if unknown := set(columns) - set(known):
        raise click.BadParameter(f"{min(unknown)!r} is not one of {', '.join(known)}", param_hint="--columns")
    return columns


def _session(options: VerifyOptions) -> SparkSession:
    from pyspark.sql import SparkSession

    # Spark starts the PATH's `python3` otherwise, which may not have this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
    bar = str(sys.stderr.isatty()).lower()
    quiet = {"spark.ui.showConsoleProgress": bar, "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    builder = SparkSession.builder.appName(f"spark-kafka-sink verify {options.topic}")
    for name, value in {**quiet, **pairs("--spark-conf", options.spark_conf)}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _source(spark: SparkSession, options: VerifyOptions) -> DataFrame:
    reader: Any = spark.read.options(**pairs("--source-option", options.source_options))
    if options.source_format == _TABLE:
        rows: DataFrame = reader.table(options.source)
    else:
        rows = reader.format(options.source_format).load(options.source)
    return rows.selectExpr(*options.selected) if options.selected else rows


# Without a source


def _inspected(options: VerifyOptions, settings: dict[str, str], since_ms: int | None) -> int:
    if URL not in settings:
        raise click.UsageError("set --source to compare the topic, or --schema-registry-url to decode its records")
    kafka = {name.removeprefix(_KAFKA): value for name, value in settings.items() if name.startswith(_KAFKA)}
    providers = {name: value for name, value in kafka.items() if is_provider_option(name)}
    registry = registry_config({**{name: value for name, value in settings.items() if is_registry_option(name)}, **providers})
    formats: dict[str, str | None] = {
        part: _KINDS[FORMAT.parse(settings[f"{part}.format"])] for part in PARTS if f"{part}.format" in settings
    }
    consumer = consumer_settings(producer_config(kafka)) | pairs("--consumer", options.consumer)
    topic: TopicRange = whole_topic(options.topic, consumer, since_ms)
    formats = formats or {"value": None}
    is_seen = sys.stderr.isatty()
    bar = click.progressbar(length=topic.size, label="records", file=sys.stderr, show_pos=True) if is_seen else nullcontext()
    with RegistryClient(registry) as client, bar as shown:
        found = inspected(topic, formats, client, options.examples, shown.update if shown else lambda count: None)
    if options.as_json:
        click.echo(json.dumps({"topic": options.topic, **found.as_json()}))
    else:
        since = "" if options.from_timestamp is None else f" since {options.from_timestamp}"
        decoded = "every key and value" if len(formats) > 1 else f"every {next(iter(formats))}"
        good = f"{decoded} can be decoded" if found.records else f"NO RECORDS{since}, so nothing was verified"
        click.echo(f"topic {options.topic}: {'BAD RECORDS' if found.bad else good}\n{found}")
        for part in (part for part in PARTS if found.records and part not in formats):
            click.echo(f"{part}: not decoded, because {part}.format is not set")
    return _code(not found.bad) if found.records else int(ExitCode.EMPTY)


_KINDS: Final = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
