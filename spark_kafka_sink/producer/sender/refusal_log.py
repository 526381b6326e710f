"""Refused batches in the log: a line a second says as much as hundreds, which a topic of 1,000 new partitions brings."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

EVERY_MS = 1000


@dataclass(slots=True)
class RefusalLog:
    """Warns of what brokers refuse, at once and then once a second for each broker and error. Used by the sender's thread only.

    What comes in between is in the next line; all of it is in the delivery reports.
    """

    _counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    _logged_ms: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(self, node: int, errors: Counter[str], now_ms: int) -> None:
        """`errors`: how many batches of one answer were refused, by error, which is a name and may have the broker's words."""
        for error, count in errors.items():
            key = (node, error.partition(":")[0])
            self._counts[key] += count
            if now_ms - self._logged_ms.get(key, -EVERY_MS) >= EVERY_MS:
                self._logged_ms[key] = now_ms
                log.warning("broker %d refused %d batches: %s", node, self._counts.pop(key), error)
