"""Statistics over the last few windows of time: the arithmetic of Kafka's SampledStat, Avg, Max, Rate and CumulativeSum."""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple


class Measured(NamedTuple):
    """A statistic as it stands. total, number, largest: of the values in the windows, that reach `elapsed_ms` back.

    all_total, all_number: of every value since the beginning.
    """

    total: float
    number: int
    largest: float
    elapsed_ms: int
    all_total: float
    all_number: int

    @property
    def average(self) -> float:
        """NaN without values, as in Java; so is `maximum`."""
        return self.total / self.number if self.number else nan

    @property
    def maximum(self) -> float:
        return self.largest if self.number else nan

    @property
    def rate(self) -> float:
        """The values' sum a second."""
        return self.total * 1000 / self.elapsed_ms

    @property
    def count_rate(self) -> float:
        """Values a second."""
        return self.number * 1000 / self.elapsed_ms

    @property
    def ratio(self) -> float:
        """The part of the time that the values take, which are nanoseconds."""
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
    """Values over the last `windows` windows of `window_ms`, the one that is being filled included, and since the beginning.

    Java keeps one such list of windows for each of a sensor's average, maximum and rate; recorded and measured together they
    are alike, so here is one for all. Not thread-safe. Times are ms of any one clock.
    """

    __slots__ = ("_current", "_index", "_window_ms", "_windows", "_windows_kept", "all_number", "all_total")

    def __init__(self, windows: int, window_ms: int) -> None:
        # One more than are asked for, so that there is always a whole one beside the one that has just been begun.
        self._windows_kept = windows + 1
        self._window_ms = max(window_ms, 1)
        self._windows: list[_Window] = []
        self._index = 0
        self._current: _Window | None = None
        self.all_total: float = 0
        self.all_number = 0

    def record(self, value: float, now_ms: int) -> None:
        self.record_all(value, 1, value, now_ms)

    def record_all(self, total: float, count: int, largest: float, now_ms: int) -> None:
        """`count` values at once, of which the sum and the largest are given: as cheap as one."""
        window = self._current
        if window is None or now_ms - window.begun_ms >= self._window_ms:
            window = self._next_window(now_ms)
        window.total += total
        window.count += count
        window.last_ms = now_ms
        window.largest = max(window.largest, largest)
        self.all_total += total
        self.all_number += count

    def measure(self, now_ms: int) -> Measured:
        """Resets windows that have no value in the requested time."""
        if self._current is None:
            self._next_window(now_ms)
        oldest_ms = (self._windows_kept - 1) * self._window_ms
        for window in self._windows:
            if now_ms - window.last_ms >= oldest_ms:
                window.clear(now_ms)
        return Measured(
            sum(window.total for window in self._windows),
            sum(window.count for window in self._windows),
            max(window.largest for window in self._windows),
            self._elapsed_ms(now_ms),
            self.all_total,
            self.all_number,
        )

    def _elapsed_ms(self, now_ms: int) -> int:
        """The time since the oldest window began, and where there are fewer windows than are asked for as many more: else the
        first second's rate would be of that second alone (Rate.windowSize)."""
        elapsed_ms = max(
            now_ms - min(window.begun_ms for window in self._windows), 0
        )  # another thread may have read a later time
        missing = self._windows_kept - 2 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)

    def _next_window(self, now_ms: int) -> _Window:
        if self._current is not None:
            self._index = (self._index + 1) % self._windows_kept
        if self._index < len(self._windows):
            window = self._windows[self._index]
            window.clear(now_ms)
        else:
            window = _Window(now_ms)
            self._windows.append(window)
        self._current = window
        return window
