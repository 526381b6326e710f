"""Functions of the program that get a report of each committed micro-batch and batch job."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from typing import Final

from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.driver.event_queue import EventQueue

logger = logging.getLogger(__name__)

BatchListener = Callable[[BatchReport], object]

WAIT_S: Final = 5.0
"""For the calls of what was committed, when a listener is removed and when the program ends."""


class BatchListeners:
    """Calls functions with the reports of commits, in order.

    Threads: a daemon thread calls, from the first listener until `stop`. A commit only queues its report, because Spark's next
    micro-batch waits for it. Any thread may put, and add and remove under the lock. Processes: a forked child calls nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[BatchListener, ...] = ()
        self._leaving: tuple[BatchListener, ...] = ()  # they get what was committed before
        self._warned: set[int] = set()
        self._queue: EventQueue[tuple[BatchReport, tuple[BatchListener, ...]]] | None = None

    def __contains__(self, listener: BatchListener) -> bool:
        return listener in self._listeners

    def add(self, listener: BatchListener) -> None:
        """Has `listener` called with each report from now on."""
        with self._lock:
            if self._queue is None:
                self._queue = EventQueue("batch listeners", self._call, lambda _: True)
                atexit.register(self.stop)
            self._listeners = (*self._listeners, listener)

    def remove(self, listener: BatchListener) -> None:
        """Ends the calls of a listener, after those for earlier commits. One that was not added is ignored."""
        with self._lock:
            found = list(self._listeners)
            if listener not in found:
                return
            found.remove(listener)
            self._listeners = tuple(found)
            self._leaving = (*self._leaving, listener)
            queue = self._queue
        if queue is not None:
            queue.wait(WAIT_S)
        with self._lock:
            left = list(self._leaving)
            left.remove(listener)
            self._leaving = tuple(left)

    def put(self, batch: BatchReport) -> None:
        """Has the listeners called with a report. It never waits."""
        queue, listeners = self._queue, self._listeners
        if queue is not None and listeners:
            queue.put((batch, listeners))

    def stop(self) -> None:
        """Waits for the calls of what was committed, for at most WAIT_S, and ends the thread. There are no calls afterwards."""
        # Without the lock, because it also runs when a forked child ends.
        queue, self._queue = self._queue, None
        atexit.unregister(self.stop)
        if queue is not None:
            queue.stop(WAIT_S)
        self._listeners = ()

    def _call(self, item: tuple[BatchReport, tuple[BatchListener, ...]]) -> None:
        batch, listeners = item
        for listener in listeners:
            if listener not in self._listeners and listener not in self._leaving:
                continue  # its removal has waited for long enough
            try:
                listener(batch)
            except BaseException as error:  # SystemExit, too, would end the thread without a word
                if id(listener) not in self._warned:
                    self._warned.add(id(listener))
                    logger.warning(
                        "a batch listener raised %s: %s; further errors of it are not logged", type(error).__name__, error
                    )
