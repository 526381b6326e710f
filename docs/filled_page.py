"""Fills the tables of pages that are otherwise written by hand: docs/broker.md, docs/metrics.md and others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from benchmarks.cost import page as cost
from benchmarks.scale import partitions, tasks, workers
from docs.markdown import table
from spark_kafka_sink.broker import BrokerConfig
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS
from spark_kafka_sink.broker.server_properties import SETTINGS
from spark_kafka_sink.exporters.metric_families import FAMILIES, LATENCY_TEXT
from spark_kafka_sink.exporters.opentelemetry import ATTRIBUTES
from spark_kafka_sink.exporters.prometheus import prometheus_name
from spark_kafka_sink.producer.metrics.metric_table import GAUGES, NODE, OWN, PRODUCER, TOPIC, Metric

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


def _settings() -> str:
    rows = (
        [f"`{name}`", _default(setting.text_in(BrokerConfig()), setting.text(setting.default))]
        for name, setting in sorted(SETTINGS.items())
    )
    return table(["setting", "default"], rows)


def _default(here: str | None, kafkas: str | None) -> str:
    return _value(here) if here == kafkas else f"{_value(here)} (Kafka: {_value(kafkas)})"


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


def _driver_metrics() -> str:
    rows = [
        [f"`{prometheus_name(family)}`", ", ".join(f"`{label}`" for label in family.labels if label != "query_name"), family.text]
        for family in FAMILIES
    ]
    rows.append(["`kafka_sink_ack_latency_seconds`", "`topic`", f"histogram: {LATENCY_TEXT}"])
    return table(["metric", "labels", "description"], rows)


def _attributes() -> str:
    return table(["label", "OpenTelemetry's attribute"], ([f"`{label}`", f"`{name}`"] for label, name in ATTRIBUTES.items()))


def _producer_metrics() -> str:
    producer = _java_metrics("`producer-metrics`: the whole producer", sorted((*PRODUCER, *OWN, *GAUGES)))
    topic = _java_metrics("`producer-topic-metrics`: each topic", TOPIC)
    node = _java_metrics("`producer-node-metrics`: each broker", NODE)
    return "\n".join((producer, topic, node))


def _java_metrics(title: str, metrics: Iterable[Metric]) -> str:
    """Returns a table in which metrics of one description share a row, such as a rate and a total."""
    rows: dict[str, list[Metric]] = {}
    for metric in metrics:
        rows.setdefault(metric.doc, []).append(metric)
    lines = ([", ".join(f"`{each.name}`" for each in some), _units(some), doc] for doc, some in rows.items())
    return f"### {title}\n\n{table(['metric', 'unit', 'description'], lines)}"


def _units(metrics: Iterable[Metric]) -> str:
    """Returns the units without those of rates, which all are per second."""
    return ", ".join(dict.fromkeys(metric.unit for metric in metrics if not metric.unit.endswith("/s")))


def _value(text: str | None) -> str:
    return f"`{text}`" if text else "none"


TABLES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "performance.md": {"cost": cost.summary},
    "broker.md": {"the broker's settings": _settings, "the topics' settings": _topics},
    "metrics.md": {
        "the driver's metrics": _driver_metrics,
        "OpenTelemetry's attributes": _attributes,
        "the producer's metrics": _producer_metrics,
    },
    "measurements.md": {"cost": cost.details, "partitions": partitions.tables, "workers": workers.tables, "tasks": tasks.tables},
}
