"""The part of its time in which a thread had nothing to do, over the last while."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 30
"""Seconds over which the ratio is; Kafka's io-wait-ratio is over two samples of 30 s, its handlers' idle meter over a minute."""


class IdleMeter:
    """One thread records, any thread reads. Buckets of a second: [second, idle ns, all ns]."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._buckets: deque[list[int]] = deque(maxlen=WINDOW_S)

    def record(self, idle_ns: int, busy_ns: int) -> None:
        second = self._clock_ns() // 1_000_000_000
        if not self._buckets or self._buckets[-1][0] != second:
            self._buckets.append([second, 0, 0])
        bucket = self._buckets[-1]
        bucket[1] += idle_ns
        bucket[2] += idle_ns + busy_ns

    def ratio(self) -> float:
        """0 to 1. 1 while nothing was recorded: who does nothing is idle."""
        oldest = self._clock_ns() // 1_000_000_000 - WINDOW_S
        recent = [bucket for bucket in list(self._buckets) if bucket[0] > oldest]
        everything = sum(bucket[2] for bucket in recent)
        return sum(bucket[1] for bucket in recent) / everything if everything else 1.0
