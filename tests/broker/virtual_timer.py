"""A timer that a test moves."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from spark_kafka_sink.broker.timer import TimerTask


class VirtualTimer:
    """`advance(ms)` runs what becomes due, in order, in the test's own thread."""

    def __init__(self, now_ms: float = 1_000_000.0) -> None:
        self._now_ms = now_ms
        self._tasks: list[tuple[float, int, TimerTask]] = []
        self._order = itertools.count()

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._tasks.clear()

    def now_ms(self) -> float:
        return self._now_ms

    def wall_ms(self) -> int:
        return int(self._now_ms)

    def after(self, delay_ms: float, run: Callable[[], None]) -> TimerTask:
        task = TimerTask(self._now_ms + delay_ms, run)
        heapq.heappush(self._tasks, (task.due_ms, next(self._order), task))
        return task

    def advance(self, delay_ms: float) -> None:
        until = self._now_ms + delay_ms
        while self._tasks and self._tasks[0][0] <= until:
            due_ms, _, task = heapq.heappop(self._tasks)
            self._now_ms = max(self._now_ms, due_ms)
            task.run()
        self._now_ms = until

    def pending(self) -> int:
        """Tasks that are neither run nor cancelled."""
        return sum(not task.is_cancelled for _, _, task in self._tasks)
