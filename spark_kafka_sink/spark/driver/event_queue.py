"""A bounded queue of events and the thread that sends them, so that a slow collector or function delays nothing.

Exporters send through it, and so do the functions of the program that get a report of each committed batch.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from spark_kafka_sink.counts import counted
from spark_kafka_sink.options.secret import HIDDEN
from spark_kafka_sink.peer_text import SHORT_SECRET
from spark_kafka_sink.reports.report_facts import printable
from spark_kafka_sink.spark.batch_report import BatchReport

logger = logging.getLogger(__name__)

MOST_EVENTS: Final = 1000
"""That wait. Each takes a few KB."""

NOISY: Final = ("urllib3.connectionpool", "openlineage.client.transport.http")
"""Loggers of libraries that send: they log each of their own attempts, at level WARNING."""

E = TypeVar("E")


class EventQueue(Generic[E]):
    """Sends events in order, one at a time.

    What cannot be sent is dropped, and logged once. If too many events wait, the oldest one that `may_drop` allows is dropped
    first, because later ones of the same run say more. The first such event is logged, too.

    Threads: a daemon thread sends. Any thread may put, wait and stop. `_changed` guards the queue, and is not held while one is
    sent. Processes: in a forked child the queue is stopped, because its thread is not there.
    """

    def __init__(
        self,
        name: str,
        send: Callable[[E], object],
        may_drop: Callable[[E], bool],
        most: int = MOST_EVENTS,
        *,
        quiet: Sequence[str] = (),
    ) -> None:
        """Starts the thread.

        Args:
            name: What the events are for, in log messages.
            send: Sends an event. It may wait and raise.
            may_drop: Whether an event may be dropped before others.
            most: How many may wait.
            quiet: Loggers whose messages are dropped if they come from this thread.
        """
        self._name = name
        self._send = send
        self._may_drop = may_drop
        self._most = most
        self._quiet = quiet
        self._has_warned = False
        self._has_warned_of_full = False
        self._reset(is_stopped=False)
        _queues.add(self)
        self._thread = threading.Thread(target=self._run, name="kafka-sink-events", daemon=True)
        self._thread.start()

    def _reset(self, *, is_stopped: bool) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[E] = deque()
        self._is_sending = False
        self._is_stopped = is_stopped
        self._lost = 0

    def put(self, event: E) -> None:
        """Adds an event. It never waits."""
        is_first_loss = False
        with self._changed:
            if self._is_stopped:
                return
            if len(self._waiting) >= self._most:
                index = next((index for index, one in enumerate(self._waiting) if self._may_drop(one)), 0)
                del self._waiting[index]
                self._lost += 1
                is_first_loss, self._has_warned_of_full = not self._has_warned_of_full, True
            self._waiting.append(event)
            self._changed.notify_all()
        if is_first_loss:
            logger.warning(
                "%s: %s are waiting, because they come faster than they are taken; from now on the oldest are dropped",
                self._name,
                counted(self._most, "event"),
            )

    def wait(self, timeout_s: float) -> bool:
        """Waits until nothing is left to send, for at most `timeout_s`; not at all in the queue's own thread.

        Returns:
            Whether nothing is left.
        """
        if threading.current_thread() is self._thread:
            return False
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._is_sending, timeout_s)

    def stop(self, timeout_s: float) -> int:
        """Sends what waits, for at most `timeout_s`, and ends the thread. A second call does nothing.

        Returns:
            The number of events that were lost, now or before.
        """
        deadline = time.monotonic() + timeout_s
        is_own_thread = threading.current_thread() is self._thread
        with self._changed:
            if self._is_stopped:
                return self._lost
        self.wait(timeout_s)
        with self._changed:
            self._is_stopped = True
            self._lost += len(self._waiting) + (self._is_sending and not is_own_thread)
            self._waiting.clear()
            self._changed.notify_all()
            lost = self._lost
        if not is_own_thread:
            self._thread.join(max(deadline - time.monotonic(), 0.0))
        if lost:
            logger.warning("%s: %s lost", self._name, counted(lost, "event was", "events were"))
        return lost

    def _run(self) -> None:
        quiet = _Quiet(threading.get_ident())
        loggers = [logging.getLogger(name) for name in self._quiet]
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
        except BaseException as error:  # SystemExit, too, would end the thread without a word, and nothing would be sent any more
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


_queues: Final[weakref.WeakSet[EventQueue[Any]]] = weakref.WeakSet()


def _forked() -> None:
    for queue in list(_queues):
        queue._reset(is_stopped=True)  # with a new lock: another thread may have held the old one at that moment


os.register_at_fork(after_in_child=_forked)


class _Quiet(logging.Filter):
    """Drops the log messages of one thread."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread


# The text of another program's error for the log

_MOST: Final = 300
_READ: Final = 10 * _MOST  # the text may be of any length
_QUERY: Final = re.compile(r"\?\S+")


def error_text(error: BaseException) -> str:
    """Returns the text without logins and query strings of URLs, and with escapes for what could move a terminal's cursor."""
    text = str(error)
    words = text[:_READ].split()
    if len(text) > _READ and words:
        words[-1] = words[-1].partition("//")[0]  # a login that is cut has no end
    # A parser that stops inside a password quotes only its beginning.
    pieces = set[str]()
    for place, word in enumerate(words):
        # A password may have a slash, a question mark or an at sign itself, so a login reaches to the last one of the word.
        before, slashes, rest = word.partition("//")
        login, at, after = rest.rpartition("@")
        if slashes and at:
            pieces.update(re.split(r"[/:?#@]+", login))
        words[place] = _QUERY.sub("?...", f"{before}//{after}" if slashes and at else word)
    text = " ".join(words)
    for piece in sorted(pieces - {""}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(piece)}(?!\w)" if len(piece) <= SHORT_SECRET else re.escape(piece), HIDDEN, text)
    return printable(text, _MOST)


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
