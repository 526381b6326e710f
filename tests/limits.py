"""What a piece of work may take: memory and processor time, whatever else the machine does."""

from __future__ import annotations

import gc
import math
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Final

MEGABYTES: Final = 64
SECONDS: Final = 1.0
"""What bytes of a stranger may take: an answer of a broker, a batch of a log."""

UNMEASURED: Final = math.inf
"""For megabytes: memory is measured with less work, because that makes each allocation ten times as slow."""

_REFERENCE_S: Final = 0.020
"""What `_reference` takes on a core of 2026 that nothing else uses. Beside busy neighbours it took 21 to 33 ms."""

_TRIES: Final = 10
"""Neighbours are not busy all the time. A program that needs too long does so each time."""


def costs_at_most(work: Callable[[], object], *, megabytes: float = MEGABYTES, seconds: float = SECONDS) -> None:
    """Fails if `work` allocates more through Python at any moment, or if its thread takes more processor time.

    The time is that of a core that nothing else uses: it is compared with other work that is done right before.
    """
    tries = 1
    while (took := _comparable_time_of(work)) > seconds and tries < _TRIES:
        tries += 1
    assert took <= seconds, f"took {took:.3f} s of processor time, more than {seconds:.3f} s"
    if megabytes == UNMEASURED:
        return
    peak = peak_of(work)
    assert peak <= megabytes * 1_000_000, f"took {peak / 1_000_000:.1f} MB, more than {megabytes} MB"


def _comparable_time_of(work: Callable[[], object]) -> float:
    slowness = _time_of(_reference) / _REFERENCE_S
    return _time_of(work) / max(1.0, slowness)


def _reference() -> object:
    """Makes objects, as decoders do."""
    return [(number, str(number), [number]) for number in range(50_000)]


def _time_of(work: Callable[[], object]) -> float:
    gc.collect()
    # The other tests' objects, which a collection would go through again and again. They stay frozen, as what was collected is.
    gc.freeze()
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def calls_of(work: Callable[[], object]) -> int:
    """Returns how many functions `work` calls in this thread, Python's and C's, which is the same on each machine."""
    count = 0

    def seen(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def peak_of(work: Callable[[], object]) -> int:
    """Returns the most bytes that were allocated through Python at any moment of `work`."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
