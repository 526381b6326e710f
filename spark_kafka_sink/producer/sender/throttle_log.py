"""Pauses that brokers impose on a client that exceeds a quota (KIP-219): their length, for reports and errors, and a log line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

WARN_AFTER_MS = 5_000
"""A shorter pause is what a quota is for, and only delays the records. A longer one deserves a line, long before
delivery.timeout.ms (120 s) ends a batch.
"""

WARN_EVERY_MS = 300_000
"""A client that stays above its quota is throttled all the time: twelve lines an hour."""

OVER_AFTER_MS = 60_000
"""A broker that has not throttled for this long starts again from zero."""


@dataclass(slots=True)
class _Throttling:
    """Pauses of one broker in a row. until_ms: when the last one ends. paused_ms: the sum of all, without overlaps."""

    since_ms: int
    until_ms: int
    paused_ms: int = 0
    warned_ms: int | None = None


class ThrottleLog:
    """The pauses of each broker. Used only by the sender thread; times are monotonic ms.

    The client sends nothing to a broker during a pause (Connections). Responses to requests in flight repeat a pause, so only
    what they add to it counts.
    """

    def __init__(self, client_id: str, name_of: Callable[[int], str]) -> None:
        """`name_of` returns a broker's name for a text."""
        self._quotas = f"producer_byte_rate or request_percentage of its user or of client.id {client_id!r}"
        self._name_of = name_of
        self._brokers: dict[int, _Throttling] = {}

    def answered(self, node: int, throttle_ms: int, now_ms: int) -> int:
        """Records a response's throttle time. Returns the ms that it adds to the broker's pause. Logs a warning if it is due."""
        broker = self._brokers.get(node)
        if broker is None or now_ms - broker.until_ms > OVER_AFTER_MS:
            broker = self._brokers[node] = _Throttling(now_ms, now_ms)
        added_ms = max(now_ms + throttle_ms - max(broker.until_ms, now_ms), 0)
        broker.until_ms = max(broker.until_ms, now_ms + throttle_ms)
        broker.paused_ms += added_ms
        is_due = broker.warned_ms is None or now_ms - broker.warned_ms >= WARN_EVERY_MS
        if is_due and broker.paused_ms >= WARN_AFTER_MS:
            broker.warned_ms = now_ms
            logger.warning("%s", self._text(node, broker, now_ms))
        return added_ms

    def reason(self, node: int, now_ms: int) -> str:
        """Returns why records for a broker are late if it has throttled in the last minute, else an empty text."""
        broker = self._brokers.get(node)
        if broker is None or now_ms - broker.until_ms > OVER_AFTER_MS:
            return ""
        return self._text(node, broker, now_ms)

    def _text(self, node: int, broker: _Throttling, now_ms: int) -> str:
        left_ms = max(broker.until_ms - now_ms, 0)
        return (
            f"{self._name_of(node)} throttles this client, because it exceeds a quota ({self._quotas}): in the last"
            f" {(now_ms - broker.since_ms) / 1000:,.0f} s it asked for pauses of {broker.paused_ms / 1000:,.1f} s, of which"
            f" {left_ms / 1000:,.1f} s are left; raise the quota, or set max.bytes.per.second to less than the quota"
        )
