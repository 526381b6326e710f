"""The state of a producer: whether it can be used, and if not, why. All parts of the producer share it."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, Protocol
from weakref import WeakSet

from spark_kafka_sink.change_signal import Changes
from spark_kafka_sink.errors import KafkaSinkError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms

logger = logging.getLogger(__name__)

# Deadline of callers that must not wait: callbacks, and the sender thread, for which all others wait.
NO_WAIT = 0.0
FOREVER_MS = 2**62
MAX_WAIT_S = 1.0  # so that waiting threads notice a dead sender thread
# At interpreter exit: long enough for reachable brokers, short enough not to hang on unreachable ones.
EXIT_TIMEOUT_S = 5.0


class _Process:
    """The process id, also correct in a forked child. os.getpid() takes 170 ns, a tenth of sending a record."""

    pid = os.getpid()

    def forked(self) -> None:
        self.pid = os.getpid()


process = _Process()
os.register_at_fork(after_in_child=process.forked)


class _Callbacks(threading.local):
    """Encloses each user callback, where nothing may wait: it may run in the thread that would respond. The depth is per thread,
    because a callback may send a record that fails and so calls another callback.
    """

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


callbacks = _Callbacks()


def in_callback() -> bool:
    """Returns whether this thread is inside a delivery callback or an interceptor's on_acknowledgement."""
    return callbacks.depth > 0


def wait_until(
    changes: Changes,
    done: Callable[[], bool],
    deadline: float,
    late: Callable[[], KafkaSinkError],
    check_alive: Callable[[], None],
) -> None:
    """Returns once `done()`, which is called without a lock.

    Raises `late()` at the deadline (time.monotonic), or what `check_alive` raises if the sender thread has died.
    """
    while not done():
        left = deadline - time.monotonic()
        if left <= 0:
            raise late()
        if not changes.wait(done, min(left, MAX_WAIT_S)) and not done():
            check_alive()


class Lifecycle:
    """The lifecycle of one producer: open with a sender thread, closed, failed, or owned by another process.

    Any thread may call. `_lock` guards `closed` and the number of open scopes; `failure` is set once. In a forked child no lock
    is taken, because a thread of the parent may have held the copied lock.
    """

    def __init__(
        self, wakeup: Callable[[], None], *, idle_close_ms: int | None = None, outages: Callable[[], str] = lambda: ""
    ) -> None:
        """wakeup: ends the sender thread's poll. idle_close_ms: as in Producer. outages: says why brokers are not connected."""
        self._wakeup = wakeup
        self.outages = outages
        self.pid = process.pid
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._has_ended = False  # Thread.is_alive() is wrong after an interrupt of Thread.join() (CPython 3.11)
        self._end = Changes()
        self._scopes = 0
        self._idle_close_ms = idle_close_ms
        self._idle_since_ms = monotonic_ms()
        self.closed = False  # accepts no more records
        self.failure: KafkaSinkError | None = None  # why the producer cannot continue

    # Sender thread

    def start(self, run: Callable[[], None], name: str) -> None:
        def run_and_tell() -> None:
            try:
                run()
            finally:
                self._has_ended = True
                self._end.notify_all()

        self._thread = threading.Thread(target=run_and_tell, name=name, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Waits for the sender thread to end. Returns whether it has ended."""
        if self._thread is not None:
            deadline = time.monotonic() + timeout_s
            while not self._has_ended and (left := deadline - time.monotonic()) > 0:
                self._end.wait(lambda: self._has_ended, min(left, MAX_WAIT_S))
            if self._has_ended:
                self._thread.join()  # it runs nothing of ours any more
        return not self.is_running

    @property
    def is_running(self) -> bool:
        return self._thread is not None and not self._has_ended

    @property
    def is_sender_thread(self) -> bool:
        # Not after its end, because another thread may get its number.
        return self.is_running and self._thread is not None and threading.get_ident() == self._thread.ident

    def wake_sender(self) -> None:
        # The sender thread checks everything before it waits again; waking itself would make it spin.
        if self._thread is None or threading.get_ident() != self._thread.ident:
            self._wakeup()

    # Checks before a call

    @property
    def is_forked(self) -> bool:
        return process.pid != self.pid

    @property
    def is_usable(self) -> bool:
        return not (self.closed or self.failure is not None or self.is_forked) and self.is_running

    @property
    def must_not_wait(self) -> bool:
        """Whether this is the sender thread or inside a callback, where waiting could deadlock."""
        return in_callback() or self.is_sender_thread

    def check_process(self) -> None:
        if process.pid != self.pid:
            raise UsageError(f"this producer belongs to process {self.pid}; a forked child must create its own producer")

    def check_alive(self) -> None:
        """Raises an error if appended records can no longer be acknowledged."""
        self.check_process()
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # raised repeatedly; otherwise the traceback would grow each time
        if not self.is_running:
            raise UsageError("the producer is closed")

    def check_usable(self) -> None:
        self.check_alive()
        if self.closed:
            raise UsageError("the producer is closed")

    def check_may_wait(self) -> None:
        """Raises UsageError if waiting for a response would never end."""
        if process.pid != self.pid:
            raise UsageError(
                f"this producer belongs to process {self.pid}; a forked child cannot learn the outcome of its records"
            )
        if self.must_not_wait:
            raise UsageError("a delivery callback must not wait for records: it may run in the thread that handles responses")

    def raise_true_cause(self, error: UsageError) -> NoReturn:
        """Raises the producer's failure if there is one, else `error`: the pool and the metadata only know that it was closed."""
        if self.failure is not None:
            raise self.failure.with_traceback(None) from error
        raise error

    # End

    def fail(self, error: KafkaSinkError) -> None:
        """Records that the producer cannot continue. The first error counts."""
        self.failure = self.failure or error

    def broken_by(self, error: BaseException) -> None:
        """Fails the producer if an exception left a call half done.

        That is the one rule for interrupts, which may come between any two steps: instead of making each step whole again, the
        sender thread fails all that is not acknowledged, and ends. Our own errors are raised where nothing is half done.
        """
        if not isinstance(error, KafkaSinkError):
            self.fail(
                KafkaSinkError(
                    f"the producer has failed, because {type(error).__name__} interrupted one of its calls; records that were not"
                    " acknowledged may or may not have been sent: create a new producer"
                )
            )
            self.wake_sender()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Encloses steps that must not end half done: an interrupt between them fails the producer."""
        try:
            yield
        except BaseException as error:
            self.broken_by(error)
            raise

    def close(self) -> None:
        with self._lock:
            self.closed = True

    def scope_opened(self, *, alone: bool = False) -> None:
        """Counts an open scope. Raises UsageError if the producer is closed, or if `alone` is set and another scope is open."""
        self.check_usable()
        with self._lock:
            if self.closed:
                raise UsageError("the producer is closed")
            if alone and self._scopes:
                raise UsageError(
                    "the producer already has an open transaction: leave its `with` block before you begin the next one"
                )
            self._scopes += 1

    def scope_closed(self) -> None:
        if self.is_forked:
            return
        with self._lock:
            self._scopes -= 1
            self._idle_since_ms = monotonic_ms()
        self.wake_sender()

    def close_when_idle(self) -> None:
        """Lets the sender thread close the producer once it has no open scope and nothing to send."""
        self._idle_close_ms = 0
        self.wake_sender()

    def ms_until_idle_close(self, now_ms: int, has_records: Callable[[], bool]) -> int:
        """Returns the time until an idle producer closes, in ms. 0 means that it closes now and rejects new scopes."""
        if self._idle_close_ms is None:
            return FOREVER_MS
        with self._lock:
            if self._scopes or has_records():
                return FOREVER_MS  # the end of a scope or record wakes the sender thread
            left = max(self._idle_since_ms + self._idle_close_ms - now_ms, 0)
            self.closed = self.closed or left == 0
            return left


class _Closable(Protocol):
    def unfinished(self) -> int: ...
    def close(self, timeout: float | None = None) -> None: ...


_open_producers: WeakSet[_Closable] = WeakSet()


def close_at_exit(producer: _Closable) -> None:
    """Waits briefly for unacknowledged records at interpreter exit, and warns. Java's daemon thread loses them silently."""
    if not _open_producers:
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _open_producers.add(producer)


def _close_all() -> None:
    for producer in list(_open_producers):
        if not (unfinished := producer.unfinished()):
            continue
        logger.error(
            "the program exits with %d unacknowledged records in a producer that was not closed: use it as a context"
            " manager, or call close(); waiting up to %.0f s for them",
            unfinished,
            EXIT_TIMEOUT_S,
        )
        try:
            producer.close(EXIT_TIMEOUT_S)
        except Exception as error:
            logger.error("%s", error)
