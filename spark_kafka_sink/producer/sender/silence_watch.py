"""When to tell that records wait and nothing happens: pure, a decision for each second."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

WARN_AFTER_MS = 5_000
"""A leader that fails is replaced within some seconds, and a broker that restarts in order is replaced at once. What lasts longer
is worth a line, long before delivery.timeout.ms (120 s) ends it."""

WARN_EVERY_MS = 30_000
"""Four lines before delivery.timeout.ms, and 120 an hour from a broker that stays away."""

Subject: TypeAlias = int | str | tuple[str, int]
"""What is waited for: a broker by its id, a topic by its name, or a transaction's request by transactional id and number."""


class News(Enum):
    """`WAITING`: still, or for long enough now. `OVER`: it answers again. `LEFT`: nothing waits for it any more."""

    WAITING = auto()
    OVER = auto()
    LEFT = auto()


@dataclass(slots=True)
class _Silence:
    since_ms: int
    warned_ms: int | None = None


class SilenceWatch:
    """One silence for each subject: it begins when something waits first, and begins again with every sign of life."""

    def __init__(self) -> None:
        self._silences: dict[Subject, _Silence] = {}
        self._heard: set[Subject] = set()

    def heard(self, subject: Subject) -> None:
        """It has answered something."""
        self._heard.add(subject)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was waited for at the last look."""
        return not self._silences

    def look(self, waiting: Collection[Subject], now_ms: int) -> list[tuple[Subject, News, int]]:
        """What to tell now, and of a silence of how many ms. `waiting`: what is waited for now."""
        news: list[tuple[Subject, News, int]] = []
        for subject, silence in list(self._silences.items()):
            if subject in self._heard or subject not in waiting:
                del self._silences[subject]
                if silence.warned_ms is not None:
                    news.append((subject, News.OVER if subject in self._heard else News.LEFT, now_ms - silence.since_ms))
        self._heard.clear()
        for subject in waiting:
            silence = self._silences.setdefault(subject, _Silence(now_ms))
            due_ms = silence.since_ms + WARN_AFTER_MS if silence.warned_ms is None else silence.warned_ms + WARN_EVERY_MS
            if now_ms >= due_ms:
                silence.warned_ms = now_ms
                news.append((subject, News.WAITING, now_ms - silence.since_ms))
        return news
