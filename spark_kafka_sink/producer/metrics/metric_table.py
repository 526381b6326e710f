"""Table of all metrics: Java name, unit, description, and the statistic that each is read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import nan
from typing import NamedTuple


class Metric(NamedTuple):
    """A metric, or a gauge if `stat` is empty. The producer computes a gauge's value on request.

    Attributes:
        name: name in Java.
        doc: description, for docs/metrics.md.
        stat: name of the statistic, which is the name of Java's sensor.
        read: property of `Measured` that holds the value.
    """

    name: str
    unit: str
    doc: str
    stat: str = ""
    read: str = ""


def _average_and_maximum(name: str, unit: str, doc: str, stat: str) -> tuple[Metric, Metric]:
    return Metric(f"{name}-avg", unit, doc, stat, "average"), Metric(f"{name}-max", unit, doc, stat, "maximum")


def _meter(name: str, unit: str, doc: str, stat: str) -> tuple[Metric, Metric]:
    """Returns rate and total of summed values, like Java's Meter."""
    return Metric(f"{name}-rate", f"{unit}/s", doc, stat, "rate"), Metric(f"{name}-total", unit, doc, stat, "all_total")


def _count_meter(name: str, unit: str, doc: str, stat: str) -> tuple[Metric, Metric]:
    """Returns rate and total of the number of values, like Java's Meter with WindowedCount."""
    return Metric(f"{name}-rate", f"{unit}/s", doc, stat, "count_rate"), Metric(f"{name}-total", unit, doc, stat, "all_number")


def _time_share(name: str, doc: str, stat: str) -> tuple[Metric, Metric, Metric]:
    """Returns the metrics of the time that the sender thread spends on an activity."""
    return (
        Metric(f"{name}-time-ns-avg", "ns", doc, stat, "average"),
        Metric(f"{name}-ratio", "0 to 1", doc, stat, "ratio"),
        Metric(f"{name}-time-ns-total", "ns", doc, stat, "all_total"),
    )


_SENT = "in Produce requests, counted again for each retry"
_RETRIED = "in batches that return to their queue after a transient error"
_ERRORS = "that failed permanently: rejected, expired, or unsent when the producer was closed"

PRODUCER: tuple[Metric, ...] = (
    *_average_and_maximum("batch-size", "bytes", "size of a batch as sent, compressed and with its header", "batch-size"),
    Metric(
        "compression-rate-avg",
        "0 to 1",
        "compressed over uncompressed size of the records",
        "compression-rate",
        "average",
    ),
    *_average_and_maximum("record-queue-time", "ms", "from the creation of a batch until it is sent", "queue-time"),
    *_average_and_maximum("request-latency", "ms", "from a Produce request to its response", "request-time"),
    *_average_and_maximum("produce-throttle-time", "ms", "pause that a quota imposes", "throttle-time"),
    *_meter("record-send", "records", f"records {_SENT}", "records-per-request"),
    Metric("records-per-request-avg", "records", "records in a Produce request", "records-per-request", "average"),
    *_meter("record-retry", "records", f"records {_RETRIED}", "record-retries"),
    *_meter("record-error", "records", f"records {_ERRORS}; includes records that an append rejected", "errors"),
    *_average_and_maximum(
        "record-size", "bytes", "uncompressed size of the largest record of a batch, as a separate batch", "record-size"
    ),
    *_meter("batch-split", "batches", "batches split because they were too large for the broker", "batch-split"),
    *_meter(
        "buffer-exhausted", "records", "records rejected because no memory became free within max.block.ms", "buffer-exhausted"
    ),
    Metric("bufferpool-wait-ratio", "0 or more", "time that appends wait for memory", "bufferpool-wait", "ratio"),
    Metric("bufferpool-wait-time-ns-total", "ns", "time that appends wait for memory", "bufferpool-wait", "all_total"),
    Metric("flush-time-ns-total", "ns", "time spent in flushes", "flush-time", "all_total"),
    Metric("metadata-wait-time-ns-total", "ns", "time that appends waited for metadata", "metadata-wait", "all_total"),
    *_count_meter("network-io", "operations", "reads from and writes to all connections", "network-io"),
    *_meter("outgoing-byte", "bytes", "bytes sent in requests of every kind", "bytes-sent"),
    *_count_meter("request", "requests", "requests sent, of every kind", "request"),
    *_average_and_maximum("request-size", "bytes", "size of a request of any kind, as sent", "request"),
    *_meter("incoming-byte", "bytes", "bytes received", "bytes-received"),
    *_count_meter("response", "responses", "responses received", "response"),
    *_count_meter("connection-creation", "connections", "connections opened", "connections-created"),
    *_count_meter(
        "connection-close", "connections", "connections closed, including failed attempts to connect", "connections-closed"
    ),
    *_count_meter("select", "polls", "polls of the sockets", "select-time"),
    *_time_share("io-wait", "time that the sender waits for sockets or work: as a share, per poll, and in total", "select-time"),
    *_time_share("io", "time that the sender reads and writes: as a share, per poll, and in total", "io-time"),
    *(
        Metric(f"txn-{step}-time-ns-total", "ns", "time in successful calls of this step", f"txn-{step}", "all_total")
        for step in ("init", "begin", "send-offsets", "commit", "abort")
    ),
)

OWN: tuple[Metric, ...] = (
    Metric("rate-limit-wait-ratio", "0 or more", "time that appends wait for the rate limit", "rate-wait", "ratio"),
    Metric("rate-limit-wait-time-ns-total", "ns", "time that appends wait for the rate limit", "rate-wait", "all_total"),
)
"""Metrics of the whole producer that Java lacks: it has no rate limit."""

GAUGES: tuple[Metric, ...] = (
    Metric("requests-in-flight", "requests", "requests of every kind that wait for a response"),
    Metric("metadata-age", "s", "age of the metadata of all topics; NaN before the first response"),
    Metric("buffer-total-bytes", "bytes", "total memory for records (`buffer.memory`)"),
    Metric("buffer-available-bytes", "bytes", "free memory for records"),
    Metric("waiting-threads", "threads", "appends that wait for memory"),
    Metric("connection-count", "connections", "open connections"),
)

TOPIC: tuple[Metric, ...] = (
    *_meter("record-send", "records", f"records {_SENT}", "records-per-batch"),
    *_meter("byte", "bytes", "bytes of batches in Produce requests, compressed and with their headers", "bytes"),
    Metric("compression-rate", "0 to 1", "compressed over uncompressed size of the records", "compression-rate", "average"),
    *_meter("record-retry", "records", f"records {_RETRIED}", "record-retries"),
    *_meter("record-error", "records", f"records {_ERRORS}", "record-errors"),
)

NODE: tuple[Metric, ...] = (
    *_average_and_maximum("request-latency", "ms", "from a Produce request to its response", "latency"),
    *_count_meter("request", "requests", "requests sent, of every kind", "request"),
    *_average_and_maximum("request-size", "bytes", "size of a request of any kind, as sent", "request"),
    *_count_meter("response", "responses", "responses received", "response"),
    *_meter("outgoing-byte", "bytes", "bytes sent", "bytes-sent"),
    *_meter("incoming-byte", "bytes", "bytes received", "bytes-received"),
)

_AUTHENTICATIONS = (
    "successful-authentication",
    "failed-authentication",
    "successful-reauthentication",
    "failed-reauthentication",
)

CONSTANT_METRICS: Mapping[str, float] = {
    **{f"{what}-{kind}": 0.0 for what in _AUTHENTICATIONS for kind in ("rate", "total")},
    "successful-authentication-no-reauth-total": 0.0,
    **{f"reauthentication-latency-{kind}": nan for kind in ("avg", "max")},
    "txn-prepare-time-ns-total": 0.0,
}
"""Java's metrics for what this producer does not count (logins) or does not do (prepareTransaction)."""


def stat_names(metrics: Iterable[Metric]) -> set[str]:
    return {metric.stat for metric in metrics}
