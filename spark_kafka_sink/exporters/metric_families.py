"""The metrics of a driver: one table, from which each exporter makes its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from math import isnan
from typing import Final

from spark_kafka_sink.exporters.series_choices import choices_of
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS
from spark_kafka_sink.spark.driver.active_queries import active_ids
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.feed import Counts
from spark_kafka_sink.spark.query_totals import NO_QUERIES, QUANTILES, QueryTotals

logger = logging.getLogger(__name__)

MOST_PARTITIONS: Final = 200
"""By default. Each takes two lines of a scrape, and 5 us each."""

# A collection that takes longer may mix two snapshots.
_COLLECTION_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is exported, read at one time.

    Attributes:
        committed: The total of all commits; partitions beyond the limit are sums of their topics, and topics beyond it one sum.
        live: The records of all successful tasks, whether committed or not.
        running: The number of running tasks that have told, and their counts.
        queries: The totals of each query, and of all batch jobs together under `BATCH_JOBS`.
        transactions: By query, the age of its oldest open transaction and the limit of that age, in seconds.
        committing: By query, for how many seconds its commit has waited since it ended its transactions.
        failed: The number of failed writes by query.
        active: The ids of the queries that run, whether they use a sink or not; None if Spark does not say.
        names: By query, the name that it had when it was first exported; empty if it had none. Also of queries of before.
    """

    committed: DeliveryReport
    live: int = 0
    running: tuple[int, Counts] = (0, Counts())
    queries: dict[str, QueryTotals] = field(default_factory=dict)
    transactions: dict[str, tuple[float, float]] = field(default_factory=dict)
    committing: dict[str, float] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    active: frozenset[str] | None = None
    names: dict[str, str] = field(default_factory=dict)


class SnapshotReader:
    """Reads snapshots of a driver. Threads: any may read."""

    def __init__(self, metrics: DeliveryMetrics, most_partitions: int, exporter: str) -> None:
        """Logs a warning that names the exporter if there is nothing to read, as on Spark Connect.

        most_partitions: more topic-partitions than that become sums of their topics, and more topics one sum. A tenth as many
        topics have a histogram.
        """
        self._metrics = metrics
        self._choices = choices_of(metrics)
        self._committed = self._choices.committed(most_partitions)
        if not metrics.available:
            logger.warning("nothing is exported to %s: %s", exporter, metrics.reason)

    def read(self) -> Snapshot | None:
        """Returns what there is now; None if deliveries are not counted."""
        if not self._metrics.available:
            return None
        metrics, live = self._metrics, self._metrics.live
        totals, ages, failed, active = metrics.totals(), metrics.transaction_ages(), metrics.writes.failed(), active_ids()
        committing = metrics.committing_s()
        writing = metrics.live_tasks.calls().intersection(active or ())  # the others are batch jobs and calls of publish
        queries = {*totals, *ages, *committing, *failed, *writing}
        names = self._choices.names(queries, lambda query: metrics.query_name(query, active or ()))
        return Snapshot(
            self._committed.of(metrics.committed),
            0 if live is None else live.records,
            metrics.live_tasks.running(),
            totals,
            ages,
            committing,
            failed,
            active,
            names,
        )


class OneSnapshot:
    """Gives the families of one collection the same snapshot, where each of them asks for itself.

    A family that asks again begins the next collection. Threads: each has a snapshot of its own.
    """

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader
        self._mine = threading.local()

    def read(self, family: str) -> Snapshot | None:
        """Returns the snapshot for a family; None if deliveries are not counted."""
        seen: set[str] | None = getattr(self._mine, "seen", None)
        now = time.monotonic()
        if seen is None or family in seen or now - self._mine.at > _COLLECTION_S:
            self._mine.seen = seen = set()
            self._mine.at, self._mine.shot = now, self._reader.read()
        seen.add(family)
        shot: Snapshot | None = self._mine.shot
        return shot


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
        unit: "seconds", "bytes", or what is counted, in the singular.
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


def _single(name: str, kind: Kind, unit: str, text: str, value: Callable[[Snapshot], float]) -> Family:
    return Family(name, kind, unit, text, (), lambda shot: [((), float(value(shot)))])


def _count(name: str, unit: str, text: str, value: Callable[[DeliveryReport], float]) -> Family:
    return _single(name, Kind.COUNTER, unit, text, lambda shot: value(shot.committed))


def _of_partitions(value: str) -> Callable[[Snapshot], Values]:
    def values(shot: Snapshot) -> Values:
        for (topic, partition), one in shot.committed.partitions.items():
            number = "all" if partition == ALL_PARTITIONS else str(partition)
            yield (topic, number), float(getattr(one, value))

    return values


_QUERY: Final = ("query", "query_name")
"""Labels of metrics of a query. One without a name has its id as its name, so that a legend of names is complete."""


def _of_queries(name: str, kind: Kind, unit: str, text: str, values: Callable[[Snapshot], Iterable[tuple[str, float]]]) -> Family:
    """values: returns the ids of queries, each with its value."""
    return Family(
        name,
        kind,
        unit,
        text,
        _QUERY,
        lambda shot: [((query, shot.names.get(query) or query), float(value)) for query, value in values(shot)],
    )


def _of_totals(name: str, kind: Kind, unit: str, text: str, value: Callable[[QueryTotals], float]) -> Family:
    return _of_queries(name, kind, unit, text, lambda shot: [(query, value(totals)) for query, totals in shot.queries.items()])


def _active(shot: Snapshot) -> Iterable[tuple[str, float]]:
    """Returns no value if Spark does not say it, so that an alert on silent queries does not take them for ended."""
    if shot.active is not None:
        for query in sorted(shot.names.keys() - NO_QUERIES):
            yield query, query in shot.active


def _by_name(name: str, unit: str, text: str, label: str, counts: Callable[[DeliveryReport], dict[str, int]]) -> Family:
    return Family(
        name,
        Kind.COUNTER,
        unit,
        text,
        (label,),
        lambda shot: [((found,), float(count)) for found, count in sorted(counts(shot.committed).items())],
    )


def _last_latencies(shot: Snapshot) -> Values:
    for query, totals in shot.queries.items():
        for quantile, ms in zip(QUANTILES, totals.last_ack_ms, strict=False):
            if not isnan(ms):
                yield (query, shot.names.get(query) or query, f"{quantile:g}"), ms / 1000


COUNTER, GAUGE = Kind.COUNTER, Kind.GAUGE

FAMILIES: Final[tuple[Family, ...]] = (
    Family(
        "records", COUNTER, "record", "committed records by topic-partition", ("topic", "partition"), _of_partitions("records")
    ),
    Family(
        "uncompressed",
        COUNTER,
        "bytes",
        "bytes of committed records before compression",
        ("topic", "partition"),
        _of_partitions("bytes"),
    ),
    _count("compressed", "bytes", "bytes of committed record batches as sent", lambda report: report.compressed_bytes),
    _count("record_batches", "record batch", "committed record batches", lambda report: report.batches),
    _count("produce_requests", "request", "Produce requests with committed records", lambda report: report.requests),
    _count("retries", "record batch", "record batches that were sent again", lambda report: report.retries),
    _by_name(
        "errors",
        "record batch",
        "record batches that a broker or the network rejected, by Kafka's name of the error",
        "error",
        lambda report: report.errors,
    ),
    _by_name("bad_rows", "row", "rows not delivered to their topics, by reason", "reason", lambda report: report.bad_rows),
    _count("dead_letters", "row", "bad rows in the dead-letter topic", lambda report: report.dead_letters),
    _count("reports_lost", "commit", "commits whose record is not in `report.topic`", lambda report: report.reports_lost),
    _count("throttled", "seconds", "pauses that quotas imposed, of all requests", lambda report: report.throttled_ms / 1000),
    _count("rate_limited", "seconds", "waits of appends for a rate limit", lambda report: report.rate_limited_ms / 1000),
    _count("commit", "seconds", "time of all commits under exactly-once", lambda report: report.commit_ms / 1000),
    Family(
        "transactions",
        COUNTER,
        "transaction",
        "ended transactions",
        ("outcome",),
        lambda shot: [
            (("committed",), float(shot.committed.transactions_committed)),
            (("aborted",), float(shot.committed.transactions_aborted)),
        ],
    ),
    _single("task_records", COUNTER, "record", "records of successful tasks, committed or not", lambda shot: shot.live),
    _single("running_tasks", GAUGE, "task", "tasks that have run for a second or more", lambda shot: shot.running[0]),
    _single(
        "running_task_records",
        GAUGE,
        "record",
        "records that running tasks have delivered so far",
        lambda shot: shot.running[1].records,
    ),
    _of_queries(
        "open_transaction_age",
        GAUGE,
        "seconds",
        "age of a query's oldest transaction that is open or committing; 0 if there is none",
        lambda shot: [(query, age) for query, (age, _) in shot.transactions.items()],
    ),
    _of_queries(
        "transaction_timeout",
        GAUGE,
        "seconds",
        "age at which brokers abort a query's oldest open transaction",
        lambda shot: [(query, limit) for query, (_, limit) in shot.transactions.items()],
    ),
    _of_queries(
        "committing",
        GAUGE,
        "seconds",
        "time that a query's slow commit has waited for markers or the commit log; 0 after it, or after its time limit",
        lambda shot: shot.committing.items(),
    ),
    _of_totals("batches", COUNTER, "micro-batch", "committed micro-batches by query", lambda one: one.batches),
    _of_totals("query_records", COUNTER, "record", "committed records by query", lambda one: one.records),
    _of_queries("query_active", GAUGE, "query", "1 while a query that has used a sink runs, and 0 when it has ended", _active),
    _of_queries(
        "failed_writes", COUNTER, "write", "micro-batches and batch jobs that failed, by query", lambda shot: shot.failed.items()
    ),
    _of_totals(
        "last_batch_timestamp", GAUGE, "seconds", "when a query last committed, in seconds since 1970", lambda one: one.last_s
    ),
    _of_totals("last_batch_duration", GAUGE, "seconds", "duration of a query's last micro-batch", lambda one: one.seconds),
    _of_totals("last_batch_records", GAUGE, "record", "records of a query's last micro-batch", lambda one: one.last_records),
    Family(
        "last_batch_ack_latency",
        GAUGE,
        "seconds",
        "time within which this part of the last micro-batch's record batches was acknowledged, rounded up to a power of 2",
        (*_QUERY, "quantile"),
        _last_latencies,
    ),
    _of_totals("last_batch_number", GAUGE, "micro-batch", "number of a query's last micro-batch", lambda one: one.last_batch),
    _of_totals(
        "last_batch_uncompressed",
        GAUGE,
        "bytes",
        "bytes of a query's last micro-batch before compression",
        lambda one: one.last_bytes,
    ),
    _of_totals(
        "last_batch_commit",
        GAUGE,
        "seconds",
        "time of the commit of a query's last micro-batch, under exactly-once",
        lambda one: one.last_commit_ms / 1000,
    ),
    _of_totals(
        "query_retries", COUNTER, "record batch", "record batches that were sent again, by query", lambda one: one.retries
    ),
)

LATENCY_TEXT: Final = "from the first send of a record batch to its acknowledgement"
