"""Requests that wait for something to happen: Kafka's DelayedOperationPurgatory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence

from spark_kafka_sink.broker.timer import Timer, TimerTask


class DelayedOperation:
    """Something that is finished once: when `is_satisfied` says so, when its time is over, or when somebody ends it.

    Several threads may try at once; the lock lets one of them in at a time, and `_done` lets one finish. `is_satisfied` is asked
    under that lock; `on_complete` runs without it, in the thread that finished it. Neither waits.
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
        """Whether this call finished it. Who comes while another one tries only leaves word: the other looks again."""
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
    """Operations by what they wait for. The lock guards the lists; nothing runs under it."""

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
        # Again: what it waits for may have happened before it was watched, and nobody would tell it.
        if operation.try_complete():
            self._forget(operation)
            return
        operation.timeout = self._timer.after(timeout_ms, lambda: self._expire(operation))
        if operation.is_done:
            operation.timeout.cancel()
            self._forget(operation)

    def check_and_complete(self, key: Hashable) -> None:
        """Something happened to `key`."""
        with self._lock:
            waiting = list(self._watched.get(key, ()))
        for operation in waiting:
            if operation.try_complete() or operation.is_done:
                self._forget(operation)

    def complete_all(self) -> None:
        """The broker stops: nobody is to wait any longer."""
        with self._lock:
            waiting = [operation for operations in self._watched.values() for operation in operations]
            self._watched.clear()
        for operation in waiting:
            operation.force_complete()

    def watched(self) -> int:
        """Entries, one for each key of each operation."""
        with self._lock:
            return sum(map(len, self._watched.values()))

    def _expire(self, operation: DelayedOperation) -> None:
        operation.force_complete()
        self._forget(operation)

    def _forget(self, operation: DelayedOperation) -> None:
        """Under all its keys at once: who waits for a busy partition and a quiet one would stay in the quiet one's list."""
        with self._lock:
            for key in operation.keys:
                left = [other for other in self._watched.get(key, ()) if other is not operation]
                if left:
                    self._watched[key] = left
                else:
                    self._watched.pop(key, None)
