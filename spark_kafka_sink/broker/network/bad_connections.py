"""What becomes of many connections that send no requests of Kafka's: few lines of log, and pauses between new connections."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from spark_kafka_sink.network.selector import monotonic_ms

logger = logging.getLogger(__name__)

LOGGED_ONE_BY_ONE: Final = 5
"""Bad connections of an interval that have a line of log each; the others are counted in one line at its end."""

LOG_INTERVAL_MS: Final = 10_000

MANY_PER_SECOND: Final = 100
"""Bad connections in a second from which on new connections are accepted slowly."""

PAUSE_S: Final = 0.001
"""The wait between two connections then, so fewer than 1,000 come in a second. A bad connection costs some 200 us of an
interpreter that other clients need as well: at 5,000 a second there is nothing left. A longer wait would keep new clients
waiting too long, behind the bad ones in the listener's queue."""


class BadConnections:
    """Told by Processors, asked by Acceptors. The lock guards all that is below; logging is done without it."""

    def __init__(self, clock_ms: Callable[[], int] = monotonic_ms) -> None:
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._total = 0
        self._interval_end_ms = 0
        self._in_interval = 0
        self._last = ""
        self._second = 0
        self._in_second = self._in_last_second = 0

    @property
    def total(self) -> int:
        """How many there have been."""
        return self._total

    def report(self, text: str) -> None:
        """A connection is closed for what it sent; `text` says which one and why."""
        with self._lock:
            now_ms = self._clock_ms()
            summary = self._ended_interval(now_ms)
            if not self._in_interval:
                self._interval_end_ms = now_ms + LOG_INTERVAL_MS
            self._total += 1
            self._in_interval += 1
            self._last = text
            self._see_second(now_ms)
            self._in_second += 1
            is_logged = self._in_interval <= LOGGED_ONE_BY_ONE
        _log(summary)
        if is_logged:
            logger.warning("%s", text)

    def summarize(self, *, at_once: bool = False) -> None:
        """To be called now and then, and `at_once` at the end: logs what was only counted, when its interval is over."""
        if self._in_interval:
            with self._lock:
                summary = self._ended_interval(self._interval_end_ms if at_once else self._clock_ms())
            _log(summary)

    def pause_s(self) -> float:
        """How long to wait before the next connection is accepted."""
        with self._lock:
            self._see_second(self._clock_ms())
            return PAUSE_S if max(self._in_second, self._in_last_second) >= MANY_PER_SECOND else 0.0

    def _see_second(self, now_ms: int) -> None:
        second = now_ms // 1000
        if second != self._second:
            self._in_last_second = self._in_second if second == self._second + 1 else 0
            self._second, self._in_second = second, 0

    def _ended_interval(self, now_ms: int) -> str | None:
        """What is to be logged of an interval that is over by now."""
        if not self._in_interval or now_ms < self._interval_end_ms:
            return None
        others, self._in_interval = self._in_interval - LOGGED_ONE_BY_ONE, 0
        if others <= 0:
            return None
        seconds = LOG_INTERVAL_MS // 1000
        return f"{others:,} more connections were closed for what they sent, within {seconds} s; the last: {self._last}"


def _log(summary: str | None) -> None:
    if summary is not None:
        logger.warning("%s", summary)
