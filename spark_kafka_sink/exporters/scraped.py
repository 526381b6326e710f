"""Reads what `spark-kafka-sink watch` shows from a driver's page for Prometheus. It needs no PySpark."""

from __future__ import annotations

import http.client
import ssl
import time
from email.utils import parsedate_to_datetime
from typing import Final

from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.reports.report_facts import printable
from spark_kafka_sink.security.http import HttpRequest, HttpTimeouts, send, shown
from spark_kafka_sink.spark.driver.views.watch import NoAnswerError
from spark_kafka_sink.spark.driver.views.watch_table import Reading
from spark_kafka_sink.spark.query_totals import QUANTILES, QueryTotals

PREFIX: Final = "kafka_sink_"
_QUERY, _QUANTILE, _NAME = "query", "quantile", "query_name"

FIELDS: Final = {
    "kafka_sink_batches_total": ("batches", 1),
    "kafka_sink_query_records_total": ("records", 1),
    "kafka_sink_last_batch_timestamp_seconds": ("last_s", 1.0),
    "kafka_sink_last_batch_duration_seconds": ("seconds", 1.0),
    "kafka_sink_last_batch_records": ("last_records", 1),
    "kafka_sink_last_batch_number": ("last_batch", 1),
    "kafka_sink_last_batch_uncompressed_bytes": ("last_bytes", 1),
    "kafka_sink_last_batch_commit_seconds": ("last_commit_ms", 1000),
    "kafka_sink_query_retries_total": ("retries", 1),
}
"""By metric: the field of QueryTotals, and what a value is multiplied by. The field is an integer where that is one."""

ACK: Final = "kafka_sink_last_batch_ack_latency_seconds"
ACTIVE: Final = "kafka_sink_query_active"
FAILED: Final = "kafka_sink_failed_writes_total"

# A page of 10,000 topic-partitions has 2 MB.
_MAX_BYTES: Final = 32 * 1024 * 1024
_TIMEOUTS: Final = HttpTimeouts(connect_s=5.0, read_s=10.0)
_HINT: Final = "--url must be the address of sks.serve_prometheus(metrics)"


class NotOursError(Exception):
    """A page that no sink's driver serves. Its text says what it is."""


def read_page(url: str) -> Reading:
    """Reads the page once.

    Args:
        url: Its address, with http or https.

    Raises:
        NoAnswerError: There is no answer.
        NotOursError: The answer is not a page of this sink's metrics.
        InstallationError: prometheus-client is missing.
    """
    check_extra("prometheus_client", "watch")
    tls = ssl.create_default_context() if url.lower().startswith("https:") else None
    try:
        answer = send(HttpRequest("GET", url, {"Accept": "text/plain"}), _TIMEOUTS, tls, max_bytes=_MAX_BYTES)
    except (OSError, http.client.HTTPException, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NoAnswerError(f"{shown(url)} does not answer: {printable(text)}") from None
    if answer.status != 200:
        raise NotOursError(f"{shown(url)} answers with HTTP status {answer.status}: {_HINT}")
    try:  # the server's own time, because its clock has stamped the commits
        now_s = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except ValueError:
        now_s = time.time()
    return reading(answer.body.decode(errors="replace"), shown(url), now_s)


def reading(page: str, source: str, now_s: float) -> Reading:
    """Returns what a page says.

    source: where the page is from, for errors. Raises NotOursError.
    """
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[str, dict[str, float]] = {}
    acks: dict[str, dict[str, float]] = {}
    names: dict[str, str] = {}
    active: dict[str, bool] = {}
    failed: dict[str, int] = {}
    metrics: set[str] = set()
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                metrics.add(sample.name)
                query = sample.labels.get(_QUERY, "")
                if (name := sample.labels.get(_NAME, query)) != query:
                    names[query] = name
                if sample.name in FIELDS:
                    field, factor = FIELDS[sample.name]
                    values.setdefault(query, {})[field] = type(factor)(sample.value * factor)
                elif sample.name == ACK:
                    acks.setdefault(query, {})[sample.labels.get(_QUANTILE, "")] = sample.value * 1000
                elif sample.name == ACTIVE:
                    active[query] = bool(sample.value)
                elif sample.name == FAILED:
                    failed[query] = int(sample.value)
    except Exception as error:  # the parser raises whatever it stumbles over
        raise NotOursError(f"{source} is not a page of Prometheus metrics ({printable(str(error))}): {_HINT}") from None
    if not any(name.startswith(PREFIX) for name in metrics):
        raise NotOursError(f"{source} has no metrics of this sink: {_HINT}")
    totals = {query: _totals(fields, acks.get(query, {})) for query, fields in values.items()}
    states = {query: "running" for query, runs in active.items() if runs} if active else None
    return Reading(now_s, totals, states, names, failed)


def _totals(fields: dict[str, float], acks: dict[str, float]) -> QueryTotals:
    known = tuple(acks.get(f"{quantile:g}", float("nan")) for quantile in QUANTILES)
    return QueryTotals(last_ack_ms=known, **fields)  # type: ignore[arg-type] # integers where FIELDS says so


def is_web_address(url: str) -> bool:
    """Returns whether this is an address that `read_page` takes."""
    scheme, separator, rest = url.partition("://")
    host = rest.partition("/")[0]
    return scheme.lower() in ("http", "https") and bool(separator) and bool(host) and "@" not in host
