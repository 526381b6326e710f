"""Everything that a broker does later: tasks with a due time, and requests that wait for something (purgatory)."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

logger = logging.getLogger(__name__)

_FULL_AT = 1024  # tasks
_LONGEST_WAIT_S = 60.0


class TimerTask:
    """A task that runs once. Any thread may call `cancel()` at any time; it does not wait for a run in progress."""

    __slots__ = ("_run", "due_ms")

    def __init__(self, due_ms: float, run: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self._run: Callable[[], None] | None = run

    @property
    def is_cancelled(self) -> bool:
        return self._run is None

    def cancel(self) -> None:
        # The callback is released at once: a cancelled session of 30 s must not keep its request in memory that long.
        self._run = None

    def run(self) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        try:
            run()
        except Exception:
            logger.exception("A delayed task failed")


class Timer(Protocol):
    """Runs tasks later (Kafka's Timer). Its creator starts and stops it."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def now_ms(self) -> float:
        """Returns monotonic time in ms."""
        ...

    def after(self, delay_ms: float, run: Callable[[], None]) -> TimerTask:
        """Runs a task in `delay_ms` on the timer's thread, where it must not block. Any thread may call this."""
        ...


class SystemTimer:
    """A timer with one thread and a heap of tasks, like Kafka's SystemTimer with its wheel.

    The lock guards the heap and `_stopped`. Tasks run on the thread, one after another, without the lock.
    """

    def __init__(self, name: str = "broker-timer") -> None:
        self._changed = threading.Condition()
        self._tasks: list[tuple[float, int, TimerTask]] = []
        self._order = itertools.count()
        self._full_at = _FULL_AT
        self._stopped = False
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def now_ms(self) -> float:
        return time.monotonic() * 1000

    def after(self, delay_ms: float, run: Callable[[], None]) -> TimerTask:
        task = TimerTask(self.now_ms() + delay_ms, run)
        with self._changed:
            first = not self._tasks or task.due_ms < self._tasks[0][0]
            if len(self._tasks) >= self._full_at:
                self._drop_cancelled()
            heapq.heappush(self._tasks, (task.due_ms, next(self._order), task))
            if first:
                self._changed.notify()
        return task

    def waiting(self) -> int:
        """Returns the number of pending tasks, including cancelled ones."""
        return len(self._tasks)

    def _drop_cancelled(self) -> None:
        """Drops cancelled tasks. Sessions of minutes that end at once would otherwise fill the heap until they are due."""
        self._tasks = [entry for entry in self._tasks if not entry[2].is_cancelled]
        heapq.heapify(self._tasks)
        # Twice the remaining size, so that a heap without cancelled tasks is not scanned again and again.
        self._full_at = max(_FULL_AT, 2 * len(self._tasks))

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stops the thread and drops tasks that are not due yet."""
        with self._changed:
            self._stopped = True
            self._tasks.clear()
            self._changed.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _loop(self) -> None:
        while (task := self._next()) is not None:
            task.run()

    def _next(self) -> TimerTask | None:
        with self._changed:
            while not self._stopped:
                while self._tasks and self._tasks[0][2].is_cancelled:
                    heapq.heappop(self._tasks)
                wait_ms = self._tasks[0][0] - self.now_ms() if self._tasks else None
                if wait_ms is not None and wait_ms <= 0:
                    return heapq.heappop(self._tasks)[2]
                # The wait has a deadline even without tasks, so a wrong clock cannot make it last forever.
                self._changed.wait(_LONGEST_WAIT_S if wait_ms is None else min(_LONGEST_WAIT_S, wait_ms / 1000))
        return None


class DelayedOperation:
    """An operation that completes once: when `is_satisfied` returns True, when it times out, or when it is forced to.

    Several threads may try at once. The lock admits one at a time, and `_done` lets one complete it. `is_satisfied` is called
    under that lock; `on_complete` runs without it, in the thread that completed it. Neither may block.
    """

    def __init__(self, is_satisfied: Callable[[], bool], on_complete: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._is_satisfied = is_satisfied
        self._on_complete = on_complete
        self._done = False
        self._changed = False
        self.timeout: TimerTask | None = None
        self.keys: Sequence[Hashable] = ()

    @property
    def is_done(self) -> bool:
        return self._done

    def try_complete(self) -> bool:
        """Returns whether this call completed it. If another thread is trying, that thread is told to try again."""
        self._changed = True
        while self._changed and not self._done:
            if not self._lock.acquire(blocking=False):
                return False
            try:
                self._changed = False
                satisfied = not self.is_done and self._is_satisfied()
            finally:
                self._lock.release()
            if satisfied:
                return self.force_complete()
        return False

    def force_complete(self) -> bool:
        with self._lock:
            if self._done:
                return False
            self._done = True
        if self.timeout is not None:
            self.timeout.cancel()
        self._on_complete()
        return True


class DelayedOperationPurgatory:
    """Waiting operations by key. The lock guards the lists; no operation runs under it."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._lock = threading.Lock()
        self._watched: dict[Hashable, list[DelayedOperation]] = {}

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable], timeout_ms: float) -> None:
        if operation.try_complete():
            return
        operation.keys = keys
        with self._lock:
            for key in keys:
                self._watched.setdefault(key, []).append(operation)
        # A second try: the event may have happened before the operation was watched, and would go unnoticed.
        if operation.try_complete():
            self._forget(operation)
            return
        operation.timeout = self._timer.after(timeout_ms, lambda: self._expire(operation))
        if operation.is_done:
            operation.timeout.cancel()
            self._forget(operation)

    def check_and_complete(self, key: Hashable) -> None:
        """Tries the operations that wait for `key` after something happened to it."""
        with self._lock:
            waiting = list(self._watched.get(key, ()))
        for operation in waiting:
            if operation.try_complete() or operation.is_done:
                self._forget(operation)

    def complete_all(self) -> None:
        """Completes all operations, because the broker stops."""
        with self._lock:
            waiting = [operation for operations in self._watched.values() for operation in operations]
            self._watched.clear()
        for operation in waiting:
            operation.force_complete()

    def watched(self) -> int:
        """Returns the number of entries, one per key and operation."""
        with self._lock:
            return sum(map(len, self._watched.values()))

    def _expire(self, operation: DelayedOperation) -> None:
        operation.force_complete()
        self._forget(operation)

    def _forget(self, operation: DelayedOperation) -> None:
        """Removes the operation from all its keys. Otherwise it would stay in the lists of quiet partitions."""
        with self._lock:
            for key in operation.keys:
                left = [other for other in self._watched.get(key, ()) if other is not operation]
                if left:
                    self._watched[key] = left
                else:
                    self._watched.pop(key, None)
