"""Bounds the number of series that topics make, so that a scrape stays small with any number of topics."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final

import numpy as np

from spark_kafka_sink.reports.latencies import LATENCY_BUCKETS
from spark_kafka_sink.reports.partition_reports import PartitionReports

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
