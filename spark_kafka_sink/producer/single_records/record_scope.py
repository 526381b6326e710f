"""The share of a producer that records sent one by one have: their failures belong to their futures, not to a task."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import TIMEOUT_MAX
from typing import Protocol

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.accumulator.send_scope import ScopeOwner, SendScope

# So that a sender's thread that died is noticed.
MAX_WAIT_S = 1.0


class RecordScopeOwner(ScopeOwner, Protocol):
    """What it needs of its producer."""

    def check_may_wait(self) -> None: ...

    def check_process(self) -> None: ...


class RecordScope(SendScope):
    """One per producer and topic. Threads and locks as in SendScope; any thread may wait."""

    def __init__(self, owner: RecordScopeOwner, topic: str) -> None:
        super().__init__(owner, on_close=lambda _: None)
        self.topic = topic
        self._waited_for = owner

    def raise_error(self) -> None:
        """A failed batch is told to its records' futures, and harms nobody else."""

    def check_process(self) -> None:
        """UsageError in a forked child."""
        self._waited_for.check_process()

    def told(self) -> None:
        """The outcome of some record is known: whoever waits looks again."""
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, done: Callable[[], bool], timeout_s: float | None, late: Callable[[float], KafkaSinkError]) -> None:
        """Return once `done()`; raise `late(seconds)` after `timeout_s`, or what keeps the producer from ever getting there."""
        self._waited_for.check_may_wait()
        begun = time.monotonic()
        deadline = begun + (TIMEOUT_MAX if timeout_s is None else timeout_s)
        with self._changed:
            while not done():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise late(time.monotonic() - begun)
                if not self._changed.wait(min(left, MAX_WAIT_S)) and not done():
                    self._waited_for.check_alive()
