"""When a request came to each of its stations, and how long it was at each (Kafka's RequestMetrics)."""

from __future__ import annotations

import time
from enum import Enum


class Station(Enum):
    """Where a request's time goes, by Kafka's metric names. LOCAL: in the handler; REMOTE: until it was answered after that."""

    REQUEST_QUEUE = "RequestQueueTimeMs"
    LOCAL = "LocalTimeMs"
    REMOTE = "RemoteTimeMs"
    THROTTLE = "ThrottleTimeMs"
    RESPONSE_QUEUE = "ResponseQueueTimeMs"
    RESPONSE_SEND = "ResponseSendTimeMs"
    TOTAL = "TotalTimeMs"


class RequestTimes:
    """Monotonic ns, 0 for what was not reached. Each is written once, by the thread that has the request then."""

    __slots__ = ("answered", "dequeued", "handled", "received", "response_dequeued", "throttle_ms")

    def __init__(self) -> None:
        self.received = time.monotonic_ns()
        self.dequeued = 0
        self.handled = 0
        self.answered = 0
        self.response_dequeued = 0
        self.throttle_ms = 0

    def spent_ms(self, now_ns: int) -> dict[Station, float]:
        """By station, once the answer is out. A request that was answered while its handler still ran has no remote time."""
        dequeued = self.dequeued or self.received
        answered = self.answered or now_ns
        handled = min(self.handled or answered, answered)
        response_dequeued = self.response_dequeued or now_ns
        return {
            Station.REQUEST_QUEUE: _ms(dequeued - self.received),
            Station.LOCAL: _ms(handled - dequeued),
            Station.REMOTE: _ms(answered - handled),
            Station.THROTTLE: float(self.throttle_ms),
            Station.RESPONSE_QUEUE: _ms(response_dequeued - answered),
            Station.RESPONSE_SEND: _ms(now_ns - response_dequeued),
            Station.TOTAL: _ms(now_ns - self.received),
        }


def _ms(ns: int) -> float:
    return max(0, ns) / 1_000_000
