"""Progress of tasks while they run: a thread of each Python worker tells the driver, which adds it up (`listener.py`).

Only records count that brokers have acknowledged. A lost message does no harm, because each one has the task's counts so far.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.spark.feed import Counts
from spark_kafka_sink.spark.open_transactions import OpenTransaction
from spark_kafka_sink.spark.reports_to_driver import ListenerAddress, UnreachableError, resolved, send

logger = logging.getLogger(__name__)

PROGRESS: Final = b"P"
"""The kind of these messages."""

# A task says nothing in its first second, so that short tasks cost nothing. One message takes 0.3 ms of a worker.
INTERVAL_S: Final = 1.0
# The driver is on another machine, and a worker must not hang on it. A firewall often drops packets without an answer.
TIMEOUT_S: Final = 1.0
# After a failure. The driver may be paused, or not reachable at all.
RETRY_S: Final = 30.0
# Of the thread.
IDLE_S: Final = 60.0


@dataclass(slots=True)
class _Task:
    address: ListenerAddress
    name: str
    call: str
    counts: Callable[[], Counts]
    transaction: Callable[[], OpenTransaction | None]
    due: float
    is_known: bool = False  # the driver may know of it
    has_ended: bool = False


class ProgressReporter:
    """Tells drivers about this process's running tasks.

    Threads: a daemon thread sends while tasks run, and a task's own thread once more at its end, so that the driver does not
    count the task twice. `_sending` keeps their order and guards `_blocked` and `_resolved`. It is held for at most TIMEOUT_S, so
    only the daemon thread resolves names, without it. That thread starts with a task and ends after an idle minute. `_changed`
    guards the tasks, and is not held while a message is sent. Processes: a forked child starts without tasks.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._tasks: dict[int, _Task] = {}
        self._next = 0
        self._is_running = False
        self._blocked: dict[ListenerAddress, float] = {}  # until when no running task tells there
        self._resolved: dict[ListenerAddress, tuple[ListenerAddress, ...]] = {}  # only the one that answered, if one did

    @contextmanager
    def watching(
        self,
        address: ListenerAddress | None,
        name: str,
        call: str,
        counts: Callable[[], Counts],
        transaction: Callable[[], OpenTransaction | None] = lambda: None,
    ) -> Iterator[None]:
        """Tells the driver about a task within this block, once it lasts a second. Nothing is raised if that fails.

        Args:
            address: The driver's listener; None if there is none.
            name: The task's name, unique among the running tasks of the application.
            call: The call of the sink that the task belongs to.
            counts: Returns the task's counts so far. It is called in another thread.
            transaction: Returns the transaction that the task has open, if there is one. It is called in another thread.
        """
        if address is None:
            yield
            return
        with self._changed:
            self._next += 1
            number = self._next
            self._tasks[number] = task = _Task(address, name, call, counts, transaction, time.monotonic() + INTERVAL_S)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="kafka-sink-progress", daemon=True).start()
            elif len(self._tasks) == 1:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                del self._tasks[number]
            task.has_ended = True
            if task.is_known:
                self._send(task, is_running=False)

    def _run(self) -> None:
        try:
            while (task := self._next_due()) is not None:
                self._resolve(task.address)
                pause = self._send(task, is_running=True)
                task.due = time.monotonic() + max(pause, INTERVAL_S)
        except BaseException:
            with self._changed:
                self._is_running = False
            raise

    def _next_due(self) -> _Task | None:
        """Waits for a task that is due. Returns None, and counts as ended, after an idle minute."""
        with self._changed:
            idle_since = time.monotonic()
            while True:
                now = time.monotonic()
                task = min(self._tasks.values(), key=lambda each: each.due, default=None)
                if task is None:
                    left = idle_since + IDLE_S - now
                    if left <= 0:
                        self._is_running = False
                        return None
                else:
                    idle_since, left = now, task.due - now
                    if left <= 0:
                        return task
                self._changed.wait(left)

    def _resolve(self, address: ListenerAddress) -> None:
        """Resolves the host's name, once unless the driver cannot be reached there any more."""
        with self._sending:
            if address in self._resolved or self._pause(address) > 0:
                return
        found: tuple[ListenerAddress, ...] = ()
        try:
            found = resolved(address)
        except Exception as error:  # whatever it is, rows matter more
            logger.info("the driver program cannot be told about running tasks at %s: %s", address.host, error)
        with self._sending:
            if found:
                self._resolved[address] = found
            else:
                self._blocked[address] = time.monotonic() + RETRY_S

    def _pause(self, address: ListenerAddress) -> float:
        """Returns for how many seconds running tasks do not tell there. Requires `_sending`."""
        return self._blocked.get(address, 0.0) - time.monotonic()

    def _send(self, task: _Task, *, is_running: bool) -> float:
        """Returns the number of seconds until the next message of the task."""
        if not self._sending.acquire(timeout=TIMEOUT_S):
            return INTERVAL_S
        try:
            was_known = task.is_known
            if is_running:
                if (pause := self._pause(task.address)) > 0:
                    return pause
                # In this order, and the other way round in the task's thread: either sees what the other has set.
                task.is_known = True
                if task.has_ended:
                    return INTERVAL_S
            elif not was_known:  # what the daemon thread was sending has not arrived
                return INTERVAL_S
            # A driver that was too slow to answer may know the task, so its end is reported in any case.
            try:
                counts = task.counts()
                values = [task.name, task.call, is_running, task.transaction(), counts.records, counts.bytes, counts.retries]
                return self._deliver(task.address, json.dumps(values).encode())
            except Exception as error:  # whatever it is, rows matter more
                if isinstance(error, UnreachableError):
                    task.is_known = was_known
                logger.info("the driver program cannot be told about running tasks at %s: %s", task.address.host, error)
                self._blocked[task.address] = time.monotonic() + RETRY_S
                return RETRY_S
        finally:
            self._sending.release()

    def _deliver(self, address: ListenerAddress, content: bytes) -> int:
        """Sends to the first address that can be reached, and returns the answer. Requires `_sending`. Raises OSError."""
        found = self._resolved.pop(address, ())
        for each in found:
            try:
                answer = send(each, PROGRESS, content, TIMEOUT_S / len(found))
            except UnreachableError:
                if each is found[-1]:
                    raise
            except OSError:
                self._resolved[address] = (each,)
                raise
            else:
                self._resolved[address] = (each,)
                return answer
        raise UnreachableError("the host has no address")


reporter: Final = ProgressReporter()
"""The instance of this process."""
