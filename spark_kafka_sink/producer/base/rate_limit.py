"""The limits max.bytes.per.second and max.records.per.second: which records may be sent when, and the wait for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.base.lifecycle import MAX_WAIT_S

logger = logging.getLogger(__name__)

SLICE_S = 0.25
"""An append takes this much of a second's worth at once, so that the rate is smooth. Shorter slices cost more appends."""

SAVED_S = 0.75
"""What an idle producer saves up. With the slice that goes at once, no burst exceeds one second's worth."""

WARN_AFTER_S = 60.0


class TokenBucket:
    """Amounts that may pass at a rate per second, as the time at which all that has passed is paid for.

    Pure: times are seconds of any one clock. An amount waits for what passed before it and never for itself, as in Guava's
    RateLimiter. So an amount larger than a second's worth passes too, and those behind it wait for longer. It starts empty:
    otherwise many short-lived processes would each pass a second's worth at once.
    """

    def __init__(self, per_second: int, now: float) -> None:
        self._per_second = per_second
        self._paid = now

    def passes_at(self, now: float) -> float:
        """Returns when the next amount may pass: now, or when what passed before is paid for."""
        return max(self._paid, now)

    def take(self, amount: int, at: float) -> None:
        self._paid = max(self._paid, at - SAVED_S) + amount / self._per_second

    def give_back(self, amount: int) -> None:
        self._paid -= amount / self._per_second


class RateLimit:
    """Holds back the appends of all threads of a producer. Only the threads that append wait, and the lock is not held then.

    max_records, max_bytes: the largest amounts to ask for at once, except for a single larger record.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        on_wait: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """The config sets at least one limit. on_wait: receives the ns of each wait. clock: returns seconds."""
        by_records, by_bytes = config.max_records_per_second, config.max_bytes_per_second
        self.max_records = 2**31 if by_records is None else max(int(by_records * SLICE_S), 1)
        self.max_bytes = 2**62 if by_bytes is None else max(int(by_bytes * SLICE_S), 1)
        self._name = " and ".join(
            f"{name}={value}"
            for name, value in (("max.bytes.per.second", by_bytes), ("max.records.per.second", by_records))
            if value is not None
        )
        self._on_wait = on_wait
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._buckets = [None if limit is None else TokenBucket(limit, clock()) for limit in (by_records, by_bytes)]
        self._has_warned = False

    @classmethod
    def of(cls, config: ProducerConfig, on_wait: Callable[[int], None]) -> RateLimit | None:
        unlimited = config.max_records_per_second is None and config.max_bytes_per_second is None
        return None if unlimited else cls(config, on_wait=on_wait)

    def __str__(self) -> str:
        return self._name

    def take(self, records: int, size: int) -> float:
        """Takes records of `size` bytes without a wait, and returns when they may pass."""
        with self._lock:
            at = self._clock()
            for bucket in self._buckets:
                at = at if bucket is None else bucket.passes_at(at)
            for bucket, amount in zip(self._buckets, (records, size), strict=True):
                if bucket is not None:
                    bucket.take(amount, at)
            return at

    def wait(self, topic: str, records: int, size: int, check: Callable[[], None]) -> int:
        """Takes records of `size` bytes and returns when they may be sent, with the ms that it waited.

        `check` is called once a second. What it raises ends the wait, and so does an interrupt.
        """
        start = self.take(records, size)
        begun = self._clock()
        if start <= begun:
            return 0
        try:
            while (left := start - self._clock()) > 0:
                check()
                if not self._has_warned and self._clock() - begun >= WARN_AFTER_S:
                    self._warn(topic, self._clock() - begun, left)
                self._sleep(min(left, MAX_WAIT_S))
            check()
        except BaseException:
            self._give_back(records, size)
            raise
        finally:
            waited = max(self._clock() - begun, 0)
            self._on_wait(round(waited * 1e9))
        return round(waited * 1000)

    def _give_back(self, records: int, size: int) -> None:
        with self._lock:
            for bucket, amount in zip(self._buckets, (records, size), strict=True):
                if bucket is not None:
                    bucket.give_back(amount)

    def _warn(self, topic: str, waited_s: float, left_s: float) -> None:
        self._has_warned = True
        logger.warning(
            "topic %s: %s has held an append back for %d s, and does so for another %d s; raise the limit if that is too slow"
            " (further waits of this producer are not logged)",
            topic,
            self._name,
            waited_s,
            left_s,
        )
