"""Whether a producer can be used, and if not, why: its process, its sender's thread, its end. Each of its parts is given this."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from spark_kafka_sink.errors import KafkaSinkError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms

# The deadline of who must not wait: the sender's thread, which everybody else waits for, and callbacks.
NO_WAIT = 0.0
FOREVER_MS = 2**62
MAX_WAIT_S = 1.0  # so that a sender's thread that died is noticed


class _Process:
    """`pid` is this process's, also in a forked child. os.getpid() takes 170 ns, a tenth of sending a record."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def forked(self) -> None:
        self.pid = os.getpid()


process = _Process()
os.register_at_fork(after_in_child=process.forked)


class _Callbacks(threading.local):
    """`with callbacks:` stands around each call of a user's callback, where nothing may wait: it may hold up the very thread
    that would answer. The depth is this thread's, for a callback may send and fail itself."""

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
    changed: threading.Condition,
    done: Callable[[], bool],
    deadline: float,
    late: Callable[[], KafkaSinkError],
    check_alive: Callable[[], None],
) -> None:
    """Returns once `done()`, which is asked with the lock of `changed`.

    Raises `late()` at the deadline on time.monotonic's clock, or what `check_alive` raises when the sender's thread has died.
    """
    with changed:
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise late()
            if not changed.wait(min(left, MAX_WAIT_S)) and not done():
                check_alive()


class Lifecycle:
    """The life of one producer: open, with a sender's thread; closed, or failed; or another process's.

    Threads: any. `_lock` guards `closed` and the count of open scopes; `failure` is set once, by the sender's thread. A producer
    belongs to the process that made it: a forked child may have copied a lock that a thread of the parent held, so it takes none.
    """

    def __init__(
        self, wakeup: Callable[[], None], *, idle_close_ms: int | None = None, outages: Callable[[], str] = lambda: ""
    ) -> None:
        """wakeup: ends the poll of the sender's thread. idle_close_ms: as in Producer. outages: why brokers are not connected."""
        self._wakeup = wakeup
        self.outages = outages
        self.pid = process.pid
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._scopes = 0
        self._idle_close_ms = idle_close_ms
        self._idle_since_ms = monotonic_ms()
        self.closed = False  # it takes no more records
        self.failure: KafkaSinkError | None = None  # why it cannot go on

    # The sender's thread

    def start(self, run: Callable[[], None], name: str) -> None:
        """Starts the sender's thread."""
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Waits for the end of the sender's thread; returns whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.is_running

    @property
    def is_running(self) -> bool:
        """Whether the sender's thread is there."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_sender_thread(self) -> bool:
        """Whether this is the sender's thread."""
        return self._thread is not None and threading.get_ident() == self._thread.ident

    def wake_sender(self) -> None:
        """Makes the sender's thread look at everything again."""
        # The sender's thread looks at everything before it waits again: to wake itself would be to spin.
        if self._thread is None or threading.get_ident() != self._thread.ident:
            self._wakeup()

    # What stands against a call

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child of the producer's process."""
        return process.pid != self.pid

    @property
    def is_usable(self) -> bool:
        """Whether it takes records."""
        return not (self.closed or self.failure is not None or self.is_forked) and self.is_running

    @property
    def must_not_wait(self) -> bool:
        """Whether this is the sender's thread or a callback anywhere: what it waits for may wait for the locks around it."""
        return in_callback() or self.is_sender_thread

    def check_process(self) -> None:
        """Raises UsageError in a forked child."""
        if process.pid != self.pid:
            raise UsageError(f"this producer belongs to process {self.pid}; a forked child must make its own")

    def check_alive(self) -> None:
        """Raises why nothing that was appended can be acked any more, if that is so."""
        self.check_process()
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # raised again and again: each time it would become longer
        if not self.is_running:
            raise UsageError("the producer is closed")

    def check_usable(self) -> None:
        """Raises what stands in the way of new records, if anything does."""
        self.check_alive()
        if self.closed:
            raise UsageError("the producer is closed")

    def check_may_wait(self) -> None:
        """Raises why waiting for an answer would be for ever, if it would."""
        if process.pid != self.pid:
            raise UsageError(
                f"this producer belongs to process {self.pid}; in a forked child nothing more is known of its records"
            )
        if self.must_not_wait:
            raise UsageError("a delivery callback must not wait for records: it may run in the thread that would answer")

    def raise_true_cause(self, error: UsageError) -> NoReturn:
        """Raises why the producer cannot go on, or else `error`: the pool and the metadata only know that it was closed."""
        if self.failure is not None:
            raise self.failure.with_traceback(None) from error
        raise error

    # Its end

    def fail(self, error: KafkaSinkError) -> None:
        """The producer cannot go on. The first error is the cause."""
        self.failure = self.failure or error

    def close(self) -> None:
        """Takes no more records."""
        with self._lock:
            self.closed = True

    def scope_opened(self, *, alone: bool = False) -> None:
        """Counts one more open scope. Raises UsageError when the producer is closed, or not `alone` with it."""
        self.check_usable()
        with self._lock:
            if self.closed:
                raise UsageError("the producer is closed")
            if alone and self._scopes:
                raise UsageError("the producer has an open transaction: leave its `with` before the next begins")
            self._scopes += 1

    def scope_closed(self) -> None:
        if self.is_forked:
            return
        with self._lock:
            self._scopes -= 1
            self._idle_since_ms = monotonic_ms()
        self.wake_sender()

    def close_when_idle(self) -> None:
        """Lets the sender's thread close the producer as soon as it has no open scope and nothing to send."""
        self._idle_close_ms = 0
        self.wake_sender()

    def ms_until_idle_close(self, now_ms: int, has_records: Callable[[], bool]) -> int:
        """Returns how long until the sender's thread may end for want of use; 0: it ends now, and takes no more scopes."""
        if self._idle_close_ms is None:
            return FOREVER_MS
        with self._lock:
            if self._scopes or has_records():
                return FOREVER_MS  # what ends them wakes the sender
            left = max(self._idle_since_ms + self._idle_close_ms - now_ms, 0)
            self.closed = self.closed or left == 0
            return left
