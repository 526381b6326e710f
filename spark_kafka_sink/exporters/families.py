"""The metrics of a driver: one table, from which each exporter makes its own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from math import isnan
from typing import Final

from spark_kafka_sink.producer.partition_reports import ALL_PARTITIONS
from spark_kafka_sink.producer.report import LATENCY_BUCKETS, DeliveryReport
from spark_kafka_sink.spark.live import Counts
from spark_kafka_sink.spark.metrics import DeliveryMetrics
from spark_kafka_sink.spark.query_totals import QUANTILES, QueryTotals

MOST_PARTITIONS: Final = 200
"""By default. Each takes two lines of a scrape, and 5 us each."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is exported, read at one time.

    Attributes:
        committed: The total of all commits; partitions beyond the limit are sums of their topics.
        live: The records of all successful tasks, whether committed or not.
        running: The number of running tasks that have told, and their counts.
        queries: The totals of each query, and of all batch jobs together under `BATCH_JOBS`.
    """

    committed: DeliveryReport
    live: int = 0
    running: tuple[int, Counts] = (0, Counts())
    queries: dict[str, QueryTotals] = field(default_factory=dict)


def snapshot(metrics: DeliveryMetrics, most_partitions: int) -> Snapshot:
    """Reads what there is. most_partitions: more topic-partitions than that become sums of their topics."""
    live = metrics.live
    return Snapshot(
        (metrics.committed or DeliveryReport()).summed(most_partitions),
        0 if live is None else live.records,
        metrics.running(),
        metrics.totals(),
    )


class Kind(Enum):
    """How values of a metric relate: a counter only grows, a gauge is a value of now."""

    COUNTER = "counter"
    GAUGE = "gauge"


Values = Iterable[tuple[tuple[str, ...], float]]
"""The values of the labels, and the value."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric.

    Attributes:
        name: In words, with underscores, without prefix, unit and `_total`.
        kind: Counter or gauge.
        unit: "seconds", "bytes", or empty for a number of things.
        text: What it counts.
        labels: The names of its labels.
        values: Returns what a snapshot has.
    """

    name: str
    kind: Kind
    unit: str
    text: str
    labels: tuple[str, ...]
    values: Callable[[Snapshot], Values]


def _count(name: str, unit: str, text: str, value: Callable[[DeliveryReport], float]) -> Family:
    return Family(name, Kind.COUNTER, unit, text, (), lambda shot: [((), value(shot.committed))])


def _of_partitions(value: str) -> Callable[[Snapshot], Values]:
    def values(shot: Snapshot) -> Values:
        for (topic, partition), one in shot.committed.partitions.items():
            number = "all" if partition == ALL_PARTITIONS else str(partition)
            yield (topic, number), float(getattr(one, value))

    return values


def _of_queries(value: Callable[[QueryTotals], float]) -> Callable[[Snapshot], Values]:
    return lambda shot: [((query,), value(totals)) for query, totals in shot.queries.items()]


def _by_name(counts: Callable[[DeliveryReport], dict[str, int]]) -> Callable[[Snapshot], Values]:
    return lambda shot: [((name,), float(count)) for name, count in sorted(counts(shot.committed).items())]


def _last_latencies(shot: Snapshot) -> Values:
    for query, totals in shot.queries.items():
        for quantile, ms in zip(QUANTILES, totals.last_ack_ms, strict=False):
            if not isnan(ms):
                yield (query, f"{quantile:g}"), ms / 1000


COUNTER, GAUGE = Kind.COUNTER, Kind.GAUGE

FAMILIES: Final[tuple[Family, ...]] = (
    Family("records", COUNTER, "", "committed records by topic-partition", ("topic", "partition"), _of_partitions("records")),
    Family("sent", COUNTER, "bytes", "their bytes before compression", ("topic", "partition"), _of_partitions("bytes")),
    _count("compressed", "bytes", "bytes of committed record batches as sent", lambda report: report.compressed_bytes),
    _count("record_batches", "", "committed record batches", lambda report: report.batches),
    _count("produce_requests", "", "Produce requests with committed records", lambda report: report.requests),
    _count("retries", "", "record batches that were sent again", lambda report: report.retries),
    Family(
        "errors",
        COUNTER,
        "",
        "record batches that a broker or the network rejected, by Kafka's name of the error",
        ("error",),
        _by_name(lambda report: report.errors),
    ),
    Family("bad_rows", COUNTER, "", "rows not delivered to their topics", ("reason",), _by_name(lambda report: report.bad_rows)),
    _count("dead_letters", "", "bad rows in the dead-letter topic", lambda report: report.dead_letters),
    _count("throttled", "seconds", "pauses that quotas imposed, of all requests", lambda report: report.throttled_ms / 1000),
    _count("rate_limited", "seconds", "waits of appends for a rate limit", lambda report: report.rate_limited_ms / 1000),
    _count("commit", "seconds", "time of all commits under exactly-once", lambda report: report.commit_ms / 1000),
    Family(
        "transactions",
        COUNTER,
        "",
        "ended transactions",
        ("outcome",),
        lambda shot: [
            (("committed",), float(shot.committed.transactions_committed)),
            (("aborted",), float(shot.committed.transactions_aborted)),
        ],
    ),
    Family(
        "task_records", COUNTER, "", "records of successful tasks, committed or not", (), lambda shot: [((), float(shot.live))]
    ),
    Family("running_tasks", GAUGE, "", "tasks that run for a second or more", (), lambda shot: [((), float(shot.running[0]))]),
    Family(
        "running_task_records",
        GAUGE,
        "",
        "records of these tasks so far",
        (),
        lambda shot: [((), float(shot.running[1].records))],
    ),
    Family("batches", COUNTER, "", "committed micro-batches by query", ("query",), _of_queries(lambda one: one.batches)),
    Family("query_records", COUNTER, "", "committed records by query", ("query",), _of_queries(lambda one: one.records)),
    Family(
        "last_batch_timestamp",
        GAUGE,
        "seconds",
        "when a query last committed, since the epoch",
        ("query",),
        _of_queries(lambda one: one.last_s),
    ),
    Family(
        "last_batch_duration", GAUGE, "seconds", "duration of that micro-batch", ("query",), _of_queries(lambda one: one.seconds)
    ),
    Family("last_batch_records", GAUGE, "", "records of that micro-batch", ("query",), _of_queries(lambda one: one.last_records)),
    Family(
        "last_batch_ack_latency",
        GAUGE,
        "seconds",
        "time within which this part of its record batches was acknowledged, rounded up to a power of 2",
        ("query", "quantile"),
        _last_latencies,
    ),
    Family("last_batch_number", GAUGE, "", "number of that micro-batch", ("query",), _of_queries(lambda one: one.last_batch)),
    Family(
        "last_batch_sent", GAUGE, "bytes", "its bytes before compression", ("query",), _of_queries(lambda one: one.last_bytes)
    ),
    Family(
        "last_batch_commit",
        GAUGE,
        "seconds",
        "time of its commit under exactly-once",
        ("query",),
        _of_queries(lambda one: one.last_commit_ms / 1000),
    ),
    Family(
        "query_retries",
        COUNTER,
        "",
        "record batches that were sent again, by query",
        ("query",),
        _of_queries(lambda one: one.retries),
    ),
)


LATENCY_TEXT: Final = "from the first send of a record batch to its acknowledgement"

BOUNDS_S: Final = tuple((1 << bucket) / 1000 for bucket in range(LATENCY_BUCKETS - 1))
"""The upper bounds of all of them but the last, in seconds."""
