"""How long requests took, for each API and station; a snapshot of it for who asks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_kafka_sink.broker.network.request_times import Station

SAMPLE_SIZE = 1_024
"""The newest times, of which the percentiles are; Kafka's histograms keep a sample of 1,028."""


@dataclass(frozen=True, slots=True)
class StationTimes:
    """`mean_ms` and `max_ms` are of all requests, the percentiles of the newest."""

    mean_ms: float
    max_ms: float
    median_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class ApiMetrics:
    """Sizes are bytes without the frame's own four. `errors`: answers whose own error code was not NONE, by that code."""

    requests: int
    request_bytes: int
    response_bytes: int
    errors: Mapping[int, int]
    times: Mapping[Station, StationTimes]


class _Times:
    """One station's times for one API."""

    def __init__(self) -> None:
        self._count = 0
        self._total = 0.0
        self._max = 0.0
        self._newest: deque[float] = deque(maxlen=SAMPLE_SIZE)

    def record(self, ms: float) -> None:
        self._count += 1
        self._total += ms
        self._max = max(self._max, ms)
        self._newest.append(ms)

    def snapshot(self) -> StationTimes:
        ordered = sorted(self._newest)
        last = len(ordered) - 1
        return StationTimes(self._total / self._count, self._max, ordered[last // 2], ordered[round(last * 0.99)])


@dataclass(slots=True)
class _Api:
    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    errors: dict[int, int] = field(default_factory=dict)
    times: dict[Station, _Times] = field(default_factory=lambda: {station: _Times() for station in Station})

    def snapshot(self) -> ApiMetrics:
        times = {station: times.snapshot() for station, times in self.times.items()}
        return ApiMetrics(self.requests, self.request_bytes, self.response_bytes, dict(self.errors), times)


class RequestMetrics:
    """Recorded by the Processors, read by anyone; the lock guards everything in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._apis: dict[str, _Api] = {}

    def record(
        self, api: str, spent_ms: Mapping[Station, float], *, request_bytes: int, response_bytes: int, error_code: int
    ) -> None:
        """A request whose answer is out, or that was closed or dropped."""
        with self._lock:
            known = self._apis.setdefault(api, _Api())
            known.requests += 1
            known.request_bytes += request_bytes
            known.response_bytes += response_bytes
            if error_code:
                known.errors[error_code] = known.errors.get(error_code, 0) + 1
            for station, ms in spent_ms.items():
                known.times[station].record(ms)

    def snapshot(self) -> dict[str, ApiMetrics]:
        """By API name; only those that were requested."""
        with self._lock:
            return {api: known.snapshot() for api, known in self._apis.items()}
