"""Keeps what the exporters of a driver have chosen to show.

A series that ends and begins again, or under another label, looks like new counts. So what was chosen first stays, also for a
second exporter of the same driver.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Set
from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from spark_kafka_sink.exporters.topic_limits import TopicLimit
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics

MOST_QUERIES: Final = 400
"""That are remembered, unless more are shown at one time."""

_PARTITIONS_PER_HISTOGRAM: Final = 10
# A topic's histogram has 26 lines.


class CommittedSeries:
    """Bounds the series of the total of all commits. Its sums are kept until more is committed. Threads: any, under the lock."""

    def __init__(self, most_partitions: int) -> None:
        """most_partitions: as of `SnapshotReader`."""
        self._lock = threading.Lock()
        self._topics = TopicLimit(most_partitions)
        self._histograms = TopicLimit(most_partitions // _PARTITIONS_PER_HISTOGRAM)
        self._summed: tuple[DeliveryReport | None, DeliveryReport] = None, DeliveryReport()

    def of(self, committed: DeliveryReport | None) -> DeliveryReport:
        """Returns the total as it is exported. committed: each commit makes another object; None before the first one."""
        with self._lock:
            report, summed = self._summed
            if committed is not None and committed is not report:
                summed = replace(
                    committed,
                    partitions=self._topics.partitions(committed.partitions),
                    ack_latency=dict(self._histograms.latencies(committed.ack_latency, committed.partitions)),
                )
                self._summed = committed, summed
            return summed


class ShownQueries:
    """The queries that were exported, each with the name that it had first. Threads: any, under the lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}  # the one that was shown last at the end

    def show(self, now: Set[str], name: Callable[[str], str]) -> dict[str, str]:
        """Returns all queries with the names to show. A label of another name would begin new series, and end those before.

        Args:
            now: The queries to export. Of more than MOST_QUERIES, others are forgotten.
            name: Returns the name that a query has now. It may ask Spark, so it is called without the lock.
        """
        names = {query: name(query) for query in now}
        with self._lock:
            for query in now:
                self._names[query] = self._names.pop(query, names[query])
            while len(self._names) > max(MOST_QUERIES, len(now)):
                del self._names[next(iter(self._names))]
            return dict(self._names)


class SeriesChoices:
    """The choices of one driver's exporters.

    Attributes:
        queries: The queries that were exported.

    Threads: any, under the lock.
    """

    def __init__(self) -> None:
        self.queries = ShownQueries()
        self._lock = threading.Lock()
        self._committed: dict[int, CommittedSeries] = {}

    def committed(self, most_partitions: int) -> CommittedSeries:
        """Returns the same object to all exporters with this limit."""
        with self._lock:
            return self._committed.setdefault(most_partitions, CommittedSeries(most_partitions))


def choices_of(metrics: DeliveryMetrics) -> SeriesChoices:
    """Returns the choices of a driver's exporters."""
    with _lock:
        return _choices.setdefault(metrics, SeriesChoices())


_lock = threading.Lock()
_choices: WeakKeyDictionary[DeliveryMetrics, SeriesChoices] = WeakKeyDictionary()
