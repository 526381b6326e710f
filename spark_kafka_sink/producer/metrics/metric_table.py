"""Every metric: its name in Java, its unit, what is measured, and which statistic it is read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import NamedTuple


class Metric(NamedTuple):
    """stat: the statistic's name, which is that of Java's sensor. read: the property of Measured that it is.

    Without a `stat` it is a gauge, whose value the producer knows when it is asked.
    """

    name: str
    unit: str
    doc: str
    stat: str = ""
    read: str = ""


def _average_and_maximum(name: str, unit: str, doc: str, stat: str) -> tuple[Metric, Metric]:
    return Metric(f"{name}-avg", unit, doc, stat, "average"), Metric(f"{name}-max", unit, doc, stat, "maximum")


def _meter(name: str, unit: str, doc: str, stat: str) -> tuple[Metric, Metric]:
    """Java's Meter of values that are summed."""
    return Metric(f"{name}-rate", f"{unit}/s", doc, stat, "rate"), Metric(f"{name}-total", unit, doc, stat, "all_total")


def _count_meter(name: str, unit: str, doc: str, stat: str) -> tuple[Metric, Metric]:
    """Java's Meter of values that are counted."""
    return Metric(f"{name}-rate", f"{unit}/s", doc, stat, "count_rate"), Metric(f"{name}-total", unit, doc, stat, "all_number")


def _time_share(name: str, doc: str, stat: str) -> tuple[Metric, Metric, Metric]:
    """Metrics of the time that the sender thread spends on an activity."""
    return (
        Metric(f"{name}-time-ns-avg", "ns", f"{doc}, each time", stat, "average"),
        Metric(f"{name}-ratio", "0 to 1", f"{doc}, as a part of its time", stat, "ratio"),
        Metric(f"{name}-time-ns-total", "ns", f"{doc}, in all", stat, "all_total"),
    )


_SENT = "of what goes into Produce requests, again for each retry"
_RETRIED = "of the batches that go back into their queue because of a passing error"
_ERRORS = "that failed for good: refused, expired, or left when the producer was closed"

PRODUCER: tuple[Metric, ...] = (
    *_average_and_maximum("batch-size", "bytes", "a batch as sent, compressed and with its header", "batch-size"),
    Metric("compression-rate-avg", "0 to 1", "a batch's records compressed over uncompressed", "compression-rate", "average"),
    *_average_and_maximum("record-queue-time", "ms", "from a batch's beginning to its being sent", "queue-time"),
    *_average_and_maximum("request-latency", "ms", "from a Produce request to its answer; none with acks=0", "request-time"),
    *_average_and_maximum("produce-throttle-time", "ms", "what each answer asks to wait, for a quota's sake", "throttle-time"),
    *_meter("record-send", "records", f"records {_SENT}", "records-per-request"),
    Metric("records-per-request-avg", "records", "records of a Produce request", "records-per-request", "average"),
    *_meter("record-retry", "records", f"records {_RETRIED}", "record-retries"),
    *_meter("record-error", "records", f"records {_ERRORS}, and those that an append refused", "errors"),
    *_average_and_maximum(
        "record-size", "bytes", "the largest record of a batch, uncompressed, as a separate batch", "record-size"
    ),
    *_meter("batch-split", "batches", "batches taken apart because they were too large for the broker", "batch-split"),
    *_meter(
        "buffer-exhausted", "records", "records rejected because no memory became free within max.block.ms", "buffer-exhausted"
    ),
    Metric("bufferpool-wait-ratio", "0 or more", "time that appends wait for memory, all together", "bufferpool-wait", "ratio"),
    Metric("bufferpool-wait-time-ns-total", "ns", "time that appends waited for memory", "bufferpool-wait", "all_total"),
    Metric("flush-time-ns-total", "ns", "time spent in flushes", "flush-time", "all_total"),
    Metric("metadata-wait-time-ns-total", "ns", "time that appends waited for metadata", "metadata-wait", "all_total"),
    *_count_meter("network-io", "operations", "reads and writes on all connections", "network-io"),
    *_meter("outgoing-byte", "bytes", "bytes sent, requests of every kind", "bytes-sent"),
    *_count_meter("request", "requests", "requests sent, of every kind", "request"),
    *_average_and_maximum("request-size", "bytes", "a request as sent, of any kind", "request"),
    *_meter("incoming-byte", "bytes", "bytes received", "bytes-received"),
    *_count_meter("response", "answers", "answers received", "response"),
    *_count_meter("connection-creation", "connections", "connections made", "connections-created"),
    *_count_meter(
        "connection-close", "connections", "connections closed, and those that could not be made", "connections-closed"
    ),
    *_count_meter("select", "polls", "looks of the sender's thread at its sockets", "select-time"),
    *_time_share("io-wait", "time that the sender's thread waits for sockets or for work", "select-time"),
    *_time_share("io", "time that the sender's thread reads and writes", "io-time"),
    *(
        Metric(f"txn-{step}-time-ns-total", "ns", f"time spent in {calls} that succeeded", f"txn-{step}", "all_total")
        for step, calls in (
            ("init", "calls of `init_transactions` and `transaction`"),
            ("begin", "calls of `begin`"),
            ("send-offsets", "calls of `send_offsets`"),
            ("commit", "calls of `commit`"),
            ("abort", "calls of `abort`"),
        )
    ),
)

GAUGES: tuple[Metric, ...] = (
    Metric("requests-in-flight", "requests", "requests of every kind that wait for their answer now"),
    Metric("metadata-age", "s", "age of what is known of all topics; NaN before the first answer"),
    Metric("buffer-total-bytes", "bytes", "buffer.memory"),
    Metric("buffer-available-bytes", "bytes", "the part of it that is free now"),
    Metric("waiting-threads", "threads", "appends that wait for memory now"),
    Metric("connection-count", "connections", "connections there are now"),
)

TOPIC: tuple[Metric, ...] = (
    *_meter("record-send", "records", f"records {_SENT}", "records-per-batch"),
    *_meter("byte", "bytes", "bytes of the batches in Produce requests, compressed and with their headers", "bytes"),
    Metric("compression-rate", "0 to 1", "a batch's records compressed over uncompressed", "compression-rate", "average"),
    *_meter("record-retry", "records", f"records {_RETRIED}", "record-retries"),
    *_meter("record-error", "records", f"records {_ERRORS}", "record-errors"),
)

NODE: tuple[Metric, ...] = (
    *_average_and_maximum("request-latency", "ms", "from a Produce request to its answer; none with acks=0", "latency"),
    *_count_meter("request", "requests", "requests sent, of every kind", "request"),
    *_average_and_maximum("request-size", "bytes", "a request as sent, of any kind", "request"),
    *_count_meter("response", "answers", "answers received", "response"),
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
"""Java's metrics of what this producer does not count (logins) or not do (prepareTransaction)."""


def stat_names(metrics: Iterable[Metric]) -> set[str]:
    return {metric.stat for metric in metrics}


def metrics_tables() -> str:
    """The metrics as tables in Markdown; docs/metrics.md holds them."""
    producer = _table("`producer-metrics`: of the whole producer", sorted((*PRODUCER, *GAUGES)))
    topic = _table("`producer-topic-metrics`: of each topic", TOPIC)
    node = _table("`producer-node-metrics`: of each broker", NODE)
    return "\n".join((producer, topic, node))


def _table(title: str, metrics: Sequence[Metric]) -> str:
    rows = [f"| `{metric.name}` | {metric.unit} | {_kind(metric)}{metric.doc} |" for metric in metrics]
    return "\n".join((f"## {title}", "", "| metric | unit | what |", "| --- | --- | --- |", *rows)) + "\n"


_KINDS = {"average": "average: ", "maximum": "maximum: "}


def _kind(metric: Metric) -> str:
    return _KINDS.get(metric.read, "")
