"""The stable interface as lines of text. docs/interface.txt keeps them, and `make api` compares the two.

Each line is a promise (docs/stable-interface.md) unless it begins with "provisional". So only `make api WRITE=1` renews the file,
and somebody reads the difference.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import click
import griffe

from docs.cli_page import NAME, commands
from docs.interface_options import option_lines
from docs.public_names import (
    BROKER,
    GIVEN,
    PACKAGE,
    ROOT,
    SECTIONS,
    Documented,
    errors,
    exported,
    fields,
    methods,
    package,
    parameters,
)
from spark_kafka_sink import broker, pytest_plugin
from spark_kafka_sink.cli.main import main as command_line
from spark_kafka_sink.cli.run_broker import ready_line
from spark_kafka_sink.exactly_once.commit_errors import CHECKPOINT_DELETED, RowVisibility
from spark_kafka_sink.exactly_once.commit_log_topic import CommitLogDeletedError
from spark_kafka_sink.exactly_once.commit_record import (
    NO_ID,
    CommitRecord,
    CommitRecordError,
    PreparedTransaction,
    State,
    TaskRows,
    encode,
)
from spark_kafka_sink.exactly_once.commit_rules import Reason as StopReason
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError
from spark_kafka_sink.exporters.metric_families import FAMILIES, Snapshot
from spark_kafka_sink.exporters.opentelemetry import ATTRIBUTES, instrument_name, instrument_unit
from spark_kafka_sink.exporters.prometheus import BOUNDS, HISTOGRAM, HISTOGRAM_LABELS, prometheus_name
from spark_kafka_sink.exporters.series_choices import OTHER_TOPICS
from spark_kafka_sink.producer.metrics.metric_table import GAUGES, NODE, OWN, PRODUCER, TOPIC
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, PartitionReport, PartitionReports
from spark_kafka_sink.reports.report_tables import PARTITION_SCHEMA, TASK_SCHEMA
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.column_types import RECORD_COLUMNS
from spark_kafka_sink.spark.driver.history import history_of
from spark_kafka_sink.spark.driver.metrics import BATCHES_LOGGER
from spark_kafka_sink.spark.plan.data_source import NAME as FORMAT
from spark_kafka_sink.spark.query_totals import NO_QUERIES, QUANTILES, QueryTotals
from spark_kafka_sink.spark.report_record import ReportRecord
from spark_kafka_sink.spark.task.dead_letters import LAST_STAGE, STAGES, Reason, Why
from spark_kafka_sink.spark.task.letter_text import Form
from spark_kafka_sink.verify.outcome import ExitCode
from spark_kafka_sink.verify.read_back import ReadBackError

SNAPSHOT = Path(__file__).with_name("interface.txt")
PROVISIONAL = ("FaultInjection", "Where", "Fault", "ClientMetricsManager", "PushedMetrics", "ApiException")
"""Names of the broker that may change in each release 0.x."""
ERRORS_ELSEWHERE = (CommitLogDeletedError, CommitRecordError, ClaimLostError)
"""Errors outside of errors.py whose codes users see."""


def lines() -> list[str]:
    """Returns the interface of this checkout: a line for each name, option, column, metric, code, command and field."""
    found = (_names(), _errors(), option_lines(), _columns(), _metrics(), _commands(), _records(), _packaging())
    return [line for part in found for line in part]


def _names() -> Iterator[str]:
    for page in SECTIONS.values():
        for name in page:
            yield from _described(f"{PACKAGE}.{name}", exported(name))
    for name in BROKER:
        mark = "provisional: " if name in PROVISIONAL else ""
        yield from _described(f"{mark}{PACKAGE}.broker.{name}", exported(name))
    yield from (f"{PACKAGE}.broker.{name}" for name in broker.__all__ if name not in BROKER)
    config = broker.BrokerConfig()
    yield from (
        f"field of BrokerConfig {each.name}: default {getattr(config, each.name)!r}" for each in dataclasses.fields(config)
    )


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
        texts.append(f"{star}{each.name}" + (f"={_default(found, each)}" if each.default is not None and not star else ""))
    return f"({', '.join(texts)})"


def _default(found: Documented, parameter: griffe.Parameter) -> str:
    """Returns the value of a default that is the name of a number or a text, and another default as it is written."""
    value = getattr(import_module(found.module.path), str(parameter.default), None)
    return repr(value) if isinstance(value, int | float | str) else str(parameter.default)


def _errors() -> Iterator[str]:
    for each in errors():
        code = each.members.get("code")
        of = f" [{str(code.value).strip(chr(39))}]" if isinstance(code, griffe.Attribute) and code.value else ""
        yield f"{PACKAGE}.errors.{each.name}({', '.join(map(str, each.bases))}){of}"
        if each.name == "KafkaSinkError":
            yield from (f"{PACKAGE}.errors.{each.name}.{member.name}" for member in (*fields(each), *methods(each)))
    yield from (f"code of an error {code}" for code in (*(each.code for each in ERRORS_ELSEWHERE), ReadBackError.CODE))
    yield from (f"reason of CommitStoppedError {name}" for name in (*StopReason.__members__, CHECKPOINT_DELETED))
    yield from (f"standing of CommitTimeoutError {each.name}" for each in RowVisibility)


def _columns() -> Iterator[str]:
    for name, column in RECORD_COLUMNS.items():
        yield f"column {name}: {column.expected}"


def _metrics() -> Iterator[str]:
    for family in FAMILIES:
        yield f"metric {prometheus_name(family)}{{{', '.join(family.labels)}}}"
    yield f"metric {HISTOGRAM}{{{', '.join(HISTOGRAM_LABELS)}}}: up to {', '.join(BOUNDS)}"
    yield from dict.fromkeys(_label_values())
    for family in FAMILIES:
        attributes = ", ".join(ATTRIBUTES[label] for label in family.labels)
        yield f"instrument {instrument_name(family)}, {family.kind.value} of {instrument_unit(family)}: {attributes or 'none'}"
    for group, metrics in (("producer", (*PRODUCER, *OWN, *GAUGES)), ("producer-topic", TOPIC), ("producer-node", NODE)):
        for metric in sorted(metrics):
            yield f"metric of {group} {metric.name}"


def _label_values() -> Iterator[str]:
    """Yields the values of labels that no name of a topic, error or query gives."""
    totals = dict.fromkeys(sorted(NO_QUERIES), QueryTotals(last_ack_ms=(1.0,) * len(QUANTILES)))
    partitions = PartitionReports({(OTHER_TOPICS, ALL_PARTITIONS): PartitionReport()})
    for family in FAMILIES:
        for values, _ in family.values(Snapshot(DeliveryReport(partitions=partitions), queries=totals)):
            yield from (f"value of label {label}: {value}" for label, value in zip(family.labels, values, strict=True))


def _commands() -> Iterator[str]:
    for command, context in commands(command_line, click.Context(command_line, info_name=NAME)):
        if isinstance(command, click.Group):
            continue
        yield f"command {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
        for each in command.params:
            if isinstance(each, click.Option):
                yield f"command {context.command_path} {_command_option(each)}"
        group = context.parent.command.epilog if context.parent is not None else None
        for paragraph in (command.epilog or group or "").split("\n\n"):
            if paragraph.startswith("Exit"):
                yield f"command {context.command_path}: {' '.join(paragraph.split())}"
    for code in ExitCode:
        yield f"exit code of verify {code.value}: {code.name}"
    ready = ready_line(Mock(client_settings={"bootstrap.servers": "HOST:PORT"}), Mock(data_dir=None, tls=None), None)
    yield f"command {NAME} broker prints: {ready.partition(',')[0]}"


def _command_option(option: click.Option) -> str:
    choices = "|".join(option.type.choices) if isinstance(option.type, click.Choice) else option.type.name
    takes = "" if option.is_flag else f" {choices}{' ...' if option.multiple else ''}"
    has_default = isinstance(option.default, str | int | float) and not option.is_flag
    default = "; required" if option.required else f"; default {option.default}" if has_default else ""
    return f"{' '.join((*option.opts, *option.secondary_opts))}{takes}{default}"


def _records() -> Iterator[str]:
    words = {"header": Why, "reason": Reason, "stage": (*STAGES.values(), LAST_STAGE), "format": filter(None, Form)}
    yield from (f"{what} of a dead letter {each}" for what, all_words in words.items() for each in all_words)
    batch = BatchReport("query", 0, 0.0, 0.0, DeliveryReport())
    for name, value in json.loads(ReportRecord(batch, "", "none").value()).items():
        yield f"field of report.topic {name}: {type(value).__name__}"
    for each in PARTITION_SCHEMA:
        yield f"field of report.topic partitions.{each.name}: {each.type}"
    yield from (f"column of a report's table {each.name}: {each.type}" for each in TASK_SCHEMA)
    for name in history_of("query", [batch], "").to_arrow().schema:
        yield f"field of a history {name.name}: {name.type}"
    transaction = PreparedTransaction(TransactionHandle("id", 0, 0, 2, 0), 0, 0)
    rows, ids = (TaskRows(0, 0, 0),), (("topic", NO_ID),)
    record = CommitRecord("query", 0, State.COMPLETE, "id", 0, (transaction,), tasks=rows, topic_ids=ids, name="name")
    for name, value in json.loads(encode(record)[0]).items():
        yield f"field of the commit log {name}: {type(value).__name__}"
        if name == "transactions":
            yield from (f"field of the commit log transactions.{field}" for field in value[0])


def _packaging() -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield f"format {FORMAT}"
    yield f"logger {BATCHES_LOGGER}"
    yield from (f"command {name}" for name in project["scripts"])
    yield from (f"extra {name}" for name in project["optional-dependencies"] if name not in ("docs", "dev"))
    yield from (f"pytest plugin {name}" for name in project["entry-points"]["pytest11"])
    parser = Mock()
    pytest_plugin.pytest_addoption(parser)
    yield from (f"pytest option {call.args[0]}" for call in parser.getgroup().addoption.call_args_list)
    for call in parser.addini.call_args_list:
        default = call.kwargs.get("default")
        yield f"pytest ini option {call.args[0]}: {call.kwargs.get('type', 'string')}{f'; default {default}' if default else ''}"
    for function in package()["pytest_plugin"].functions.values():
        if any("fixture" in str(each.value) for each in function.decorators):
            yield f"pytest fixture {function.name}"
    alerts = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8").partition("worth an alert:")[2].partition("##")[0]
    for cell in re.findall(r"^\| (.*?) \|", alerts, re.MULTILINE):
        yield from (f"text of the log {text}" for text in re.findall("`([^`[]+)`", cell))


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
