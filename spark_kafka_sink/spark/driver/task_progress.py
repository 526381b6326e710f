"""The progress of running tasks, as the driver adds it up."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Final

from spark_kafka_sink.spark.feed import Counts
from spark_kafka_sink.spark.open_transactions import OpenTransaction

# A message takes 0.1 ms of the driver, which tells workers to wait longer if there are many: at most so many come in a second.
PER_SECOND: Final = 200
# A worker that was killed says nothing any more.
FORGET_S: Final = 30.0


class LiveTasks:
    """The counts of tasks that run, as far as they have told.

    Threads: the listener's thread takes messages and others read, under the lock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns monotonic seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        # By name, the one that told last at the end: the call, the counts, when they came, and the open transaction.
        self._tasks: dict[str, tuple[str, Counts, float, OpenTransaction | None]] = {}

    def take(self, message: bytes) -> int:
        """Takes a message, and returns after how many seconds the task shall send the next. Raises ValueError or TypeError."""
        name, call, is_running, opened, *numbers = json.loads(message)
        counts = Counts(*map(int, numbers))
        transaction = None if opened is None else OpenTransaction.of(opened)
        with self._lock:
            self._tasks.pop(str(name), None)
            if is_running:
                self._tasks[str(name)] = str(call), counts, self._clock(), transaction
            self._forget()
            return min(255, 1 + len(self._tasks) // PER_SECOND)

    def running(self, call: str | None = None) -> tuple[int, Counts]:
        """Returns the number of running tasks that have told, and the sum of their counts. call: only of this call of a sink."""
        with self._lock:
            self._forget()
            found = [counts for of, counts, *_ in self._tasks.values() if call is None or of == call]
        return len(found), sum(found, Counts())

    def calls(self) -> set[str]:
        """Returns the calls of running tasks that have told."""
        with self._lock:
            self._forget()
            return {of for of, *_ in self._tasks.values()}

    def transactions(self) -> list[OpenTransaction]:
        """Returns the open transactions of running tasks that have told."""
        with self._lock:
            self._forget()
            return [opened for *_, opened in self._tasks.values() if opened is not None]

    def _forget(self) -> None:
        """Forgets tasks that no longer tell. Requires the lock."""
        oldest = self._clock() - FORGET_S - 2 * len(self._tasks) / PER_SECOND
        while self._tasks:  # with each message, so it must not look at all of them
            name, (_, _, came, _) = next(iter(self._tasks.items()))
            if came >= oldest:
                return
            del self._tasks[name]
