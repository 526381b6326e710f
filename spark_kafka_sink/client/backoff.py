"""Pauses between attempts: exponential backoff with jitter, and a wait for responses with a deadline."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NoReturn

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import DeadlineError

logger = logging.getLogger(__name__)

_MAX_NAMED: Final = 20
"""Maximum number of failures in one error text."""

WARN_AFTER_S = 5.0
WARN_EVERY_S = 30.0
"""Delay before a warning, as in `producer/sender/outage_log.py`. A commit may wait for two minutes while Spark logs nothing."""


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Kafka's ExponentialBackoff: `initial_ms * multiplier ** attempts` with jitter, never over `max_ms`.

    As in Java, jitter (0.2: up to 20 % in either direction) is applied before the limit, and not if the pause cannot grow
    (`max_ms <= initial_ms`).
    """

    initial_ms: int
    max_ms: int
    multiplier: int = 2
    jitter: float = 0.2
    rng: random.Random = field(default_factory=random.Random, compare=False)

    def backoff_ms(self, attempts: int) -> int:
        """Returns the pause after `attempts` earlier failures (0 for the first), in ms."""
        if self.max_ms <= self.initial_ms:
            return self.max_ms
        # Any interval has reached its maximum after 62 steps, so the power stays small.
        interval_ms = min(self.initial_ms * self.multiplier ** min(attempts, 62), self.max_ms)
        return min(int(interval_ms * self.rng.uniform(1 - self.jitter, 1 + self.jitter)), self.max_ms)


class ResponseWaiter:
    """Waits for responses until a deadline. Call `note` with the missing response and the reason, then `again`."""

    def __init__(self, deadline: float, backoff: ExponentialBackoff) -> None:
        """deadline: on time.monotonic's clock."""
        self._begun = time.monotonic()
        self._deadline = deadline
        self._backoff = backoff
        self._tries = 0
        self._reasons: dict[str, str] = {}
        self._warn_at = self._begun + WARN_AFTER_S

    def note(self, asked: str, reason: str) -> None:
        """Records why the last attempt failed. `asked` names the request and its broker; only its last reason is kept."""
        self._reasons[asked] = reason

    def forget(self, asked: str) -> None:
        """Drops the reason, because the response has arrived."""
        self._reasons.pop(asked, None)

    def said(self, asked: str) -> str | None:
        """Returns the reason noted last."""
        return self._reasons.get(asked)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    def again(self) -> None:
        """Pauses before the next attempt. Raises DeadlineError if there is no time for one."""
        if self.is_over:
            self.fail()
        self.pause()

    def warn_if_due(self) -> None:
        """Logs a warning with the missing responses and the reasons if the wait has taken long."""
        if self._reasons and time.monotonic() >= self._warn_at:
            self._warn_at = time.monotonic() + WARN_EVERY_S
            logger.warning("still waiting for the cluster: %s", self._text())

    def pause(self) -> None:
        self.warn_if_due()
        pause_s = self._backoff.backoff_ms(self._tries) / 1000
        self._tries += 1
        time.sleep(max(0.0, min(pause_s, self._deadline - time.monotonic())))

    @contextmanager
    def told_as_well(self) -> Iterator[None]:
        """Adds the reasons noted here to a DeadlineError raised inside by another wait with the same deadline."""
        try:
            yield
        except DeadlineError as error:
            if not self._reasons:
                raise
            raise DeadlineError(f"{self._text()}; then {error.message}", **error.facts) from error

    def fail(self) -> NoReturn:
        raise DeadlineError(self._text())

    def _text(self) -> str:
        waited_ms = round((time.monotonic() - self._begun) * 1000)
        reasons = [f"{asked}: {reason}" for asked, reason in self._reasons.items()]
        more = [f"and {len(reasons) - _MAX_NAMED} more"] if len(reasons) > _MAX_NAMED else []
        attempts = counted(self._tries + 1, "attempt")
        return f"no usable response after {waited_ms:,} ms and {attempts}: {'; '.join(reasons[:_MAX_NAMED] + more)}"
