"""The stable interface as lines of text. docs/interface.txt keeps them, and `make api` compares the two.

Each line is a promise (docs/stable-interface.md), so only `make api WRITE=1` renews the file, and somebody reads the difference.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import griffe

from docs.cli_page import NAME, commands
from docs.public_names import BROKER, GIVEN, PACKAGE, SECTIONS, Documented, errors, exported, fields, methods, parameters
from spark_kafka_sink.cli.main import main as command_line
from spark_kafka_sink.exactly_once.commit_record import NO_ID, CommitRecord, PreparedTransaction, State, TaskRows, encode
from spark_kafka_sink.exporters.metric_families import FAMILIES
from spark_kafka_sink.exporters.prometheus import prometheus_name
from spark_kafka_sink.options.option import REQUIRED, Option
from spark_kafka_sink.options.producer_options import OPTIONS
from spark_kafka_sink.options.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.options.security_config import SECURITY_OPTIONS
from spark_kafka_sink.options.sink_options import KAFKA_PREFIX, SINK_OPTIONS
from spark_kafka_sink.producer.metrics.metric_table import GAUGES, NODE, OWN, PRODUCER, TOPIC
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.reports.report_tables import PARTITION_SCHEMA
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.column_types import RECORD_COLUMNS
from spark_kafka_sink.spark.driver.history import history_of
from spark_kafka_sink.spark.report_record import ReportRecord
from spark_kafka_sink.verify.outcome import ExitCode

SNAPSHOT = Path(__file__).with_name("interface.txt")


def lines() -> list[str]:
    """Returns the interface of this checkout: a line for each name, option, column, metric, code, command and field."""
    return [*_names(), *_errors(), *_options(), *_columns(), *_metrics(), *_commands(), *_records()]


def _names() -> Iterator[str]:
    for page in SECTIONS.values():
        for name in page:
            yield from _described(f"{PACKAGE}.{name}", exported(name))
    for name in BROKER:
        yield from _described(f"{PACKAGE}.broker.{name}", exported(name))


def _described(name: str, found: Documented) -> Iterator[str]:
    yield name if found.name in GIVEN else f"{name}{_signature(found)}"
    if isinstance(found, griffe.Class):
        for member in (*fields(found), *methods(found)):
            yield f"{name}.{member.name}{_signature(member) if isinstance(member, griffe.Function) else ''}"


def _signature(found: Documented) -> str:
    """Returns the parameters with their defaults. Annotations may be written in another way without being another promise."""
    texts, is_keyword = [], False
    for each in parameters(found):
        kind = each.kind.value if each.kind is not None else ""
        if kind == "keyword-only" and not is_keyword:
            texts.append("*")
            is_keyword = True
        is_keyword = is_keyword or kind == "variadic positional"
        star = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        texts.append(f"{star}{each.name}" + (f"={each.default}" if each.default is not None and not star else ""))
    return f"({', '.join(texts)})"


def _errors() -> Iterator[str]:
    for each in errors():
        code = each.members.get("code")
        of = f" [{str(code.value).strip(chr(39))}]" if isinstance(code, griffe.Attribute) and code.value else ""
        yield f"{PACKAGE}.errors.{each.name}({', '.join(map(str, each.bases))}){of}"


def _options() -> Iterator[str]:
    for option in SINK_OPTIONS.values():
        yield f"option {option.name}: {option.takes}; default {option.default or 'none'}"
    tables = ((KAFKA_PREFIX, OPTIONS), (KAFKA_PREFIX, SECURITY_OPTIONS), ("", REGISTRY_OPTIONS))
    for prefix, table in tables:
        for each in table.values():
            assert isinstance(each, Option)
            default = "required" if each.default is REQUIRED else f"default {each.default}"
            yield f"option {prefix}{each.name}: {each.kind.wanted}; {default}"


def _columns() -> Iterator[str]:
    for name, column in RECORD_COLUMNS.items():
        yield f"column {name}: {column.expected}"


def _metrics() -> Iterator[str]:
    for family in FAMILIES:
        yield f"metric {prometheus_name(family)}{{{', '.join(family.labels)}}}"
    for group, metrics in (("producer", (*PRODUCER, *OWN, *GAUGES)), ("producer-topic", TOPIC), ("producer-node", NODE)):
        for metric in sorted(metrics):
            yield f"metric of {group} {metric.name}"


def _commands() -> Iterator[str]:
    for command, context in commands(command_line, click.Context(command_line, info_name=NAME)):
        if isinstance(command, click.Group):
            continue
        yield f"command {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
        for each in command.params:
            if isinstance(each, click.Option):
                yield f"command {context.command_path} {' '.join((*each.opts, *each.secondary_opts))}"
    for code in ExitCode:
        yield f"exit code of verify {code.value}: {code.name}"


def _records() -> Iterator[str]:
    batch = BatchReport("query", 0, 0.0, 0.0, DeliveryReport())
    for name, value in json.loads(ReportRecord(batch, "", "none").value()).items():
        yield f"field of report.topic {name}: {type(value).__name__}"
    for each in PARTITION_SCHEMA:
        yield f"field of report.topic partitions.{each.name}: {each.type}"
    for name in history_of("query", [batch], "").to_arrow().schema:
        yield f"field of a history {name.name}: {name.type}"
    transaction = PreparedTransaction(TransactionHandle("id", 0, 0, 2, 0), 0, 0)
    rows, ids = (TaskRows(0, 0, 0),), (("topic", NO_ID),)
    record = CommitRecord("query", 0, State.COMPLETE, "id", 0, (transaction,), tasks=rows, topic_ids=ids, name="name")
    for name, value in json.loads(encode(record)[0]).items():
        yield f"field of the commit log {name}: {type(value).__name__}"
        if name == "transactions":
            yield from (f"field of the commit log transactions.{field}" for field in value[0])


def differences() -> list[str]:
    """Returns the lines that are gone (-) and new (+) since the file was written."""
    kept = SNAPSHOT.read_text(encoding="utf-8").splitlines() if SNAPSHOT.exists() else []
    found = difflib.unified_diff(kept, lines(), lineterm="", n=0)
    return [line for line in found if line[:2] not in ("--", "++", "@@")]


if __name__ == "__main__":
    if "--write" in sys.argv:
        SNAPSHOT.write_text("\n".join(lines()) + "\n", encoding="utf-8")
    elif found := differences():
        sys.exit("\n".join([*found, "The interface differs from docs/interface.txt: make api WRITE=1 renews it"]))
