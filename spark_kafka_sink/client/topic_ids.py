"""Which of a topic's ids is the one of today, and how sure that is: pure."""

from __future__ import annotations

import uuid

CONFIRMED_AFTER_MS = 5_000
"""A broker learns within a second of a topic that was made again; one that has been cut off from the controller does not, and
goes on to answer. Where nobody else answers, what it says counts when it has said so for this long."""


class TopicIds:
    """The ids under which a topic of one cluster was seen.

    A broker that has not heard of a deletion yet would bring the dead topic back (Java takes whichever id came last): leader
    epochs do not tell, as each topic counts its own.
    """

    __slots__ = ("_current", "_gone", "_last_ms", "_said_by", "_since_ms")

    def __init__(self) -> None:
        self._current: uuid.UUID | None = None
        self._gone: set[uuid.UUID] = set()
        self._said_by: dict[str, int] = {}  # brokers that answered with today's id since it was new, and how often
        self._since_ms = self._last_ms = 0  # of those answers

    def take(self, topic_id: uuid.UUID | None, node_label: str, now_ms: int) -> bool:
        """An answer has come with this id, None where brokers have none. False: it is about a topic that is gone."""
        if topic_id in self._gone:
            self._said_by.clear()  # brokers do not agree: nothing is certain
            return False
        if topic_id is None:
            return True
        if topic_id != self._current:
            if self._current is not None:
                self._gone.add(self._current)
            self._current = topic_id
            self._said_by.clear()
        if not self._said_by:
            self._since_ms = now_ms
        self._said_by[node_label] = self._said_by.get(node_label, 0) + 1
        self._last_ms = now_ms
        return True

    def is_made_again(self, brokers: int) -> bool:
        """Whether the topic is certainly another one than before.

        One answer may come from a broker that is behind. Two brokers have to say it, or the only one of the cluster twice, or
        one for a while, with nobody who says otherwise.
        """
        if not self._gone:
            return False
        alone = brokers == 1 and max(self._said_by.values(), default=0) > 1
        lasting = bool(self._said_by) and self._last_ms - self._since_ms >= CONFIRMED_AFTER_MS
        return len(self._said_by) > 1 or alone or lasting
