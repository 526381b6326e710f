"""A clock that a test moves, for all of producer/."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest.mock import patch

from spark_kafka_sink.producer.accumulator import append_plan

PACKAGE = "spark_kafka_sink.producer."


class VirtualClock:
    """Monotonic ms that pass only when told, for who asks `monotonic_ms`; also the timestamps of records without one.

    Waits for locks, memory and metadata go by real time: a history that repeats must not wait.
    """

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms

    @contextmanager
    def installed(self) -> Iterator[None]:
        with ExitStack() as patches:
            for name, module in list(sys.modules.items()):
                if name.startswith(PACKAGE) and hasattr(module, "monotonic_ms"):
                    patches.enter_context(patch.object(module, "monotonic_ms", self))
            wall = SimpleNamespace(time_ns=lambda: self.ms * 1_000_000)
            patches.enter_context(patch.object(append_plan, "time", wall))
            yield
