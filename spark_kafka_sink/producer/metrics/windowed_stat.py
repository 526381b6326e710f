"""Statistics over recent time windows, with the arithmetic of Kafka's SampledStat, Avg, Max, Rate and CumulativeSum."""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple


class Measured(NamedTuple):
    """The current values of a statistic.

    Attributes:
        total: sum of the values in the windows.
        number: number of values in the windows.
        largest: largest value in the windows.
        elapsed_ms: time that the windows cover, in ms.
        all_total: sum of all values since the start.
        all_number: number of all values since the start.
    """

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
        """Sum of the values per second."""
        return self.total * 1000 / self.elapsed_ms

    @property
    def count_rate(self) -> float:
        """Number of values per second."""
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
        """Returns the time since the oldest window began, in ms.

        Windows that do not exist yet count as full ones. Otherwise the rate after one second would cover that second alone
        (Rate.windowSize).
        """
        elapsed_ms = max(
            now_ms - min(window.begun_ms for window in self._windows), 0
        )  # another thread may have read a later time
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
