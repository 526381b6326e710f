"""How many random histories each of the producer's models goes through, and how long one may take."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from hypothesis import HealthCheck, settings

from tests.tiers import HISTORIES_PROFILE

# Not derandomized, as Hypothesis would by itself in CI: each run looks at other histories. `print_blob` lets one be repeated.
HISTORIES = settings(
    settings.get_profile(HISTORIES_PROFILE),
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

HISTORY_S: Final = 120
"""A history waits for nothing by real time and takes 20 ms on average. Hypothesis's attempts to make it smaller may each take as
long."""


@contextmanager
def one_history() -> Iterator[None]:
    """Fails a history that hangs, so that Hypothesis shows it. The test's own timeout ends the process and loses the history."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _hangs)
    signal.setitimer(signal.ITIMER_REAL, HISTORY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _hangs(number: int, frame: FrameType | None) -> None:
    raise AssertionError(f"this history takes longer than {HISTORY_S} s: it hangs where the traceback says")
