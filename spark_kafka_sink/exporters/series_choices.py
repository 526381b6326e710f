"""What the exporters of a driver have chosen to show, kept as long as its counts.

A series that ends and begins again looks like new counts. So what was chosen first stays, also for a
second exporter of the same driver.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from spark_kafka_sink.exporters.topic_limits import TopicLimit
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.metrics import DeliveryMetrics

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


class SeriesChoices:
    """The choices of one driver's exporters. Threads: any, under the lock."""

    def __init__(self) -> None:
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
