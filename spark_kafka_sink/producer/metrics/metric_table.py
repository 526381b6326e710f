"""Table of all metrics: Java name, unit, description, and the statistic over recent time windows that each is read from.

The statistics have the arithmetic of Kafka's SampledStat, Avg, Max, Rate and CumulativeSum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, nan
from typing import NamedTuple


class Metric(NamedTuple):
    """A metric under its name in Java, or a gauge if `stat` is empty, whose value the producer computes on request. doc: for
    docs/metrics.md. stat: name of the statistic, which is that of Java's sensor. read: property of `Measured` that holds the
    value.
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
    Metric("compression-rate-avg", "0 to 1", "compressed over uncompressed size of the records", "compression-rate", "average"),
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

CONSTANT_METRICS: Mapping[str, float] = {
    **{
        f"{how}-{what}-{kind}": 0.0
        for what in ("authentication", "reauthentication")
        for how in ("successful", "failed")
        for kind in ("rate", "total")
    },
    "successful-authentication-no-reauth-total": 0.0,
    **{f"reauthentication-latency-{kind}": nan for kind in ("avg", "max")},
    "txn-prepare-time-ns-total": 0.0,
}
"""Java's metrics for what this producer does not count (logins) or does not do (prepareTransaction)."""


def stat_names(metrics: Iterable[Metric]) -> set[str]:
    return {metric.stat for metric in metrics}


# Statistics


class Measured(NamedTuple):
    """The current values of a statistic: in the windows, which cover `elapsed_ms`, and (`all_...`) since the start."""

    total: float
    number: int
    largest: float
    elapsed_ms: int
    all_total: float
    all_number: int

    @property
    def average(self) -> float:
        """Average of the values; NaN without values, as in Java. The same holds for `maximum`."""
        return self.total / self.number if self.number else nan

    @property
    def maximum(self) -> float:
        return self.largest if self.number else nan

    @property
    def rate(self) -> float:
        return self.total * 1000 / self.elapsed_ms

    @property
    def count_rate(self) -> float:
        return self.number * 1000 / self.elapsed_ms

    @property
    def ratio(self) -> float:
        """Fraction of the time that the values take, which are in nanoseconds."""
        return self.total / (self.elapsed_ms * 1_000_000)


class _Window:
    __slots__ = ("begun_ms", "count", "largest", "last_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.clear(now_ms)

    def clear(self, now_ms: int) -> None:
        self.begun_ms = self.last_ms = now_ms
        self.total: float = 0
        self.count = 0
        self.largest = -inf


class WindowedStat:
    """Statistic over the last `windows` windows of `window_ms`, including the current one, and since the start.

    Java keeps one list of windows for each of a sensor's average, maximum and rate. They are recorded and measured together and
    are always equal, so one list serves all. Not thread-safe. Times are in ms of any one clock.
    """

    __slots__ = ("_current", "_ends_ms", "_index", "_past_number", "_past_total", "_window_ms", "_windows", "_windows_kept")

    def __init__(self, windows: int, window_ms: int) -> None:
        # One more than configured, so that there is always a complete window beside the one that has just begun.
        self._windows_kept = windows + 1
        self._window_ms = max(window_ms, 1)
        self._windows: list[_Window] = []
        self._index = 0
        self._current = _Window(0)
        self._ends_ms: float = -inf  # when the current window ends
        # Of values that are in no window any more.
        self._past_total: float = 0
        self._past_number = 0

    def record(self, value: float, now_ms: int) -> None:
        self.record_all(value, 1, value, now_ms)

    def record_all(self, total: float, count: int, largest: float, now_ms: int) -> None:
        """Records `count` values at once, given their sum and the largest one. Costs as much as one value."""
        # Called over 30 times per request: a call of max() would take a third of it.
        if now_ms >= self._ends_ms:
            self._next_window(now_ms)
        window = self._current
        window.total += total
        window.count += count
        window.last_ms = now_ms
        window.largest = largest if largest > window.largest else window.largest

    def measure(self, now_ms: int) -> Measured:
        """Returns the current values, after resetting windows whose values are all too old."""
        if not self._windows:
            self._next_window(now_ms)
        oldest_ms = (self._windows_kept - 1) * self._window_ms
        for window in self._windows:
            if now_ms - window.last_ms >= oldest_ms:
                self._clear(window, now_ms)
        total = sum(window.total for window in self._windows)
        number = sum(window.count for window in self._windows)
        return Measured(
            total,
            number,
            max(window.largest for window in self._windows),
            self._elapsed_ms(now_ms),
            self._past_total + total,
            self._past_number + number,
        )

    def _elapsed_ms(self, now_ms: int) -> int:
        """Returns the time since the oldest window began, in ms. Missing windows count as full ones: otherwise the rate after one
        second would cover that second alone (Rate.windowSize).
        """
        # Not negative: another thread may have read a later time.
        elapsed_ms = max(now_ms - min(window.begun_ms for window in self._windows), 0)
        missing = self._windows_kept - 2 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)

    def _clear(self, window: _Window, now_ms: int) -> None:
        self._past_total += window.total
        self._past_number += window.count
        window.clear(now_ms)
        if window is self._current:
            self._ends_ms = now_ms + self._window_ms

    def _next_window(self, now_ms: int) -> None:
        if self._windows:
            self._index = (self._index + 1) % self._windows_kept
        if self._index < len(self._windows):
            window = self._windows[self._index]
            self._clear(window, now_ms)
        else:
            window = _Window(now_ms)
            self._windows.append(window)
        self._current = window
        self._ends_ms = now_ms + self._window_ms
