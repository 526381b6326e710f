"""A fault as its maker holds it: how often it was hit, and its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self


def _nothing() -> None:
    pass


class Fault:
    """What a method of `FaultInjection` gives back, and a context manager whose end removes the fault.

    All methods may be called from any thread; `_changed` guards the counts.
    """

    def __init__(
        self, what: str, changed: threading.Condition, *, times: int | None = None, on_remove: Callable[[Fault], None]
    ) -> None:
        """`times`: None is without end. on_remove: called once, without a lock."""
        self._what = what
        self._changed = changed
        self._times = times
        self._on_remove = on_remove
        self._hits = 0
        self._removed = False
        self.undo: Callable[[], None] = _nothing

    def __str__(self) -> str:
        return f"{self._what}, hit {self._hits} times"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()

    @property
    def hits(self) -> int:
        """How often something was hit by it, or seen where it only watches."""
        return self._hits

    @property
    def is_over(self) -> bool:
        """It will hit nothing more: it was removed, or was hit as often as it was to be."""
        return self._removed or self._hits == self._times

    def wait(self, times: int = 1, timeout_s: float = 10.0) -> None:
        """Until it was hit so many `times` in all. Raises TimeoutError if that takes longer than `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._hits < times:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError(f"{self}: {times} were waited for, for {timeout_s} s")
                self._changed.wait(left_s)

    def remove(self) -> None:
        """It is over, and what it holds goes on. May be called again."""
        if self._end():
            self._on_remove(self)
            self.undo()

    def forget(self) -> None:
        """It is over, and what it holds is lost: the broker stops."""
        if self._end():
            self._on_remove(self)

    def _end(self) -> bool:
        with self._changed:
            was, self._removed = self._removed, True
            return not was

    def hit(self) -> bool:
        """Count one, if it is not over."""
        with self._changed:
            if self.is_over:
                return False
            self._hits += 1
            self._changed.notify_all()
            return True
