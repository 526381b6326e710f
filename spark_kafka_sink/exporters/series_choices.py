"""Keeps what the exporters of a driver have chosen to show.

A series that ends and begins again, or under another label, looks like new counts. So what was chosen first stays, also for a
second exporter of the same driver.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from itertools import chain
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, DeliveryReport
from spark_kafka_sink.reports.partition_reports import PartitionReports
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics

MOST_QUERIES: Final = 400
"""That are remembered, unless more are shown at one time."""

_PARTITIONS_PER_HISTOGRAM: Final = 10
# A topic's histogram has 26 lines.

OTHER_TOPICS: Final = "other"
"""Stands for all topics beyond the limit. A topic of this name is one of them then, because series must differ."""

Latencies = Mapping[str, list[int]]


class TopicLimit:
    """Chooses the topics with series of their own: those with the most records when there are too many for the first time.

    Before that, topics with the most partitions become a sum of their partitions.

    Each choice stays, because a sum is a counter. If a topic left the sum of the others, Prometheus would take the smaller sum
    for a restart and count all of it again, and so it would with partitions whose series come back. Threads: one at a time.
    """

    def __init__(self, most: int) -> None:
        """most: the most topics or topic-partitions, with the sum of the others."""
        self._most = most
        self._own: frozenset[str] | None = None
        self._summed: frozenset[str] = frozenset()

    def partitions(self, reports: PartitionReports) -> PartitionReports:
        """Returns the reports with sums of the topics with the most partitions, and one sum of all other topics."""
        reports = reports.summed(self._most, self._summed)
        self._summed = self._summed.union(reports.summed_topics())
        own = self._chosen(len(reports), reports)
        return reports if own is None else reports.with_sum_of_others(own, OTHER_TOPICS)

    def latencies(self, latencies: Latencies, reports: PartitionReports) -> Latencies:
        """Returns the histograms with one sum of all other topics. reports: has the records of the topics."""
        own = self._chosen(len(latencies), reports)
        if own is None:
            return latencies
        # With 10,000 topics this takes 5 ms, and sums of lists 12.
        others = np.fromiter(chain.from_iterable(counts for topic, counts in latencies.items() if topic not in own), np.int64)
        found = {topic: latencies[topic] for topic in sorted(own) if topic in latencies}
        if len(others):
            found[OTHER_TOPICS] = others.reshape(-1, LATENCY_BUCKETS).sum(axis=0).tolist()
        return found

    def _chosen(self, entries: int, reports: PartitionReports) -> frozenset[str] | None:
        """Returns the topics with series of their own; None if all have them."""
        if self._own is None and entries > self._most:
            found = [topic for topic in reports.largest_topics(self._most) if topic != OTHER_TOPICS]
            self._own = frozenset(found[: max(self._most - 1, 0)])
        return self._own


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


class SeriesChoices:
    """The choices of one driver's exporters. Threads: any, under the lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committed: dict[int, CommittedSeries] = {}
        self._names: dict[str, str] = {}  # of queries, the one that was shown last at the end

    def committed(self, most_partitions: int) -> CommittedSeries:
        """Returns the same object to all exporters with this limit."""
        with self._lock:
            return self._committed.setdefault(most_partitions, CommittedSeries(most_partitions))

    def names(self, now: Set[str], name: Callable[[str], str]) -> dict[str, str]:
        """Returns all queries that were exported, each with the name that it had first.

        A label of another name would begin new series, and end those before.

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


def choices_of(metrics: DeliveryMetrics) -> SeriesChoices:
    """Returns the choices of a driver's exporters."""
    with _lock:
        return _choices.setdefault(metrics, SeriesChoices())


_lock = threading.Lock()
_choices: WeakKeyDictionary[DeliveryMetrics, SeriesChoices] = WeakKeyDictionary()
