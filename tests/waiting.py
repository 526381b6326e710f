"""Waits for what another thread, process or broker brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

DEADLINE_S: Final = 60.0
"""Far more than anything takes on the slowest machine, and less than a whole test may take."""

HOUR_S: Final = 3600.0
HOUR_MS: Final = 3_600_000
"""For what a test must not wait for: whoever does is ended by the time-out of the test."""


def wait_until(reached: Callable[[], object], what: str = "it did not come about", deadline_s: float = DEADLINE_S) -> None:
    """Asks again and again until it is so. Raises TimeoutError with `what` at the deadline."""
    until(reached, bool, what, deadline_s)


def with_time_enough(attempt: Callable[[float], T], is_enough: Callable[[T], object], first_s: float = 0.5) -> T:
    """Attempts what ends at a deadline, in seconds, with longer ones until one was enough. Returns the last outcome.

    For a deadline that each run waits for. It must be short, and if the machine stands still it passes before anything is done.
    """
    seconds = first_s
    while not is_enough(outcome := attempt(seconds)) and seconds * 4 <= DEADLINE_S:
        seconds *= 4
    return outcome


def until(ask: Callable[[], T], reached: Callable[[T], object], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Asks again and again until the answer is as wanted, and returns it. Raises TimeoutError with the last at the deadline."""
    deadline = time.monotonic() + deadline_s
    while not reached(answer := ask()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {deadline_s:g} s; last: {answer}")
        time.sleep(0.001)
    return answer
