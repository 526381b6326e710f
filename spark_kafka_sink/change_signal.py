"""A wait for what other threads change, which an interrupt may end at any instant."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue


class Changes:
    """Wakes threads that wait for a change.

    threading.Condition and Event take their lock in Python code: an exception that a signal handler raises there leaves it locked
    for good. Here a wait holds no lock, and all else is one call into C.
    """

    def __init__(self) -> None:
        self._waiting = deque[SimpleQueue[None]]()

    def notify_all(self) -> None:
        """Wakes all waiting threads. Call it after the change, under a lock that all who notify share."""
        for _ in range(len(self._waiting)):
            self._waiting.popleft().put(None)

    def wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Returns once `done()` or after the next change. Returns False after `timeout_s`."""
        wake = SimpleQueue[None]()
        self._waiting.append(wake)  # before the check, so that no change is missed; the next change removes it
        if done():
            return True
        try:
            wake.get(timeout=timeout_s)
        except Empty:
            return False
        return True
