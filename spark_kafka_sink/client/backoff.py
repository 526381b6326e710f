"""Exponential back-off with jitter, as Kafka's ExponentialBackoff."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """`initial_ms * multiplier ** attempts`, up to `max_ms`, each time off by up to `jitter` (0.2: 20 %) in either direction.

    No jitter where nothing grows (`max_ms <= initial_ms`), as in Java. The result never passes `max_ms`.
    """

    initial_ms: int
    max_ms: int
    multiplier: int = 2
    jitter: float = 0.2
    rng: random.Random = field(default_factory=random.Random, compare=False)

    def backoff_ms(self, attempts: int) -> int:
        if self.max_ms <= self.initial_ms:
            return self.max_ms
        # Compared by logarithm-free steps: multiplier ** attempts would overflow a float after 1,024 failures.
        term = float(self.initial_ms)
        for _ in range(attempts):
            if term >= self.max_ms or term == 0:
                break
            term *= self.multiplier
        term = min(term, float(self.max_ms))
        return min(int(term * self.rng.uniform(1 - self.jitter, 1 + self.jitter)), self.max_ms)
