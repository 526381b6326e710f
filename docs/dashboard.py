"""Makes docs/grafana/dashboard.json, the Grafana dashboard of the sink, from the table of panels below.

A test compares the table with the metrics that the driver serves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

UID: Final = "spark-kafka-sink"
# Of the classic model in Grafana 12 and 13, which also read older ones.
SCHEMA_VERSION: Final = 42

_WIDTH, _HEIGHT, _GRID = 8, 8, 24


@dataclass(frozen=True, slots=True)
class Query:
    """A query of Prometheus. legend: the name of each of its series, in Grafana's syntax."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel with lines over time.

    Attributes:
        title: Its heading.
        unit: Grafana's name of the unit.
        text: What it shows and what to look for.
        queries: Its queries.
    """

    title: str
    unit: str
    text: str
    queries: tuple[Query, ...]


def _rate(name: str, by: str = "") -> str:
    return f'sum{f" by ({by}) " if by else ""}(rate(kafka_sink_{name}{{job=~"$job"}}[$__rate_interval]))'


def _gauge(name: str, selector: str = "") -> str:
    return f'kafka_sink_{name}{{job=~"$job"{selector}}}'


def _latency(quantile: float) -> str:
    return f"histogram_quantile({quantile:g}, {_rate('ack_latency_seconds_bucket', 'topic, le')})"


_QUERY: Final = "query, query_name"
# They commit once, and their silence afterwards means nothing.
_NO_JOBS: Final = ', query!="batch-jobs"'
_P99: Final = ', quantile="0.99"'

NOT_SHOWN: Final[Mapping[str, str]] = {
    "kafka_sink_last_batch_number": "its lines would only rise; `watch` shows it",
    "kafka_sink_last_batch_uncompressed_bytes": "its records are shown",
    "kafka_sink_query_active": "the alert on queries that commit nothing uses it",
    "kafka_sink_retries_total": "the retries of each query are shown",
}
"""Metrics without a panel, with the reason."""

ROWS: Final[Mapping[str, Sequence[Panel]]] = {
    "Delivery": (
        Panel(
            "Records by query",
            "cps",
            "Committed records per second. Records of successful tasks above their sum were written again or not committed.",
            (
                Query(_rate("query_records_total", _QUERY), "{{query_name}}"),
                Query(_rate("task_records_total"), "successful tasks"),
            ),
        ),
        Panel(
            "Records by topic",
            "cps",
            "Committed records per second. With more topic-partitions than `most_partitions`, these are sums of topics as well.",
            (Query(_rate("records_total", "topic"), "{{topic}}"),),
        ),
        Panel(
            "Bytes",
            "Bps",
            "Bytes per second before and after compression.",
            (
                Query(_rate("uncompressed_bytes_total"), "before compression"),
                Query(_rate("compressed_bytes_total"), "as sent"),
            ),
        ),
    ),
    "Micro-batches": (
        Panel(
            "Micro-batches per minute",
            "short",
            "Committed micro-batches. Batch jobs are one query here.",
            (Query(f"60 * {_rate('batches_total', _QUERY)}", "{{query_name}}"),),
        ),
        Panel(
            "Duration of the last micro-batch",
            "s",
            "From the start of its first task until the commit.",
            (Query(_gauge("last_batch_duration_seconds"), "{{query_name}}"),),
        ),
        Panel(
            "Records of the last micro-batch",
            "short",
            "A micro-batch that grows cannot keep up with its source.",
            (Query(_gauge("last_batch_records"), "{{query_name}}"),),
        ),
        Panel(
            "Time since the last commit",
            "s",
            "A query that commits nothing has stopped, waits, or has no input.",
            (Query(f"time() - {_gauge('last_batch_timestamp_seconds', _NO_JOBS)}", "{{query_name}}"),),
        ),
        Panel(
            "Running tasks",
            "short",
            "Tasks that have run for a second or more.",
            (Query(_gauge("running_tasks"), "{{instance}}"),),
        ),
        Panel(
            "Records of running tasks",
            "short",
            "Records that these tasks have delivered so far.",
            (Query(_gauge("running_task_records"), "{{instance}}"),),
        ),
    ),
    "Brokers": (
        Panel(
            "Time to acknowledgement by topic",
            "s",
            "Half and 99 % of the record batches were acknowledged within this time.",
            (Query(_latency(0.5), "{{topic}}, 50 %"), Query(_latency(0.99), "{{topic}}, 99 %")),
        ),
        Panel(
            "Time to acknowledgement by query",
            "s",
            "99 % of the record batches of the last micro-batch were acknowledged within this time.",
            (Query(_gauge("last_batch_ack_latency_seconds", _P99), "{{query_name}}"),),
        ),
        Panel(
            "Record batches and requests",
            "cps",
            "Per second. Few record batches in a request, and many of both, cost brokers and the sink time.",
            (
                Query(_rate("record_batches_total"), "record batches"),
                Query(_rate("produce_requests_total"), "Produce requests"),
            ),
        ),
        Panel(
            "Retries and errors",
            "cps",
            "Record batches per second of committed writes that were sent again or rejected, and failed writes per second.",
            (
                Query(_rate("failed_writes_total", _QUERY), "failed writes of {{query_name}}"),
                Query(_rate("query_retries_total", _QUERY), "retries of {{query_name}}"),
                Query(_rate("errors_total", "error"), "{{error}}"),
                Query(_rate("reports_lost_total"), "lost reports"),
            ),
        ),
        Panel(
            "Quotas and rate limits",
            "s",
            "Seconds of pauses per second, of all requests and appends together.",
            (
                Query(_rate("throttled_seconds_total"), "quotas of brokers"),
                Query(_rate("rate_limited_seconds_total"), "rate limits"),
            ),
        ),
        Panel(
            "Bad rows",
            "short",
            "Rows per minute that were not delivered to their topics, by reason, and those in the dead-letter topic.",
            (
                Query(f"60 * {_rate('bad_rows_total', 'reason')}", "{{reason}}"),
                Query(f"60 * {_rate('dead_letters_total')}", "dead letters"),
            ),
        ),
    ),
    "Exactly-once": (
        Panel(
            "Oldest open transaction",
            "s",
            "Consumers that read committed wait for it. Brokers abort it at its time limit, and the alert fires at half of that.",
            (
                Query(_gauge("open_transaction_age_seconds"), "{{query_name}}"),
                Query(f"0.5 * {_gauge('transaction_timeout_seconds')}", "{{query_name}}, half of the time limit"),
                Query(_gauge("committing_seconds"), "{{query_name}}, waiting commit"),
            ),
        ),
        Panel(
            "Transactions per minute",
            "short",
            "By outcome. Aborted ones belong to failed tasks and jobs.",
            (Query(f"60 * {_rate('transactions_total', 'outcome')}", "{{outcome}}"),),
        ),
        Panel(
            "Time of a commit",
            "s",
            "On average of all micro-batches, and of the last one.",
            (
                Query(f"{_rate('commit_seconds_total')} / {_rate('batches_total')}", "average"),
                Query(_gauge("last_batch_commit_seconds"), "{{query_name}}"),
            ),
        ),
    ),
}


def panels() -> list[Panel]:
    """Returns all panels in the order of the page."""
    return [panel for row in ROWS.values() for panel in row]


def dashboard() -> str:
    """Returns the text of the JSON file."""
    made: dict[str, Any] = {
        "uid": UID,
        "title": "Spark Kafka sink",
        "description": "What the drivers of spark-kafka-sink deliver to Kafka",
        "tags": ["kafka", "spark"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # the cross of one panel is shown in all
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": _placed(),
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def _variables() -> list[dict[str, Any]]:
    jobs = "label_values(kafka_sink_retries_total, job)"
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1},
        {
            "name": "job",
            "label": "Job",
            "type": "query",
            "datasource": _SOURCE,
            "query": jobs,
            "refresh": 2,  # when the time range changes
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        },
    ]


def _placed() -> list[dict[str, Any]]:
    """Returns the panels in their places: a heading for each row, and three panels beside each other."""
    found: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": y, "w": _GRID, "h": 1}
        found.append({"id": len(found) + 1, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": place})
        y += 1
        for number, panel in enumerate(row):
            across = _GRID // _WIDTH
            x = number % across * _WIDTH
            place = {"x": x, "y": y + number // across * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            found.append({"id": len(found) + 1, "gridPos": place, **_panel(panel)})
        y += -(-len(row) // (_GRID // _WIDTH)) * _HEIGHT
    return found


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": query.expr, "legendFormat": query.legend, "range": True}
        for number, query in enumerate(panel.queries)
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never"},
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }
