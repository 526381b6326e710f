"""Fills the tables of pages that are otherwise written by hand: docs/broker.md, docs/metrics.md and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.scale import partitions, tasks, workers
from docs.markdown import table
from spark_kafka_sink.broker import BrokerConfig
from spark_kafka_sink.broker.cluster.broker_settings import SETTINGS
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS
from spark_kafka_sink.exporters.families import FAMILIES, LATENCY_TEXT
from spark_kafka_sink.exporters.opentelemetry import ATTRIBUTES, instrument_name, instrument_unit
from spark_kafka_sink.exporters.prometheus import prometheus_name
from spark_kafka_sink.producer.metrics.metric_table import metrics_tables

FOLDER = Path(__file__).parent
END = "<!-- end -->"


def filled(name: str) -> str:
    """Returns the page as it is, with its tables made again.

    A table stands between a comment, ``<!-- made from the code by `make docs`: KEY -->``, and an end comment.

    Args:
        name: a page of `TABLES`, such as `broker.md`.
    """
    text = (FOLDER / name).read_text(encoding="utf-8")
    for key, made in TABLES[name].items():
        begin = f"<!-- made from the code by `make docs`: {key} -->\n"
        before, found, rest = text.partition(begin)
        if not found or END not in rest:
            raise ValueError(f"docs/{name} has no place for the table {key!r}")
        text = f"{before}{begin}\n{made()}\n{END}{rest.partition(END)[2]}"
    return text


def broker_page() -> str:
    return filled("broker.md")


def metrics_page() -> str:
    return filled("metrics.md")


def monitoring_page() -> str:
    return filled("monitoring.md")


def scale_page() -> str:
    return filled("scale.md")


def _settings() -> str:
    rows = (
        [f"`{name}`", _value(setting.text_in(BrokerConfig())), _value(setting.text(setting.default)), setting.doc]
        for name, setting in sorted(SETTINGS.items())
    )
    return table(["setting", "default", "Kafka's default", "description"], rows)


def _topics() -> str:
    rows = (
        [
            f"`{name}`",
            ", ".join(f"`{broker_name}`" for broker_name, _ in key.synonyms) or "none",
            _value(key.text(key.default)),
            key.doc,
        ]
        for name, key in sorted(TOPIC_CONFIGS.items())
    )
    return table(["topic's name", "broker's names", "default", "description"], rows)


def _prometheus() -> str:
    rows = [
        [f"`{name}`", ", ".join(f"`{label}`" for label in family.labels) or "none", family.text]
        for family in FAMILIES
        for name in [prometheus_name(family)]
    ]
    rows.append(["`kafka_sink_ack_latency_seconds`", "`topic`", "histogram: " + LATENCY_TEXT])
    return table(["metric", "labels", "description"], rows)


def _opentelemetry() -> str:
    rows = (
        [
            f"`{instrument_name(family)}`",
            f"`{instrument_unit(family)}`",
            ", ".join(f"`{ATTRIBUTES[label]}`" for label in family.labels) or "none",
        ]
        for family in FAMILIES
    )
    return table(["instrument", "unit", "attributes"], rows)


def _value(text: str | None) -> str:
    return f"`{text}`" if text else "none"


TABLES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "broker.md": {"the broker's settings": _settings, "the topics' settings": _topics},
    "metrics.md": {"the producer's metrics": metrics_tables},
    "monitoring.md": {"Prometheus' metrics": _prometheus, "OpenTelemetry's instruments": _opentelemetry},
    "scale.md": {"partitions": partitions.tables, "workers": workers.tables, "tasks": tasks.tables},
}
