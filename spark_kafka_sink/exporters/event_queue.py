"""A bounded queue of events and the thread that sends them, so that a slow collector delays nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from spark_kafka_sink.counts import counted
from spark_kafka_sink.exporters.error_text import error_text

logger = logging.getLogger(__name__)

MOST_EVENTS: Final = 1000
"""That wait. Each takes a few KB."""

# The libraries that send log each of their own attempts, at level WARNING.
_NOISY: Final = ("urllib3.connectionpool", "openlineage.client.transport.http")

E = TypeVar("E")


class EventQueue(Generic[E]):
    """Sends events in order, one at a time.

    What cannot be sent is dropped, and logged once. If too many events wait, the oldest one that `may_drop` allows is dropped
    first, because later ones of the same run say more.

    Threads: a daemon thread sends. Any thread may put and stop. `_changed` guards the queue, and is not held while one is sent.
    """

    def __init__(self, name: str, send: Callable[[E], object], may_drop: Callable[[E], bool], most: int = MOST_EVENTS) -> None:
        """Starts the thread.

        Args:
            name: What the events are for, in log messages.
            send: Sends an event. It may wait and raise.
            may_drop: Whether an event may be dropped before others.
            most: How many may wait.
        """
        self._name = name
        self._send = send
        self._may_drop = may_drop
        self._most = most
        self._changed = threading.Condition()
        self._waiting: deque[E] = deque()
        self._is_sending = False
        self._is_stopped = False
        self._lost = 0
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="kafka-sink-events", daemon=True)
        self._thread.start()

    def put(self, event: E) -> None:
        """Adds an event. It never waits."""
        with self._changed:
            if self._is_stopped:
                return
            if len(self._waiting) >= self._most:
                index = next((index for index, one in enumerate(self._waiting) if self._may_drop(one)), 0)
                del self._waiting[index]
                self._lost += 1
            self._waiting.append(event)
            self._changed.notify_all()

    def stop(self, timeout_s: float) -> int:
        """Sends what waits, for at most `timeout_s`, and ends the thread. A second call does nothing.

        Returns:
            The number of events that were lost, now or before.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            if self._is_stopped:
                return self._lost
            while (self._waiting or self._is_sending) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            self._is_stopped = True
            self._lost += len(self._waiting) + self._is_sending
            self._waiting.clear()
            self._changed.notify_all()
            lost = self._lost
        self._thread.join(max(deadline - time.monotonic(), 0.0))
        if lost:
            logger.warning("%s: %s lost", self._name, counted(lost, "event was", "events were"))
        return lost

    def _run(self) -> None:
        quiet = _Quiet(threading.get_ident())
        loggers = [logging.getLogger(name) for name in _NOISY]
        for one in loggers:
            one.addFilter(quiet)
        try:
            while (event := self._next()) is not None:
                self._try(event)
        finally:
            for one in loggers:
                one.removeFilter(quiet)

    def _next(self) -> E | None:
        with self._changed:
            self._is_sending = False
            self._changed.notify_all()
            while not self._waiting:
                if self._is_stopped:
                    return None
                self._changed.wait()
            self._is_sending = True
            return self._waiting.popleft()

    def _try(self, event: E) -> None:
        try:
            self._send(event)
        except Exception as error:  # whatever the collector or its client does, the stream goes on
            with self._changed:
                self._lost += not self._is_stopped
                first, self._has_warned = not self._has_warned, True
            if first:
                logger.warning(
                    "%s: an event could not be sent, and further failures are not logged: %s: %s",
                    self._name,
                    type(error).__name__,
                    error_text(error),
                )


class _Quiet(logging.Filter):
    """Drops the log messages of one thread."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread
