"""What a piece of work may take: memory and processor time, whatever else the machine does."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from typing import Final

MEGABYTES: Final = 64
SECONDS: Final = 1.0
"""What bytes of a stranger may take: an answer of a broker, a batch of a log."""

_TRIES: Final = 10
"""Work of 40 ms took 60 on a busy machine, three times in a row. A program that needs too long does so each time."""


def costs_at_most(work: Callable[[], object], *, megabytes: float = MEGABYTES, seconds: float = SECONDS) -> None:
    """Fails if `work` allocates more through Python at any moment, or if its thread takes more processor time.

    It runs up to ten times, because busy neighbours slow a core down, and once more to trace its memory, which takes long.
    """
    tries = 1
    while (took := _time_of(work)) > seconds and tries < _TRIES:
        tries += 1
    assert took <= seconds, f"took {took:.2f} s of processor time, more than {seconds} s"
    peak = peak_of(work)
    assert peak <= megabytes * 1_000_000, f"took {peak / 1_000_000:.1f} MB, more than {megabytes} MB"


def _time_of(work: Callable[[], object]) -> float:
    gc.collect()
    gc.freeze()  # the other tests' objects, which a collection would go through again and again
    try:
        begun = time.thread_time()
        work()
        return time.thread_time() - begun
    finally:
        gc.unfreeze()


def peak_of(work: Callable[[], object]) -> int:
    """Returns the most bytes that were allocated through Python at any moment of `work`."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
