"""Limits on the number of connections, and on the accept rate while many connections are bad."""

from __future__ import annotations

import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from spark_kafka_sink.network.selector import monotonic_ms

logger = logging.getLogger(__name__)

UNLIMITED = 2**31 - 1

_LOOK_AGAIN_S = 0.3


LOGGED_ONE_BY_ONE: Final = 5
"""The number of bad connections per interval with their own log line. The rest is counted in one line at its end."""

LOG_INTERVAL_MS: Final = 10_000

MANY_PER_SECOND: Final = 100
"""The number of bad connections per second above which new connections are accepted slowly."""

PAUSE_S: Final = 0.001
"""The wait between two connections in that case, which allows fewer than 1,000 per second.

A bad connection costs some 200 us of an interpreter that other clients need too: at 5,000 per second nothing is left. A longer
wait would delay new clients behind the bad ones in the listener's queue.
"""


class TooManyConnectionsError(Exception):
    """The address has reached its limit of connections."""

    def __init__(self, address: str, limit: int) -> None:
        super().__init__(f"{address} already has the configured maximum of {limit} connections (max.connections.per.ip)")


class ConnectionQuotas:
    """Counts connections. Acceptors and Processors call it. The condition guards the counts and `_closed`.

    overrides: limits of single addresses or host names, instead of `max_connections_per_ip`. A connection over its address's
    limit is refused. One over the limit of all waits, together with the Acceptor, until another ends.
    """

    def __init__(
        self,
        *,
        max_connections: int = UNLIMITED,
        max_connections_per_ip: int = UNLIMITED,
        overrides: Mapping[str, int] | None = None,
    ) -> None:
        self._max_connections = max_connections
        self._max_per_ip = max_connections_per_ip
        self._overrides = {
            str(info[4][0]): limit for host, limit in (overrides or {}).items() for info in socket.getaddrinfo(host, None)
        }
        self._changed = threading.Condition()
        self._counts: Counter[str] = Counter()
        self._total = 0
        self._closed = False

    def inc(self, address: str) -> bool:
        """Counts a connection once there is room for it. Returns False if there was none before `close`.

        Raises:
            TooManyConnectionsError: the address has reached its limit; nothing is counted.
        """
        limit = self._overrides.get(address, self._max_per_ip)
        with self._changed:
            while self._total >= self._max_connections and not self._closed:
                self._changed.wait(_LOOK_AGAIN_S)
            if self._closed:
                return False
            if self._counts[address] >= limit:
                raise TooManyConnectionsError(address, limit)
            self._counts[address] += 1
            self._total += 1
            return True

    def dec(self, address: str) -> None:
        with self._changed:
            self._total -= 1
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]
            self._changed.notify_all()

    def count(self, address: str | None = None) -> int:
        """Returns the number of connections of an address, or of all."""
        with self._changed:
            return self._total if address is None else self._counts.get(address, 0)

    def close(self) -> None:
        """Ends all waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class BadConnections:
    """Counts and logs bad connections. Processors and Acceptors call it. The lock guards the fields below; logging needs none."""

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
        """The total number of bad connections."""
        return self._total

    def report(self, text: str) -> None:
        """Reports a connection that is closed because of what it sent. `text` names the connection and the reason."""
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
        """Logs the counted connections when their interval is over. Call it at intervals, and with `at_once` at the end."""
        if self._in_interval:
            with self._lock:
                summary = self._ended_interval(self._interval_end_ms if at_once else self._clock_ms())
            _log(summary)

    def pause_s(self) -> float:
        """Returns the time to wait before the next connection is accepted."""
        with self._lock:
            self._see_second(self._clock_ms())
            return PAUSE_S if max(self._in_second, self._in_last_second) >= MANY_PER_SECOND else 0.0

    def _see_second(self, now_ms: int) -> None:
        second = now_ms // 1000
        if second != self._second:
            self._in_last_second = self._in_second if second == self._second + 1 else 0
            self._second, self._in_second = second, 0

    def _ended_interval(self, now_ms: int) -> str | None:
        """Returns the line to log for an interval that has ended by now."""
        if not self._in_interval or now_ms < self._interval_end_ms:
            return None
        others, self._in_interval = self._in_interval - LOGGED_ONE_BY_ONE, 0
        if others <= 0:
            return None
        seconds = LOG_INTERVAL_MS // 1000
        return f"closed {others:,} more connections because of what they sent, within {seconds} s; the last: {self._last}"


def _log(summary: str | None) -> None:
    if summary is not None:
        logger.warning("%s", summary)
